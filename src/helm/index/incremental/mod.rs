//! Decodes only the changed charts of an index.
//!
//! ```text
//!  bytes ─► splitter ─► slices with digests ─┬─ cached: add the cached stats ──────────────────────┬─► Summary
//!                                            └─ changed: slices ─► yaml or json ─► collector ─► sink ┘
//!           └─ unsupported layout, or a slice that does not parse on its own: full decode
//! ```
//!
//! The result is the same as with [`decode`](super::decode), except for `created` of versions in cached charts.
//! Whenever the result could differ, the full decode runs.

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

use super::collector::ChartCollector;
use super::error::DecodeError;
use super::{ChartStats, DecodeLimits, IndexStart, Sink, Summary};
use decode::ChartParser;
pub use digest::{Digest, DigestKey};
pub use shared_split::SharedSplit;
use slices::SliceError;
use splitter::{ChartSlice, SplitError};

#[derive(Debug, Clone)]
pub struct CachedIndex {
    /// Key of the cached and the new digests.
    pub digest_key: DigestKey,
    /// Set if more than the `created` column depends on timestamps, for example a filter.
    pub timestamps_matter: bool,
    /// By key under `entries`.
    pub charts: HashMap<String, CachedChart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedChart {
    pub digest: Digest,
    /// The digest excludes the timestamps of the versions.
    pub timestamps_masked: bool,
    pub stats: ChartStats,
}

impl CachedIndex {
    fn get(&self, slice: &ChartSlice) -> Option<&CachedChart> {
        let cached = self.charts.get(&slice.key);
        cached.filter(|cached| cached.digest == slice.digest && cached.timestamps_masked == slice.timestamps_masked)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    pub key: String,
    pub chart: CachedChart,
}

/// In index order. [`start_over`](Sink::start_over) announces a full decode, possibly before any chart. The receiver
/// then drops everything it got, and no further `unchanged` or `cache` call follows.
pub trait ChangeSink: Sink {
    fn unchanged(&mut self, key: &str, stats: &ChartStats) -> Result<(), Self::Error>;

    /// Called with the cache entry of the last chart, which may be deprecated, or of a skipped chart.
    fn cache(&mut self, chart: CacheEntry) -> Result<(), Self::Error>;
}

/// Decodes an index as [`decode`](super::decode) does, but parses only charts that are not cached. Reuses a split of
/// the same body in `shared`. Blocking.
pub fn decode_changes<R: Read + Seek, S: ChangeSink>(
    mut input: R,
    limits: &DecodeLimits,
    cache: &CachedIndex,
    shared: &SharedSplit,
    sink: &mut S,
) -> Result<Summary, DecodeError<S::Error>> {
    let mut collector = ChartCollector::new(limits, sink);
    match decode_split(&mut input, limits, cache, shared, &mut collector) {
        Ok(()) => Ok(collector.finish()),
        Err(StreamStop::Error(error)) => Err(error),
        Err(StreamStop::FullDecodeNeeded) => {
            drop(collector);
            // Always tell the sink that all charts follow.
            sink.start_over().map_err(DecodeError::Sink)?;
            super::decode(input, limits, sink)
        }
    }
}

enum StreamStop<E> {
    FullDecodeNeeded,
    Error(DecodeError<E>),
}

impl<E> From<DecodeError<E>> for StreamStop<E> {
    /// Errors of a slice lead to a full decode, which reports the right position.
    fn from(error: DecodeError<E>) -> Self {
        match error {
            DecodeError::Sink(_) | DecodeError::Read(_) => Self::Error(error),
            _ => Self::FullDecodeNeeded,
        }
    }
}

impl<E> From<SliceError> for StreamStop<E> {
    fn from(reason: SliceError) -> Self {
        match reason {
            SliceError::TooLarge => Self::FullDecodeNeeded,
            SliceError::Read(error) => Self::Error(DecodeError::Read(error)),
        }
    }
}

impl<E> From<std::io::Error> for StreamStop<E> {
    fn from(error: std::io::Error) -> Self {
        Self::Error(DecodeError::Read(error))
    }
}

fn decode_split<R: Read + Seek, S: ChangeSink>(
    input: &mut R,
    limits: &DecodeLimits,
    cache: &CachedIndex,
    shared: &SharedSplit,
    collector: &mut ChartCollector<'_, S>,
) -> Result<(), StreamStop<S::Error>> {
    let IndexStart { offset, first } = IndexStart::read(input)?;
    input.seek(SeekFrom::Start(offset))?;
    // It could be valid YAML, but the full decode rejects it with a better message.
    if matches!(first[0], None | Some(b'<')) {
        return Err(StreamStop::FullDecodeNeeded);
    }
    let is_json = first[0] == Some(b'{');
    let slices = shared.get(cache, limits, || {
        if is_json {
            json::split(input, offset, limits, cache)
        } else {
            splitter::split(input, offset, limits, cache)
        }
    });
    let slices = match slices {
        Ok(slices) => slices,
        Err(SplitError::UnsupportedLayout) => return Err(StreamStop::FullDecodeNeeded),
        Err(SplitError::Read(error)) => return Err(error.into()),
    };
    decode::decode_slices(&slices, ChartParser::new(input, limits, cache, is_json), collector)
}
