//! Only what has changed in an index is parsed.
//!
//! ```text
//!  bytes ─► cut ─► charts with digests ─┬─ known: what is remembered of it is counted ─────────────────┬─► Summary
//!                                       └─ else: its versions one by one ─► yaml ─► collect ─► the sink ┘
//!             └─ in another style, or a part that does not parse by itself: all of it is decoded as a whole
//! ```
//! Whatever comes out is what [`decode`](super::decode) makes of the same bytes, but for the time `created` of versions in charts
//! that are known. Wherever that might be otherwise, the whole decides: nothing is refused or skipped here that it would take.

mod decode;
mod digest;
mod ends;
mod envelope;
mod json;
mod lines;
mod shared_split;
mod slices;
mod splitter;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

use super::collector::Collector;
use super::error::DecodeError;
use super::{ChartStats, DecodeLimits, Sink, Start, Summary};
use decode::Parser;
pub use digest::{Digest, Secret};
pub use shared_split::SharedSplit;
use slices::NoSlice;
use splitter::{ChartSlice, SplitError};

/// What is remembered of an index from the last time that it was decoded.
#[derive(Debug, Clone)]
pub struct CachedIndex {
    /// The key of the digests, those to come too.
    pub secret: Secret,
    /// Whether the times of versions count: where something else than the row depends on them, such as a filter.
    pub times_count: bool,
    /// By their keys under `entries`.
    pub charts: HashMap<String, CachedChart>,
}

/// What is remembered of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedChart {
    /// Of its text.
    pub digest: Digest,
    /// Whether the times of its versions were left out of the digest.
    pub masked: bool,
    /// What came of that text.
    pub account: ChartStats,
}

impl CachedIndex {
    /// What is remembered of the chart, if it is still as it was.
    fn get(&self, cut: &ChartSlice) -> Option<&CachedChart> {
        let known = self.charts.get(&cut.key);
        known.filter(|known| known.digest == cut.digest && known.masked == cut.masked)
    }
}

/// A chart as it is to be remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    /// Under `entries`.
    pub key: String,
    /// What is remembered.
    pub chart: CachedChart,
}

/// Takes the charts of an index, and what is remembered of them, in the order of the index.
///
/// [`start_over`](Sink::start_over) tells that the index can't be told by its parts, also where nothing was told of it yet. After it
/// nothing counts that it has got so far, known charts and what was to be remembered included; then no chart is known, and nothing is
/// to be remembered.
pub trait ChangeSink: Sink {
    /// The chart under this key is as it is remembered.
    ///
    /// # Errors
    /// Ends the decoding with [`DecodeError::Sink`].
    fn unchanged(&mut self, key: &str, account: &ChartStats) -> Result<(), Self::Error>;

    /// What is to be remembered of the chart that came last, or of one that there is no chart of.
    ///
    /// # Errors
    /// Ends the decoding with [`DecodeError::Sink`].
    fn remember(&mut self, chart: CacheEntry) -> Result<(), Self::Error>;
}

/// Reads an index as [`decode`](super::decode) does, but of charts that are known only their text, and not even that where it was
/// `cut` before. Blocks while it reads and computes, so it belongs on a thread that may.
///
/// # Errors
/// As of [`decode`](super::decode).
pub fn decode_changes<R: Read + Seek, S: ChangeSink>(
    mut input: R,
    limits: &DecodeLimits,
    known: &CachedIndex,
    cut: &SharedSplit,
    sink: &mut S,
) -> Result<Summary, DecodeError<S::Error>> {
    let mut collector = Collector::new(limits, sink);
    match changes(&mut input, limits, known, cut, &mut collector) {
        Ok(()) => Ok(collector.finish()),
        Err(Stop::Error(error)) => Err(error),
        Err(Stop::Whole) => {
            drop(collector);
            // Whether it has got anything or not: it has to know that all comes.
            sink.start_over().map_err(DecodeError::Sink)?;
            super::decode(input, limits, sink)
        }
    }
}

/// Why the whole has to be decoded, or nothing can be.
enum Stop<E> {
    Whole,
    Error(DecodeError<E>),
}

impl<E> From<DecodeError<E>> for Stop<E> {
    /// What is wrong with a part is for the whole to say, which knows where.
    fn from(error: DecodeError<E>) -> Self {
        match error {
            DecodeError::Sink(_) | DecodeError::Read(_) => Self::Error(error),
            _ => Self::Whole,
        }
    }
}

impl<E> From<NoSlice> for Stop<E> {
    fn from(reason: NoSlice) -> Self {
        match reason {
            NoSlice::TooLarge => Self::Whole,
            NoSlice::Read(error) => Self::Error(DecodeError::Read(error)),
        }
    }
}

impl<E> From<std::io::Error> for Stop<E> {
    fn from(error: std::io::Error) -> Self {
        Self::Error(DecodeError::Read(error))
    }
}

fn changes<R: Read + Seek, S: ChangeSink>(
    input: &mut R,
    limits: &DecodeLimits,
    known: &CachedIndex,
    shared: &SharedSplit,
    collector: &mut Collector<'_, S>,
) -> Result<(), Stop<S::Error>> {
    let Start { offset, first } = Start::of(input)?;
    input.seek(SeekFrom::Start(offset))?;
    // What looks like a page may be YAML all the same, and is refused.
    if matches!(first[0], None | Some(b'<')) {
        return Err(Stop::Whole);
    }
    let is_json = first[0] == Some(b'{');
    let cuts = shared.get(known, limits, || {
        if is_json {
            json::cut(input, offset, limits, known)
        } else {
            splitter::cut(input, offset, limits, known)
        }
    });
    let cuts = match cuts {
        Ok(cuts) => cuts,
        Err(SplitError::Style) => return Err(Stop::Whole),
        Err(SplitError::Read(error)) => return Err(error.into()),
    };
    decode::collect(&cuts, Parser::new(input, limits, known, is_json), collector)
}
