//! Compares the incremental decode with the full decode.

mod hostile;
mod json;
mod real;
mod small;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, Cursor, Read, Seek, SeekFrom};

use super::*;
use crate::helm::index::tests::generator;
use crate::helm::index::{Chart, decode};

const KEY: [u8; DigestKey::BYTES] = *b"some key, known only to this one";

/// A cache and the charts as the catalog would contain them.
#[derive(Clone)]
struct CatalogState {
    cache: CachedIndex,
    charts: HashMap<String, Option<Chart>>,
}

impl CatalogState {
    fn empty() -> Self {
        Self {
            cache: CachedIndex {
                digest_key: DigestKey::from(KEY),
                timestamps_matter: false,
                charts: HashMap::new(),
            },
            charts: HashMap::new(),
        }
    }
}

struct Incremental {
    /// All charts in index order, each with true if it was parsed.
    charts: Vec<(Chart, bool)>,
    summary: Summary,
    /// Keys of the parsed charts.
    parsed: Vec<String>,
    /// Empty after a full decode.
    state: CatalogState,
}

/// Collects the charts that a catalog would contain.
struct CatalogSink<'m> {
    before: &'m CatalogState,
    after: CatalogState,
    charts: Vec<(Chart, bool)>,
    parsed: Vec<String>,
    last: Option<Chart>,
}

impl<'b> CatalogSink<'b> {
    fn after(before: &'b CatalogState) -> Self {
        Self {
            before,
            after: CatalogState::empty(),
            charts: Vec::new(),
            parsed: Vec::new(),
            last: None,
        }
    }
}

impl Sink for CatalogSink<'_> {
    type Error = Infallible;

    fn chart(&mut self, chart: Chart) -> Result<(), Infallible> {
        self.last = Some(chart.clone());
        self.charts.push((chart, true));
        Ok(())
    }

    fn start_over(&mut self) -> Result<(), Infallible> {
        (self.after, self.last) = (CatalogState::empty(), None);
        self.charts.clear();
        self.parsed.clear();
        Ok(())
    }
}

impl ChangeSink for CatalogSink<'_> {
    fn unchanged(&mut self, key: &str, stats: &ChartStats) -> Result<(), Infallible> {
        let chart = self.before.charts[key].clone();
        assert_eq!(*stats, self.before.cache.charts[key].stats);
        self.charts.extend(chart.clone().map(|chart| (chart, false)));
        self.after.charts.insert(key.to_owned(), chart);
        let cache = self.before.cache.charts[key].clone();
        self.after.cache.charts.insert(key.to_owned(), cache);
        Ok(())
    }

    fn cache(&mut self, CacheEntry { key, chart }: CacheEntry) -> Result<(), Infallible> {
        self.after.charts.insert(key.clone(), self.last.take());
        self.after.cache.charts.insert(key.clone(), chart);
        self.parsed.push(key);
        Ok(())
    }
}

/// Returns a few bytes per read.
struct Trickle<'b>(Cursor<&'b [u8]>, usize);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.1);
        self.0.read(&mut buffer[..count])
    }
}

impl Seek for Trickle<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

/// Decodes the changes since `before` with reads of at most `at_once` bytes.
fn decode_incrementally(
    before: &CatalogState,
    index: &[u8],
    limits: &DecodeLimits,
    at_once: usize,
) -> Result<Incremental, DecodeError<Infallible>> {
    let shared = SharedSplit::default();
    if at_once == usize::MAX {
        // Another caller with an empty cache has already split the same body.
        let nothing = CatalogState::empty();
        let mut other = CatalogSink::after(&nothing);
        decode_changes(Cursor::new(index), limits, &nothing.cache, &shared, &mut other)?;
    }
    let mut sink = CatalogSink::after(before);
    let input = Trickle(Cursor::new(index), at_once);
    let summary = decode_changes(input, limits, &before.cache, &shared, &mut sink);
    let CatalogSink {
        after, charts, parsed, ..
    } = sink;
    summary.map(|summary| Incremental {
        charts,
        summary,
        parsed,
        state: after,
    })
}

fn without_times(mut chart: Chart) -> Chart {
    for version in &mut chart.versions {
        version.created.clear();
    }
    chart
}

/// Returns the incremental result, or its difference from the full decode.
fn compare(
    before: &CatalogState,
    index: &[u8],
    limits: &DecodeLimits,
    at_once: usize,
) -> Result<Option<Incremental>, String> {
    let mut full = Vec::new();
    let expected = decode(Cursor::new(index), limits, &mut full);
    let incremental = decode_incrementally(before, index, limits, at_once);
    match (incremental, expected) {
        (Ok(incremental), Ok(summary)) => {
            if incremental.summary != summary {
                return Err(format!("{:?} instead of {summary:?}", incremental.summary));
            }
            if incremental.charts.len() != full.len() {
                return Err(format!("{} charts instead of {}", incremental.charts.len(), full.len()));
            }
            for ((chart, is_parsed), expected) in incremental.charts.iter().zip(full) {
                let is_equal = if *is_parsed {
                    *chart == expected
                } else {
                    without_times(chart.clone()) == without_times(expected.clone())
                };
                if !is_equal {
                    return Err(format!("{chart:?} instead of {expected:?}"));
                }
            }
            Ok(Some(incremental))
        }
        (Err(incremental), Err(full)) if incremental.to_string() == full.to_string() => Ok(None),
        (Ok(_), Err(error)) => Err(format!("accepted what is rejected: {error}")),
        (Err(error), Ok(_)) => Err(format!("rejected what is accepted: {error}")),
        (Err(incremental), Err(full)) => Err(format!("{incremental} instead of {full}")),
    }
}

fn decode_next(state: &CatalogState, index: &str) -> Incremental {
    compare(state, index.as_bytes(), &DecodeLimits::default(), usize::MAX)
        .unwrap_or_else(|difference| panic!("{difference}"))
        .expect("it is an index")
}

/// Returns the keys that are parsed in `after` with the cache of `before`.
fn parsed_after(before: &str, after: &str) -> Vec<String> {
    let state = decode_next(&CatalogState::empty(), before).state;
    assert!(!state.charts.is_empty(), "full decode");
    decode_next(&state, after).parsed
}

/// Asserts that `after` needs a full decode, unlike `before`.
fn assert_needs_full_decode(before: &str, after: &str) {
    assert_ne!(after, before);
    let state = decode_next(&CatalogState::empty(), before).state;
    let limits = DecodeLimits::default();
    if let Some(incremental) = compare(&state, after.as_bytes(), &limits, usize::MAX).unwrap() {
        assert!(incremental.state.cache.charts.is_empty(), "incremental decode");
    }
}
