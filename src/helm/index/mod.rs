//! The index of a Helm repository: one pass over its bytes, one chart at a time.
//!
//! ```text
//!  bytes ─► input (metered) ─┬─► yaml: events, aliases ─┐                ┌─ entry: rules of a version
//!                            └─► json: raw versions ────┴─► collect ─────┼─ semver, created
//!                                                              │         └─ chart: sort, count
//!                                                              ▼
//!                                                 Sink::chart, one at a time ─► Summary
//! ```
//!
//! Anybody may publish an index, so nothing in it is trusted: a bad entry is skipped, counted and named and never fails
//! the whole; what the whole may cost has [`DecodeLimits`]. Both notations are read into the same [`node::Node`]s, so
//! one set of rules serves both.

mod account;
pub(super) mod chart;
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
pub use account::ChartStats;
use collector::Collector;
pub use error::{DecodeError, Position};
pub use incremental::{CacheEntry, CachedChart, CachedIndex, ChangeSink, Digest, Secret, SharedSplit, decode_changes};
pub use limits::DecodeLimits;
pub use metadata::{Metadata, Versions, chart, metadata, newest_first};

/// Who maintains a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintainer {
    /// Never empty.
    pub name: String,
    /// None when empty.
    pub email: Option<String>,
    /// None when empty.
    pub url: Option<String>,
}

/// One version of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// As it is written: never empty, at most 128 bytes, no control characters.
    pub version: String,
    /// Empty if there is none.
    pub app_version: String,
    /// RFC 3339 as Go prints it; `0001-01-01T00:00:00Z` if there is none.
    pub created: String,
    /// As the index gives it, unchecked. Empty if there is none.
    pub digest: String,
    /// As they are written, absolute or relative. None rather than empty: readers of the catalogue take the first of a list.
    pub urls: Option<Vec<String>>,
}

/// One chart: what its newest version says about it, and all its versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chart {
    /// Of the newest version, as it is written; the key under `entries` is not looked at, as in Kubeapps. At most 250 bytes,
    /// no control characters, otherwise anything.
    pub name: String,
    /// Empty if there is none.
    pub description: String,
    /// Empty if there is none.
    pub home: String,
    /// URL of the icon. Empty if there is none.
    pub icon: String,
    /// The annotation `category`. Empty if there is none.
    pub category: String,
    /// None when absent; an empty list stays one.
    pub keywords: Option<Vec<String>>,
    /// Those that have a name.
    pub maintainers: Vec<Maintainer>,
    /// None when absent; an empty list stays one.
    pub sources: Option<Vec<String>>,
    /// Newest first; equal versions, and what is no version (behind all others), in the order of the file.
    pub versions: Vec<Version>,
}

/// Takes the charts of an index as they come.
pub trait Sink {
    /// Why it takes no more.
    type Error;

    /// Takes a chart that is to be in the catalogue: it is neither skipped nor deprecated.
    ///
    /// # Errors
    /// Ends the decoding with [`DecodeError::Sink`].
    fn chart(&mut self, chart: Chart) -> Result<(), Self::Error>;

    /// All charts so far are void and come again: a key of `entries` stands twice and the last one counts, what began like JSON
    /// turned out to be YAML, or an index can't be told by its parts. Happens at most three times for an index.
    ///
    /// # Errors
    /// Ends the decoding with [`DecodeError::Sink`].
    fn start_over(&mut self) -> Result<(), Self::Error>;
}

/// Keeps all charts, for indexes that are known to be small.
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

/// What an index held. All counts leave out what was skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Charts, the deprecated ones included.
    pub names: u64,
    /// Versions of all charts, the deprecated ones included.
    pub versions: u64,
    /// Charts left out because their newest version is deprecated.
    pub deprecated: u64,
    /// Versions that stand more than once in their chart, each further one counted.
    pub duplicates: u64,
    /// What could not be used.
    pub skipped: Skipped,
    /// Hex SHA-256 over the sorted names, versions and digests of all charts, the deprecated ones included: neither order
    /// nor `created` nor `generated` moves it. Of a registry it is over what the lists of tags offer.
    pub digest: String,
}

impl Summary {
    /// Counts a chart.
    fn add(&mut self, chart: &ChartStats) {
        self.names += u64::from(chart.digest.is_some());
        self.versions += chart.versions;
        self.duplicates += chart.duplicates;
        self.deprecated += u64::from(chart.deprecated);
        self.skipped.add_all(&chart.skipped);
    }
}

/// Entries that could not be used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// All of them.
    pub count: u64,
    /// The first [`Skipped::NAMED`].
    pub first: Vec<Skip>,
}

impl Skipped {
    /// How many are named.
    pub const NAMED: usize = 20;

    /// Counts one more, and names it if it is among the first.
    pub fn add(&mut self, chart: &str, version: Option<&str>, reason: &str) {
        self.count += 1;
        if self.first.len() < Self::NAMED {
            let shown = |text: &str| truncate(&printable(text), Skip::TEXT_BYTES);
            self.first.push(Skip {
                chart: shown(chart),
                version: version.map(shown),
                reason: shown(reason),
            });
        }
    }
}

impl Skipped {
    fn add_all(&mut self, others: &Self) {
        self.count += others.count;
        let room = Self::NAMED.saturating_sub(self.first.len());
        self.first.extend(others.first.iter().take(room).cloned());
    }
}

/// One entry that could not be used. Its texts are printable and have at most [`Skip::TEXT_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skip {
    /// The key under `entries`.
    pub chart: String,
    /// The version; none if the whole chart is skipped or the version is what can't be read.
    pub version: Option<String>,
    /// Why, as a sentence about the entry.
    pub reason: String,
}

impl Skip {
    /// Bytes that each text has at most.
    pub const TEXT_BYTES: usize = 1024;
}

/// Reads an index, YAML or JSON, from its beginning, and hands its charts to the sink one by one. Blocks while it reads
/// and computes (about 30 ms a megabyte of YAML), so it belongs on a thread that may.
///
/// # Errors
/// [`DecodeError`] when the index as a whole is refused; charts that the sink has got by then are void.
pub fn decode<R: Read + Seek, S: Sink>(
    mut input: R,
    limits: &DecodeLimits,
    sink: &mut S,
) -> Result<Summary, DecodeError<S::Error>> {
    let mut collector = Collector::new(limits, sink);
    let start = Start::of(&mut input).map_err(DecodeError::Read)?;
    match start.first {
        [None, _] => return Err(DecodeError::NotAnIndex("the answer is empty".to_owned())),
        // `<<` would be a merge key, or what git leaves behind after a conflict.
        [Some(b'<'), second] if second != Some(b'<') => {
            return Err(DecodeError::NotAnIndex("the answer is an HTML or XML page".to_owned()));
        }
        [Some(b'{'), _] => match passes(&mut input, start.offset, &mut collector, json::read) {
            Err(DecodeError::InvalidJson { message, position }) => {
                collector.start_over()?;
                passes(&mut input, start.offset, &mut collector, yaml::read)
                    .map_err(|yaml_error| further(message, position, yaml_error))?;
            }
            result => result?,
        },
        _ => passes(&mut input, start.offset, &mut collector, yaml::read)?,
    }
    Ok(collector.finish())
}

/// Reads the index once, and once more if that is how its charts can be told.
fn passes<'a, R: Read + Seek, S: Sink>(
    input: &mut R,
    offset: u64,
    collector: &mut Collector<'a, S>,
    read: impl Fn(&mut R, &mut Collector<'a, S>) -> Result<Shape, DecodeError<S::Error>>,
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

/// Reads one version of a chart, as it stands in the list of its chart, by the parser and by the faster way for Helm's own
/// style, and shows what each makes of it: for the fuzz target, which wants them to be equal. None: the faster way leaves
/// it to the parser.
#[doc(hidden)]
#[must_use]
pub fn version_by_both_ways(slice: &[u8], limits: &DecodeLimits) -> Option<[String; 2]> {
    let column = slice.iter().take_while(|byte| **byte == b' ').count();
    let by_lines = yaml::fast_path::read(slice, column, limits)?;
    let by_parser = match yaml::item(slice, limits) {
        Ok(item) => format!("{item:?}"),
        Err(yaml::NoItem::Refused(error)) => error.to_string(),
        Err(other) => format!("{other:?}"),
    };
    Some([format!("{:?}", Ok::<_, yaml::NoMap>(by_lines)), by_parser])
}

/// Of two refusals of what begins like JSON, the one that got further is about what its publisher meant to write.
fn further<E>(message: String, position: Position, yaml_error: DecodeError<E>) -> DecodeError<E> {
    match yaml_error {
        DecodeError::InvalidYaml { position: reached, .. } if reached <= position => {
            DecodeError::InvalidJson { message, position }
        }
        other => other,
    }
}

/// How an index begins.
struct Start {
    /// Where, behind a byte order mark.
    offset: u64,
    /// Its first byte that is no white space, and the one behind it.
    first: [Option<u8>; 2],
}

impl Start {
    fn of(input: &mut (impl Read + Seek)) -> std::io::Result<Self> {
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
        let offset = if head == BYTE_ORDER_MARK {
            BYTE_ORDER_MARK.len() as u64
        } else {
            0
        };
        Ok(Self { offset, first })
    }
}

/// What the top of a document looks like: whether it is an index at all.
#[derive(Debug, Default)]
struct Shape {
    has_api_version: bool,
    entries: Option<Entries>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entries {
    Nothing,
    Something,
}

impl Shape {
    /// An index without charts has to say that it is one; one with charts need not.
    fn check<E>(&self) -> Result<(), DecodeError<E>> {
        match self.entries {
            None => Err(DecodeError::NotAnIndex("it has no entries".to_owned())),
            Some(Entries::Nothing) if !self.has_api_version => Err(DecodeError::NotAnIndex(
                "its entries are empty and it has no apiVersion".to_owned(),
            )),
            Some(_) => Ok(()),
        }
    }
}
