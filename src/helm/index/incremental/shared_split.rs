use std::sync::Arc;

use parking_lot::Mutex;

use super::digest::DigestKey;
use super::splitter::{ChartSlice, SplitError};
use super::{CachedIndex, DecodeLimits};

/// Maximum size of the cached split, as a fraction (1/16) of the body. Splits of real indexes take 1/50 or less.
const MAX_BODY_FRACTION: u64 = 16;

/// The cached split of one body. A cheap handle that must stay with its body, because it does not identify it. A caller
/// with a different [`SplitKey`] replaces the cached value.
#[derive(Clone, Default)]
pub struct SharedSplit(Arc<Mutex<Option<CachedSplit>>>);

struct CachedSplit {
    key: SplitKey,
    slices: Option<Arc<[ChartSlice]>>,
}

#[derive(PartialEq, Eq)]
struct SplitKey {
    digest_key: DigestKey,
    timestamps_matter: bool,
    /// Sorted keys of the charts whose digest includes timestamps.
    unmasked: Vec<String>,
    limits: DecodeLimits,
}

impl SplitKey {
    fn new(cache: &CachedIndex, limits: &DecodeLimits) -> Self {
        // If timestamps matter, no chart is masked, so the list would not make a difference.
        let unmasked = cache
            .charts
            .iter()
            .filter(|(_, chart)| !chart.timestamps_masked && !cache.timestamps_matter);
        let mut unmasked: Vec<String> = unmasked.map(|(key, _)| key.clone()).collect();
        unmasked.sort_unstable();
        Self {
            digest_key: cache.digest_key,
            timestamps_matter: cache.timestamps_matter,
            unmasked,
            limits: *limits,
        }
    }
}

impl SharedSplit {
    /// Returns the cached split, or calls `split`. Concurrent callers wait for at most one split.
    pub(super) fn get(
        &self,
        cache: &CachedIndex,
        limits: &DecodeLimits,
        split: impl FnOnce() -> Result<Vec<ChartSlice>, SplitError>,
    ) -> Result<Arc<[ChartSlice]>, SplitError> {
        let key = SplitKey::new(cache, limits);
        let mut cached = self.0.lock();
        if let Some(cached) = cached.as_ref().filter(|cached| cached.key == key) {
            return cached.slices.clone().ok_or(SplitError::UnsupportedLayout);
        }
        let slices: Option<Arc<[ChartSlice]>> = match split() {
            Ok(slices) => Some(slices.into()),
            Err(SplitError::UnsupportedLayout) => None,
            Err(error @ SplitError::Read(_)) => return Err(error),
        };
        if slices.as_ref().is_none_or(|slices| is_small(slices)) {
            let slices = slices.clone();
            *cached = Some(CachedSplit { key, slices });
        }
        slices.ok_or(SplitError::UnsupportedLayout)
    }
}

/// A split of many tiny charts could otherwise need more memory than the body.
fn is_small(slices: &[ChartSlice]) -> bool {
    let bytes: usize = slices
        .iter()
        .map(|slice| size_of::<ChartSlice>() + slice.key.len())
        .sum();
    let body = slices.last().map_or(0, |last| last.text.end);
    bytes as u64 <= body / MAX_BODY_FRACTION
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashMap;

    use super::*;
    use crate::helm::index::{CachedChart, ChartStats, Digest};

    fn cache(digest_key: u8) -> CachedIndex {
        CachedIndex {
            digest_key: DigestKey::from([digest_key; DigestKey::BYTES]),
            timestamps_matter: false,
            charts: HashMap::new(),
        }
    }

    fn slices_of(bytes: &[u64]) -> Vec<ChartSlice> {
        let mut end = 0;
        let slice = |bytes: &u64| {
            let start = end;
            end += bytes;
            ChartSlice {
                key: "chart".to_owned(),
                text: start..end,
                versions_column: None,
                digest: Digest([0; 16]),
                timestamps_masked: true,
            }
        };
        bytes.iter().map(slice).collect()
    }

    fn chart(timestamps_masked: bool) -> CachedChart {
        CachedChart {
            digest: Digest([0; 16]),
            timestamps_masked,
            stats: ChartStats::default(),
        }
    }

    #[test]
    fn a_split_is_shared_by_callers_with_an_equal_key_only() {
        let (shared, splits) = (SharedSplit::default(), Cell::new(0));
        let splits_after_get = |cache: &CachedIndex, limits: &DecodeLimits| {
            let slices = shared.get(cache, limits, || {
                splits.set(splits.get() + 1);
                Ok(slices_of(&[100_000]))
            });
            assert_eq!(slices.unwrap().len(), 1);
            splits.get()
        };
        let limits = DecodeLimits::default();
        assert_eq!(splits_after_get(&cache(1), &limits), 1);
        assert_eq!(splits_after_get(&cache(1), &limits), 1);
        let mut one_more = cache(1);
        one_more.charts.insert("a".to_owned(), chart(true));
        assert_eq!(
            splits_after_get(&one_more, &limits),
            1,
            "a masked chart has the same digest input as a new chart"
        );

        let mut with_times = cache(1);
        with_times.charts.insert("a".to_owned(), chart(false));
        assert_eq!(splits_after_get(&with_times, &limits), 2);
        assert_eq!(splits_after_get(&with_times, &limits), 2);
        let mut timestamps_matter = CachedIndex {
            timestamps_matter: true,
            ..cache(1)
        };
        assert_eq!(splits_after_get(&timestamps_matter, &limits), 3);
        timestamps_matter.charts.insert("a".to_owned(), chart(false));
        assert_eq!(
            splits_after_get(&timestamps_matter, &limits),
            3,
            "timestamps are never masked if they matter"
        );
        assert_eq!(splits_after_get(&cache(2), &limits), 4);
        let lower = DecodeLimits { charts: 1, ..limits };
        assert_eq!(splits_after_get(&cache(2), &lower), 5);
    }

    #[test]
    fn a_split_that_is_large_compared_with_its_body_is_not_cached() {
        let (shared, limits) = (SharedSplit::default(), DecodeLimits::default());
        for attempt in 1..3 {
            let tiny_charts = [10; 100];
            let slices = shared.get(&cache(1), &limits, || Ok(slices_of(&tiny_charts)));
            assert_eq!(slices.unwrap().len(), 100, "{attempt}");
            assert!(shared.0.lock().is_none());
        }
    }

    #[test]
    fn read_errors_are_not_cached_but_unsupported_layouts_are() {
        let (shared, limits) = (SharedSplit::default(), DecodeLimits::default());
        let broken = || Err(SplitError::Read(std::io::Error::other("broken")));
        assert!(matches!(
            shared.get(&cache(1), &limits, broken),
            Err(SplitError::Read(_))
        ));
        let unsupported = || Err(SplitError::UnsupportedLayout);
        assert!(matches!(
            shared.get(&cache(1), &limits, unsupported),
            Err(SplitError::UnsupportedLayout)
        ));
        assert!(matches!(
            shared.get(&cache(1), &limits, broken),
            Err(SplitError::UnsupportedLayout)
        ));
    }
}
