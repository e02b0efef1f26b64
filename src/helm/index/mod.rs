//! Decodes the index of a Helm repository in one pass, one chart at a time.
//!
//! ```text
//!  bytes ─► metered reader ─┬─► yaml: events, aliases ─┐              ┌─ entry: validation of a version
//!                           └─► json: raw versions ────┴─► collector ─┼─ semver, created
//!                                                              │      └─ chart: sort, count
//!                                                              ▼
//!                                                 Sink::chart, one at a time ─► Summary
//! ```
//!
//! Indexes are untrusted. An invalid entry is skipped and reported; [`DecodeLimits`] bound the cost of the whole index.
//! Both notations are parsed into [`node::Node`]s, so one set of rules serves both.

pub(super) mod chart;
mod chart_stats;
mod collector;
mod created;
pub(super) mod entry;
mod error;
mod incremental;
pub(super) mod json;
mod limits;
mod metadata;
mod metered_reader;
pub(super) mod node;
#[cfg(test)]
mod tests;
pub(super) mod yaml;

use std::convert::Infallible;
use std::io::{Read, Seek, SeekFrom};

use serde::{Deserialize, Serialize};

pub(crate) use super::semver::is_version;
use crate::text::{printable, truncate};
pub use chart_stats::ChartStats;
use collector::ChartCollector;
pub use error::{DecodeError, Position};
pub use incremental::{
    CacheEntry, CachedChart, CachedIndex, ChangeSink, Digest, DigestKey, SharedSplit, decode_changes,
};
pub use limits::DecodeLimits;
pub use metadata::{ChartMetadata, Versions, chart, metadata, newest_first};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexMaintainer {
    pub name: String,
    pub email: Option<String>,
    pub url: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// As written: not empty, at most 128 bytes, no control characters.
    pub version: String,
    pub app_version: String,
    /// RFC 3339 as Go prints it; `0001-01-01T00:00:00Z` if missing.
    pub created: String,
    pub digest: String,
    /// As written, absolute or relative. Never an empty list, because Kubeapps reads the first element.
    pub urls: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chart {
    /// From the newest version, not the key under `entries`, as in Kubeapps. At most 250 bytes, no control characters.
    pub name: String,
    pub description: String,
    pub home: String,
    pub icon: String,
    pub category: String,
    /// None if missing; an empty list stays empty.
    pub keywords: Option<Vec<String>>,
    pub maintainers: Vec<IndexMaintainer>,
    /// None if missing; an empty list stays empty.
    pub sources: Option<Vec<String>>,
    /// Newest first. Equal versions keep the file order, invalid versions come last.
    pub versions: Vec<Version>,
}

/// Receives the charts of an index while it is decoded. An error ends the decode with [`DecodeError::Sink`].
pub trait Sink {
    type Error;

    /// Receives a chart that is neither skipped nor deprecated.
    fn chart(&mut self, chart: Chart) -> Result<(), Self::Error>;

    /// Receives a chart whose newest version is deprecated.
    fn deprecated(&mut self, chart: Chart) -> Result<(), Self::Error> {
        drop(chart);
        Ok(())
    }

    /// Discards all charts so far; they follow again. Happens at most three times per index: for duplicate keys, for
    /// YAML that starts like JSON, and for an unsupported layout of an incremental decode.
    fn start_over(&mut self) -> Result<(), Self::Error>;
}

impl Sink for Vec<Chart> {
    type Error = Infallible;

    fn chart(&mut self, chart: Chart) -> Result<(), Infallible> {
        self.push(chart);
        Ok(())
    }

    fn start_over(&mut self) -> Result<(), Infallible> {
        self.clear();
        Ok(())
    }
}

/// Counts of an index, without skipped entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    pub names: u64,
    pub versions: u64,
    pub deprecated: u64,
    pub duplicates: u64,
    pub skipped: Skipped,
    /// Hex SHA-256 over the sorted names, versions and digests of all charts, including deprecated ones. Independent of
    /// order, `created` and `generated`. For a registry it covers the tag lists.
    pub digest: String,
}

impl Summary {
    fn add(&mut self, chart: &ChartStats) {
        self.names += u64::from(chart.digest.is_some());
        self.versions += chart.versions;
        self.duplicates += chart.duplicates;
        self.deprecated += u64::from(chart.deprecated);
        self.skipped.add_all(&chart.skipped);
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub count: u64,
    pub first: Vec<Skip>,
}

impl Skipped {
    pub const MAX_LISTED: usize = 20;

    pub fn add(&mut self, chart: &str, version: Option<&str>, reason: &str) {
        self.count += 1;
        if self.first.len() < Self::MAX_LISTED {
            let shown = |text: &str| truncate(&printable(text), Skip::TEXT_BYTES);
            self.first.push(Skip {
                chart: shown(chart),
                version: version.map(shown),
                reason: shown(reason),
            });
        }
    }

    fn add_all(&mut self, others: &Self) {
        self.count += others.count;
        let remaining = Self::MAX_LISTED.saturating_sub(self.first.len());
        self.first.extend(others.first.iter().take(remaining).cloned());
    }
}

/// An invalid entry. Its texts are printable and truncated to [`Skip::TEXT_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    pub chart: String,
    /// None if the whole chart is skipped or the version cannot be read.
    pub version: Option<String>,
    pub reason: String,
}

impl Skip {
    pub const TEXT_BYTES: usize = 1024;
}

/// Decodes an index from its beginning and passes its charts to the sink. Blocking (about 30 ms per megabyte of YAML).
/// An error rejects the whole index. The sink must discard all charts then.
pub fn decode<R: Read + Seek, S: Sink>(
    mut input: R,
    limits: &DecodeLimits,
    sink: &mut S,
) -> Result<Summary, DecodeError<S::Error>> {
    let mut collector = ChartCollector::new(limits, sink);
    let start = IndexStart::read(&mut input).map_err(DecodeError::Read)?;
    match start.first {
        [None, _] => return Err(DecodeError::NotAnIndex("the response is empty".to_owned())),
        // `<<` is a YAML merge key or a git conflict marker.
        [Some(b'<'), second] if second != Some(b'<') => {
            let reason = "the response is an HTML or XML page";
            return Err(DecodeError::NotAnIndex(reason.to_owned()));
        }
        [Some(b'{'), _] => match run_passes(&mut input, start.offset, &mut collector, json::read) {
            Err(DecodeError::InvalidJson { message, position }) => {
                collector.start_over()?;
                run_passes(&mut input, start.offset, &mut collector, yaml::read)
                    .map_err(|yaml_error| furthest_error(message, position, yaml_error))?;
            }
            result => result?,
        },
        _ => run_passes(&mut input, start.offset, &mut collector, yaml::read)?,
    }
    Ok(collector.finish())
}

/// Runs the parser once, or twice if there are duplicate keys.
fn run_passes<'a, R: Read + Seek, S: Sink>(
    input: &mut R,
    offset: u64,
    collector: &mut ChartCollector<'a, S>,
    read: impl Fn(&mut R, &mut ChartCollector<'a, S>) -> Result<TopLevel, DecodeError<S::Error>>,
) -> Result<(), DecodeError<S::Error>> {
    input.seek(SeekFrom::Start(offset)).map_err(DecodeError::Read)?;
    read(input, collector)?.check()?;
    if collector.needs_second_pass() {
        collector.begin_second_pass()?;
        input.seek(SeekFrom::Start(offset)).map_err(DecodeError::Read)?;
        read(input, collector)?.check()?;
    }
    Ok(())
}

/// Parses with both parsers, to compare them in a fuzz target. Returns None if the fast path does not support the text.
#[doc(hidden)]
#[must_use]
pub fn parse_with_both_parsers(slice: &[u8], limits: &DecodeLimits) -> Option<[String; 2]> {
    let column = slice.iter().take_while(|byte| **byte == b' ').count();
    let by_lines = yaml::fast_path::read(slice, column, limits)?;
    let by_parser = match yaml::item(slice, limits) {
        Ok(item) => format!("{item:?}"),
        Err(yaml::ItemError::ParserError(error)) => error.to_string(),
        Err(other) => format!("{other:?}"),
    };
    Some([format!("{:?}", Ok::<_, yaml::InvalidItem>(by_lines)), by_parser])
}

/// Returns the error of the parser that got further, which is probably the intended notation.
fn furthest_error<E>(message: String, position: Position, yaml_error: DecodeError<E>) -> DecodeError<E> {
    match yaml_error {
        DecodeError::InvalidYaml { position: reached, .. } if reached <= position => {
            DecodeError::InvalidJson { message, position }
        }
        other => other,
    }
}

struct IndexStart {
    offset: u64,
    /// The first two bytes, starting at the first that is not white space.
    first: [Option<u8>; 2],
}

impl IndexStart {
    fn read(input: &mut (impl Read + Seek)) -> std::io::Result<Self> {
        const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
        input.rewind()?;
        let mut bytes = std::io::BufReader::new(input).bytes();
        let mut head = [0; 3];
        let mut first = [None; 2];
        let mut count = 0_usize;
        while let Some(byte) = bytes.next().transpose()? {
            if let Some(place) = head.get_mut(count) {
                *place = byte;
            }
            count += 1;
            if count == BYTE_ORDER_MARK.len() && head == BYTE_ORDER_MARK {
                first = [None; 2];
            } else if first[0].is_some() {
                first[1] = first[1].or(Some(byte));
            } else if !byte.is_ascii_whitespace() {
                first[0] = Some(byte);
            }
            if first[1].is_some() && count >= BYTE_ORDER_MARK.len() {
                break;
            }
        }
        let mark = head == BYTE_ORDER_MARK;
        let offset = if mark { BYTE_ORDER_MARK.len() as u64 } else { 0 };
        Ok(Self { offset, first })
    }
}

/// The top-level structure, which tells an index from other documents.
#[derive(Debug, Default)]
struct TopLevel {
    has_api_version: bool,
    entries: Option<Entries>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entries {
    Empty,
    NonEmpty,
}

impl TopLevel {
    /// An index without charts must have an `apiVersion`.
    fn check<E>(&self) -> Result<(), DecodeError<E>> {
        match self.entries {
            None => Err(DecodeError::NotAnIndex("it has no entries".to_owned())),
            Some(Entries::Empty) if !self.has_api_version => {
                let reason = "its entries are empty and it has no apiVersion";
                Err(DecodeError::NotAnIndex(reason.to_owned()))
            }
            Some(_) => Ok(()),
        }
    }
}
