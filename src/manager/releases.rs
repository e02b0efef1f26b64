//! Watches the releases of the cluster, and compares them with the catalog: again when one of both has changed.
//!
//! ```text
//!  watch_releases ── Found ─┐
//!  syncs of this process ───┴► keys of the catalog ─► candidates, by name ─► judge ─► WatchedReleases
//! ```
//! This runs on the replica that leads the first shard, so that no release is counted twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::OptionFuture;
use kube::Client;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use super::setup::Repositories;
use super::{LeaderElection, Options};
use crate::api::NamespacedName;
use crate::catalog::query::ChartsKey;
use crate::catalog::{Catalog, Error};
use crate::controllers::apprepository::jobs::JobSettings;
use crate::controllers::apprepository::running_syncs::RunningSyncs;
use crate::controllers::{Source, Task};
use crate::releases::Release;
use crate::releases::watch::{Found, idle_after, watch_releases};
use crate::releases::watched::{JudgedReleases, WatchedRelease, WatchedReleases};
use crate::serve::outdated::CandidateReader;

/// Syncs often end together.
const DEBOUNCE: Duration = Duration::from_secs(2);
/// Between looks at the catalog, if other processes write it too.
const POLL: Duration = Duration::from_secs(60);
/// Before the database is read again after a failure.
const RETRY: Duration = Duration::from_secs(30);

/// The versions of all charts in the catalog.
type Keys = BTreeMap<NamespacedName, ChartsKey>;

#[derive(Clone, Debug)]
pub struct ReleaseOptions {
    /// The only watched namespace; all if `None`.
    pub namespace: Option<String>,
    /// The namespace whose repositories are for all others.
    pub global_namespace: Option<String>,
    /// The result, for the page, the API and the metric.
    pub watched: WatchedReleases,
}

struct ReleaseTask {
    client: Client,
    catalog: Catalog,
    /// The repositories of other clusters are no candidates.
    origin: String,
    syncs: RunningSyncs,
    /// Jobs or other shards write charts too.
    has_other_writers: bool,
    options: ReleaseOptions,
}

/// Returns the task of a leader, `None` if releases are not watched.
pub(super) fn task(options: &Options, source: &Source, repositories: &Repositories) -> Option<Task> {
    let (Some(releases), Source::Cluster(client)) = (&options.releases, source) else {
        return None;
    };
    let jobs = repositories.options.jobs.as_ref();
    let has_shards = matches!(&options.leader_election, LeaderElection::Enabled(lease) if lease.shards.get() > 1);
    let task = ReleaseTask {
        client: client.clone(),
        catalog: repositories.catalog.catalog.clone(),
        origin: repositories.identity.origin.clone(),
        syncs: repositories.options.running.clone(),
        has_other_writers: has_shards || jobs.is_some_and(JobSettings::is_enabled),
        options: releases.clone(),
    };
    Some(task.run().boxed())
}

impl ReleaseTask {
    /// Never returns.
    async fn run(self) {
        let (sender, found) = watch::channel(Found::default());
        let watched = watch_releases(self.client.clone(), self.options.namespace.clone(), sender);
        futures::join!(watched, self.judge(found));
    }

    async fn judge(&self, mut found: watch::Receiver<Found>) {
        let mut syncs = self.syncs.subscribe();
        let mut judged_with = None;
        let mut has_failed = false;
        loop {
            let pause = match (has_failed, self.has_other_writers) {
                (true, _) => Some(RETRY),
                (false, true) => Some(POLL),
                (false, false) => None,
            };
            tokio::select! {
                // Both senders live as long as this task.
                _ = found.changed() => judged_with = None,
                _ = syncs.changed() => {}
                Some(()) = OptionFuture::from(pause.map(sleep)) => {}
            }
            sleep(DEBOUNCE).await;
            syncs.mark_unchanged();
            if found.has_changed().unwrap_or_default() {
                judged_with = None;
            }
            let latest = found.borrow_and_update().clone();
            if latest.is_complete {
                let started = Instant::now();
                let updated = self.update(latest, &mut judged_with).await;
                has_failed = updated.is_err();
                if let Err(error) = updated {
                    tracing::warn!(%error, retry_in = ?RETRY, "failed to compare releases with the catalog");
                }
                idle_after(started).await;
            }
        }
    }

    async fn update(&self, found: Found, judged_with: &mut Option<Keys>) -> Result<(), Error> {
        let keys = self.catalog.repository_keys(None).await?;
        let keys: Keys = keys.into_iter().map(|keys| (keys.name, keys.charts)).collect();
        if judged_with.as_ref() == Some(&keys) {
            return Ok(());
        }
        // Until it has succeeded.
        *judged_with = None;
        let items = self.judge_all(found.releases).await?;
        let namespaces: BTreeSet<String> = items.iter().map(|item| item.release.namespace.clone()).collect();
        self.options.watched.set(JudgedReleases {
            items,
            namespaces: namespaces.into_iter().collect(),
            left_out: found.left_out,
            unreadable_count: found.unreadable_count,
            unreadable: found.unreadable,
            is_complete: true,
        });
        *judged_with = Some(keys);
        Ok(())
    }

    async fn judge_all(&self, releases: Vec<Arc<Release>>) -> Result<Vec<WatchedRelease>, Error> {
        let mut by_chart = BTreeMap::<String, Vec<Arc<Release>>>::new();
        for release in releases {
            by_chart.entry(release.chart.name.clone()).or_default().push(release);
        }
        let names: Vec<String> = by_chart.keys().cloned().collect();
        let mut reader = CandidateReader::new(&self.catalog, &names, Some(&self.origin)).await?;
        let mut judged = Vec::new();
        while let Some((name, candidates)) = reader.next().await? {
            let releases = by_chart.remove(&name).unwrap_or_default();
            let global = self.options.global_namespace.clone();
            // Takes time linear in releases and versions.
            let judge = move || WatchedRelease::of_chart(releases, &candidates, global.as_deref());
            // A panic has been logged.
            judged.extend(spawn_blocking(judge).await.unwrap_or_default());
        }
        judged.sort_by(|a, b| a.key().cmp(&b.key()));
        Ok(judged)
    }
}
