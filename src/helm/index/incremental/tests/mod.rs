//! What the delta gives is what the whole gives.

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

const SECRET: [u8; Secret::BYTES] = *b"known to nobody, which is a key!";

/// What is remembered of an index, and, as the catalogue would have it, the charts that came of it.
#[derive(Clone)]
struct Memory {
    known: CachedIndex,
    charts: HashMap<String, Option<Chart>>,
}

impl Memory {
    fn empty() -> Self {
        Self {
            known: CachedIndex {
                secret: Secret::from(SECRET),
                times_count: false,
                charts: HashMap::new(),
            },
            charts: HashMap::new(),
        }
    }
}

/// What came of a delta.
struct Delta {
    /// All charts, in the order of the index; whether each was read.
    charts: Vec<(Chart, bool)>,
    summary: Summary,
    /// Keys of the charts whose text was read.
    read: Vec<String>,
    /// Nothing is remembered of what was decoded as a whole.
    memory: Memory,
}

/// Puts together what a catalogue would show.
struct Sought<'m> {
    before: &'m Memory,
    after: Memory,
    charts: Vec<(Chart, bool)>,
    read: Vec<String>,
    last: Option<Chart>,
}

impl<'b> Sought<'b> {
    fn after(before: &'b Memory) -> Self {
        Self {
            before,
            after: Memory::empty(),
            charts: Vec::new(),
            read: Vec::new(),
            last: None,
        }
    }
}

impl Sink for Sought<'_> {
    type Error = Infallible;

    fn chart(&mut self, chart: Chart) -> Result<(), Infallible> {
        self.last = Some(chart.clone());
        self.charts.push((chart, true));
        Ok(())
    }

    fn start_over(&mut self) -> Result<(), Infallible> {
        (self.after, self.last) = (Memory::empty(), None);
        self.charts.clear();
        self.read.clear();
        Ok(())
    }
}

impl ChangeSink for Sought<'_> {
    fn unchanged(&mut self, key: &str, account: &ChartStats) -> Result<(), Infallible> {
        let chart = self.before.charts[key].clone();
        assert_eq!(*account, self.before.known.charts[key].account);
        self.charts.extend(chart.clone().map(|chart| (chart, false)));
        self.after.charts.insert(key.to_owned(), chart);
        let known = self.before.known.charts[key].clone();
        self.after.known.charts.insert(key.to_owned(), known);
        Ok(())
    }

    fn remember(&mut self, CacheEntry { key, chart }: CacheEntry) -> Result<(), Infallible> {
        self.after.charts.insert(key.clone(), self.last.take());
        self.after.known.charts.insert(key.clone(), chart);
        self.read.push(key);
        Ok(())
    }
}

/// Gives a few bytes at a time.
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

/// Decodes the changes since `before`, reading so many bytes at once.
fn delta(
    before: &Memory,
    index: &[u8],
    limits: &DecodeLimits,
    at_once: usize,
) -> Result<Delta, DecodeError<Infallible>> {
    let shared = SharedSplit::default();
    if at_once == usize::MAX {
        // Somebody who knew nothing was here first, and what he made of it is shared.
        let nothing = Memory::empty();
        let mut other = Sought::after(&nothing);
        decode_changes(Cursor::new(index), limits, &nothing.known, &shared, &mut other)?;
    }
    let mut sought = Sought::after(before);
    let input = Trickle(Cursor::new(index), at_once);
    let summary = decode_changes(input, limits, &before.known, &shared, &mut sought);
    let Sought {
        after, charts, read, ..
    } = sought;
    summary.map(|summary| Delta {
        charts,
        summary,
        read,
        memory: after,
    })
}

fn without_times(mut chart: Chart) -> Chart {
    for version in &mut chart.versions {
        version.created.clear();
    }
    chart
}

/// The difference between the delta and the whole, if there is one; and the delta.
fn compare(before: &Memory, index: &[u8], limits: &DecodeLimits, at_once: usize) -> Result<Option<Delta>, String> {
    let mut whole = Vec::new();
    let expected = decode(Cursor::new(index), limits, &mut whole);
    let delta = delta(before, index, limits, at_once);
    match (delta, expected) {
        (Ok(delta), Ok(summary)) => {
            if delta.summary != summary {
                return Err(format!("{:?} in place of {summary:?}", delta.summary));
            }
            if delta.charts.len() != whole.len() {
                return Err(format!("{} charts in place of {}", delta.charts.len(), whole.len()));
            }
            for ((chart, is_read), expected) in delta.charts.iter().zip(whole) {
                let is_equal = if *is_read {
                    *chart == expected
                } else {
                    without_times(chart.clone()) == without_times(expected.clone())
                };
                if !is_equal {
                    return Err(format!("{chart:?} in place of {expected:?}"));
                }
            }
            Ok(Some(delta))
        }
        (Err(delta), Err(whole)) if delta.to_string() == whole.to_string() => Ok(None),
        (Ok(_), Err(error)) => Err(format!("accepted what is refused: {error}")),
        (Err(error), Ok(_)) => Err(format!("refused what is accepted: {error}")),
        (Err(delta), Err(whole)) => Err(format!("{delta} in place of {whole}")),
    }
}

/// Decodes an index after another, and fails where the whole gives something else.
fn follow(memory: &Memory, index: &str) -> Delta {
    compare(memory, index.as_bytes(), &DecodeLimits::default(), usize::MAX)
        .unwrap_or_else(|difference| panic!("{difference}"))
        .expect("it is an index")
}

/// The keys that are read of `after` where `before` is known.
fn read_after(before: &str, after: &str) -> Vec<String> {
    let memory = follow(&Memory::empty(), before).memory;
    assert!(!memory.charts.is_empty(), "it was not cut");
    follow(&memory, after).read
}

/// Fails where an index is cut that has to be decoded as a whole. The one before it can be cut.
fn assert_not_cut(before: &str, after: &str) {
    assert_ne!(after, before);
    let memory = follow(&Memory::empty(), before).memory;
    let limits = DecodeLimits::default();
    if let Some(delta) = compare(&memory, after.as_bytes(), &limits, usize::MAX).unwrap() {
        assert!(delta.memory.known.charts.is_empty(), "it was cut");
    }
}
