//! Versions that left the index and stay for a while.

use std::{cmp::Ordering, collections::HashSet, time::Duration};

use jiff::Timestamp;

/// How long versions stay that have left the index: an installed one that vanishes can't be managed by Kubeapps any more.
#[derive(Clone, Debug)]
pub struct Keep {
    /// The time of this sync: versions that are missing for the first time count from it.
    pub now: Timestamp,
    /// How long they stay.
    pub duration: Duration,
    /// The order of versions in an index: `Less` is the newer one, which stands first.
    pub order: fn(&str, &str) -> Ordering,
    /// Charts, by `chart_id`, that a filter has taken out: of them nothing is kept.
    pub filtered_out: HashSet<String>,
}
