//! The identity of a declared repository, which Jobs of `portolan run --executor=job` pass to one-shot commands.

use clap::Args;

use crate::catalog::{Migrations, Record};
use crate::controllers::apprepository::spec::{RepositorySpec, Requests};

/// Without these flags, a one-shot sync keeps the identity of the stored rows.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Jobs")]
pub struct DeclaredFlags {
    /// UID of the AppRepository: nothing is written after its deletion, and rows of another one stay
    #[arg(long, value_name = "UID")]
    pub uid: Option<String>,
    /// Generation of the AppRepository: nothing is written after a later one was synced
    #[arg(long, value_name = "N", requires = "uid")]
    pub generation: Option<i64>,
    /// Hash of the spec that the sync is for
    #[arg(long, value_name = "HASH", requires = "uid")]
    pub spec_hash: Option<String>,
    /// Cluster of the AppRepository, which marks the rows
    #[arg(long, value_name = "ID", requires = "uid")]
    pub origin: Option<String>,
    /// Schedule to show in the status
    #[arg(long, value_name = "CRON", requires = "uid")]
    pub schedule: Option<String>,
    /// UID of the stored rows that the AppRepository takes over
    #[arg(long, value_name = "UID", requires = "uid")]
    pub replaces_uid: Option<String>,
    /// Revision of the stored rows that the sync replaces although they are of a later generation
    #[arg(long, value_name = "N", requires = "generation")]
    pub replaces_revision: Option<i64>,
    /// Value of spec.resyncRequests that the sync handles
    #[arg(long, value_name = "N", requires = "uid")]
    pub resync_requests: Option<i64>,
    /// Value of the annotation apprepositories.kubeapps.com/requested-at that the sync handles
    #[arg(long, value_name = "TEXT", requires = "uid")]
    pub requested_at: Option<String>,
    /// Value of the annotation reconcile.fluxcd.io/requestedAt that the sync handles
    #[arg(long, value_name = "TEXT", requires = "uid")]
    pub flux_requested_at: Option<String>,
    /// Secrets that the news of the sync goes to: NAMESPACE/NAME, separated by commas
    #[arg(long, value_name = "SECRETS", value_delimiter = ',', requires = "uid")]
    pub news_sinks: Vec<String>,
    /// Value of the annotation portolan.dev/poll-at that the sync handles
    #[arg(long, value_name = "TEXT", requires = "uid")]
    pub poll_at: Option<String>,
}

/// The reason why a Job has nothing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obsolete {
    /// A later generation of the AppRepository was synced.
    Generation(i64),
    /// The rows are those of another AppRepository.
    Other(String),
}

/// Returns what a Job for the AppRepository with this UID, or a user's command, does with tables of an earlier release.
pub fn migrations(uid: Option<&str>) -> Migrations {
    match uid {
        Some(_) => Migrations::Refuse,
        None => Migrations::Run,
    }
}

impl DeclaredFlags {
    /// Returns the reason not to sync over the stored rows.
    pub fn obsolete(&self, stored: &Record) -> Option<Obsolete> {
        let uid = self.uid.as_deref()?;
        if stored.uid == uid {
            let is_later = self.generation.is_some_and(|generation| stored.generation > generation);
            // The revision, since the object may reach that generation once more.
            let is_replaced = self.replaces_revision.is_some() && self.replaces_revision == stored.revision;
            return (is_later && !is_replaced).then_some(Obsolete::Generation(stored.generation));
        }
        // Rows of a one-shot sync have no UID.
        let is_replaced = stored.uid.is_empty() || self.replaces_uid.as_deref() == Some(stored.uid.as_str());
        (!is_replaced).then(|| Obsolete::Other(stored.uid.clone()))
    }

    /// Sets the identity of a spec. Requests that are not named stay as handled before.
    pub fn identify(&self, spec: &mut RepositorySpec, stored: Option<&Record>) {
        let Some(uid) = &self.uid else { return };
        spec.uid.clone_from(uid);
        spec.generation = self.generation;
        spec.schedule.clone_from(&self.schedule);
        spec.news_sinks.clone_from(&self.news_sinks);
        if let Some(spec_hash) = &self.spec_hash {
            spec.spec_hash.clone_from(spec_hash);
        }
        let same = stored.filter(|stored| stored.uid == *uid);
        let handled = same.map(|stored| &stored.handled);
        spec.requests = Requests {
            resync_requests: self
                .resync_requests
                .or(handled.and_then(|handled| handled.resync_requests))
                .unwrap_or_default(),
            requested_at: (self.requested_at.clone()).or_else(|| handled?.requested_at.clone()),
            flux_requested_at: (self.flux_requested_at.clone()).or_else(|| handled?.flux_requested_at.clone()),
            poll_at: (self.poll_at.clone()).or_else(|| same?.poll.at.clone()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> DeclaredFlags {
        DeclaredFlags {
            uid: Some("uid".to_owned()),
            generation: Some(3),
            ..DeclaredFlags::default()
        }
    }

    fn stored(uid: &str, generation: i64) -> Record {
        Record {
            uid: uid.to_owned(),
            generation,
            ..Record::default()
        }
    }

    #[test]
    fn a_job_of_an_earlier_generation_or_of_another_repository_is_obsolete() {
        assert_eq!(flags().obsolete(&stored("uid", 3)), None);
        assert_eq!(flags().obsolete(&stored("uid", 4)), Some(Obsolete::Generation(4)));
        assert_eq!(
            flags().obsolete(&stored("other", 1)),
            Some(Obsolete::Other("other".to_owned()))
        );
        assert_eq!(flags().obsolete(&stored("", 9)), None, "rows of a one-shot sync");
        assert_eq!(DeclaredFlags::default().obsolete(&stored("other", 9)), None);
    }

    #[test]
    fn a_job_replaces_a_later_generation_only_in_the_revision_that_it_names() {
        let flags = DeclaredFlags {
            replaces_revision: Some(5),
            ..flags()
        };
        let stored = |generation, revision| Record {
            revision: Some(revision),
            ..stored("uid", generation)
        };
        assert_eq!(flags.obsolete(&stored(7, 5)), None);
        assert_eq!(flags.obsolete(&stored(7, 6)), Some(Obsolete::Generation(7)));
        assert_eq!(flags.obsolete(&stored(3, 6)), None, "a retry after its own write");
        assert!(
            flags
                .obsolete(&Record {
                    uid: "other".to_owned(),
                    ..stored(7, 5)
                })
                .is_some()
        );
    }

    #[test]
    fn a_job_takes_over_only_the_rows_that_it_names() {
        let flags = DeclaredFlags {
            replaces_uid: Some("restored".to_owned()),
            ..flags()
        };
        assert_eq!(flags.obsolete(&stored("restored", 9)), None);
        assert!(flags.obsolete(&stored("other", 9)).is_some());
    }
}
