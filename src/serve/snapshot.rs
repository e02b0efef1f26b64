//! The summaries of all charts in memory. A refresh reads the charts of changed repositories only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::summary::ChartSummary;
use crate::api::NamespacedName;
use crate::catalog::query::RepositoryKeys;
use crate::catalog::{Catalog, Error, ONE_SHOT};

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// `None`: all namespaces.
    namespace: Option<String>,
    /// `None`: all origins.
    origin: Option<String>,
    repositories: BTreeMap<NamespacedName, Repository>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    pub keys: RepositoryKeys,
    pub charts: Arc<[ChartSummary]>,
    /// Number of rows that are not readable, and left out.
    pub unreadable: usize,
}

impl Snapshot {
    #[must_use]
    pub fn new(namespace: Option<String>) -> Self {
        Self {
            namespace,
            ..Self::default()
        }
    }

    /// Limits the snapshot to the repositories of one origin, and to those without an owner while no other cluster uses the
    /// database: namespaces of the same name in two clusters are not the same tenants.
    #[must_use]
    pub fn of_origin(self, origin: String) -> Self {
        Self {
            origin: Some(origin),
            ..self
        }
    }

    /// Returns the number of repositories whose charts were read. After an error, each repository is as it was or current.
    pub async fn refresh(&mut self, catalog: &Catalog) -> Result<usize, Error> {
        let mut found = catalog.repository_keys(self.namespace.as_deref()).await?;
        if let Some(origin) = &self.origin {
            let is_alone = !catalog.has_other_cluster(origin).await?;
            found.retain(|keys| is_of_origin(keys, origin, is_alone));
        }
        let names: BTreeSet<&NamespacedName> = found.iter().map(|keys| &keys.name).collect();
        self.repositories.retain(|name, _| names.contains(name));
        let mut read = 0;
        for keys in found {
            match self.repositories.get_mut(&keys.name) {
                // The record may have changed, by a sync that found the same charts.
                Some(repository) if repository.keys.charts == keys.charts => repository.keys = keys,
                _ => {
                    let repository = Repository::read(catalog, keys).await?;
                    self.repositories.insert(repository.keys.name.clone(), repository);
                    read += 1;
                }
            }
        }
        Ok(read)
    }

    #[must_use]
    pub const fn repositories(&self) -> &BTreeMap<NamespacedName, Repository> {
        &self.repositories
    }

    pub fn charts(&self) -> impl Iterator<Item = (&NamespacedName, &ChartSummary)> + Clone {
        self.repositories
            .iter()
            .flat_map(|(name, repository)| repository.charts.iter().map(move |chart| (name, chart)))
    }

    /// Returns the number of rows that are not readable, in all repositories.
    #[must_use]
    pub fn unreadable(&self) -> usize {
        self.repositories.values().map(|repository| repository.unreadable).sum()
    }
}

fn is_of_origin(keys: &RepositoryKeys, origin: &str, is_alone: bool) -> bool {
    match &keys.record {
        Some(record) => record.origin == origin || (is_alone && record.origin == ONE_SHOT),
        None => is_alone,
    }
}

impl Repository {
    async fn read(catalog: &Catalog, keys: RepositoryKeys) -> Result<Self, Error> {
        let (mut charts, mut unreadable) = (Vec::new(), 0);
        let visit = |chart_id: Option<&str>, info: &str| {
            // A row without chart ID has no address.
            match chart_id.and_then(|chart_id| ChartSummary::decode(chart_id, info)) {
                Some(chart) => charts.push(chart),
                None => unreadable += 1,
            }
        };
        catalog.visit_charts(&keys.name, visit).await?;
        Ok(Self {
            keys,
            charts: charts.into(),
            unreadable,
        })
    }
}
