//! The state of the lists of clusters.

use crate::controllers::oam::clusters::managed::ClusterSource;

/// Clusters are known if all lists are: what a selector misses is deleted.
#[derive(Default)]
pub(super) struct Known {
    secrets: Listing,
    managed: Listing,
}

#[derive(Default)]
pub(super) enum Listing {
    #[default]
    Pending,
    Listed,
    /// Not served, which only ManagedClusters may be: there is none.
    NotServed,
    Failed(String),
}

impl Known {
    /// Returns the state before.
    pub(super) fn set(&mut self, source: ClusterSource, listing: Listing) -> Listing {
        let listed = match source {
            ClusterSource::Secret => &mut self.secrets,
            ClusterSource::ManagedCluster => &mut self.managed,
        };
        std::mem::replace(listed, listing)
    }

    /// Returns true once all lists are complete or have failed.
    pub(super) const fn is_settled(&self) -> bool {
        !matches!(self.secrets, Listing::Pending) && !matches!(self.managed, Listing::Pending)
    }

    pub(super) const fn has_managed(&self) -> bool {
        !matches!(self.managed, Listing::NotServed)
    }

    /// Returns the reason why the clusters are not known.
    pub(super) fn problem(&self, namespace: &str) -> Option<String> {
        match (&self.secrets, &self.managed) {
            (Listing::Failed(problem), _) | (_, Listing::Failed(problem)) => Some(problem.clone()),
            (Listing::Pending, _) => Some(format!(
                "the joined clusters in namespace {namespace} are not listed yet"
            )),
            (_, Listing::Pending) => Some("the ManagedClusters are not listed yet".to_owned()),
            _ => None,
        }
    }
}
