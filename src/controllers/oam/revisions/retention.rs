//! Revisions that are no longer needed.

use std::collections::BTreeSet;

use kube::ResourceExt;

use super::names::revision_number;
use crate::api::oam::{LatestRevision, labels};
use crate::controllers::oam::trackers::Inventory;

/// Returns the names of revisions in use: the current revision, and revisions whose objects are tracked.
#[must_use]
pub fn in_use<'a>(latest: Option<&'a LatestRevision>, trackers: &'a Inventory) -> BTreeSet<&'a str> {
    let tracked = trackers
        .in_order()
        .filter_map(|tracker| tracker.object.labels().get(labels::APP_REVISION));
    let names = tracked
        .map(String::as_str)
        .chain(latest.map(|latest| latest.name.as_str()));
    names.filter(|name| !name.is_empty()).collect()
}

/// Returns the oldest revisions that exceed `limit`. Revisions in use are kept and not counted.
#[must_use]
pub fn expendable<'a>(revisions: &[&'a str], in_use: &BTreeSet<&str>, limit: usize) -> Vec<&'a str> {
    let mut unused: Vec<_> = revisions
        .iter()
        .copied()
        .filter(|name| !in_use.contains(name))
        .collect();
    unused.sort_by_key(|name| (revision_number(name), *name));
    unused.truncate(unused.len().saturating_sub(limit));
    unused
}
