//! Only what has changed in an index is parsed.
//!
//! ```text
//!  bytes ─► cut ─► charts with digests ─┬─ known: what is remembered of it is counted ─────────────────┬─► Summary
//!                                       └─ else: its versions one by one ─► yaml ─► collect ─► the sink ┘
//!             └─ in another style, or a part that does not parse by itself: all of it is decoded as a whole
//! ```
//! Whatever comes out is what [`decode`](super::decode) makes of the same bytes, but for the time `created` of versions in charts
//! that are known. Wherever that might be otherwise, the whole decides: nothing is refused or skipped here that it would take.

mod cut;
mod digest;
mod ends;
mod frame;
mod json;
mod lines;
mod shared;
mod sieve;
mod slices;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::ops::Range;

use memchr::memchr;
use serde::{Deserialize, Serialize};

use self::cut::{Cut, NotCut, cut};
use self::digest::Digester;
pub use self::digest::{Digest, Secret};
pub use self::shared::SharedCuts;
pub use self::sieve::{Sieve, Sifted};
use self::slices::{NoSlice, SLICE_BYTES, Slices};
use super::collect::Collector;
use super::error::{DecodeError, Position};
use super::yaml::{self, Item, subset};
use super::{DecodeLimits, Sink, Skipped, Start, Summary};

/// What one chart adds to the [`Summary`] of its index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its versions.
    pub versions: u64,
    /// Those that stand more than once, each further one counted.
    pub duplicates: u64,
    /// Its newest version is deprecated, so it is left out.
    pub deprecated: bool,
    /// Over its name, its versions and their digests. Nothing: there is no chart, all of it was skipped.
    #[serde(with = "hex")]
    pub digest: Option<[u8; 32]>,
    /// What of it could not be used.
    pub skipped: Skipped,
    /// How many nodes of YAML its versions are.
    pub nodes: u64,
}

/// A digest in JSON.
mod hex {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de};

    pub(super) fn serialize<S: Serializer>(digest: &Option<[u8; 32]>, serializer: S) -> Result<S::Ok, S::Error> {
        digest.map(|digest| crate::text::hex(&digest)).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<[u8; 32]>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let digest = text.map(|text| crate::text::from_hex(&text).ok_or_else(|| de::Error::custom("no digest")));
        digest.transpose()
    }
}

/// What is remembered of an index from the last time that it was decoded.
#[derive(Debug, Clone)]
pub struct Known {
    /// The key of the digests, those to come too.
    pub secret: Secret,
    /// Whether the times of versions count: where something else than the row depends on them, such as a filter.
    pub times_count: bool,
    /// By their keys under `entries`.
    pub charts: HashMap<String, KnownChart>,
}

/// What is remembered of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownChart {
    /// Of its text.
    pub digest: Digest,
    /// Whether the times of its versions were left out of the digest.
    pub masked: bool,
    /// What came of that text.
    pub account: Account,
}

impl Known {
    /// Whether the chart is as it is remembered.
    fn has(&self, cut: &Cut) -> bool {
        let known = self.charts.get(&cut.key);
        known.is_some_and(|known| known.digest == cut.digest && known.masked == cut.masked)
    }
}

/// A chart as it is to be remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// Under `entries`.
    pub key: String,
    /// What is remembered.
    pub chart: KnownChart,
}

/// Takes the charts of an index, and what is remembered of them, in the order of the index.
///
/// [`start_over`](Sink::start_over) tells that the index can't be told by its parts, also where nothing was told of it yet. After it
/// nothing counts that it has got so far, known charts and what was to be remembered
/// included; then no chart is known, and nothing is to be remembered.
pub trait ChangeSink: Sink {
    /// The chart under this key is as it is remembered.
    ///
    /// # Errors
    /// Ends the decoding with [`DecodeError::Sink`].
    fn unchanged(&mut self, key: &str, account: &Account) -> Result<(), Self::Error>;

    /// What is to be remembered of the chart that came last, or of one that there is no chart of.
    ///
    /// # Errors
    /// Ends the decoding with [`DecodeError::Sink`].
    fn remember(&mut self, chart: Remembered) -> Result<(), Self::Error>;
}

/// Reads an index as [`decode`](super::decode) does, but of charts that are known only their text, and not even that where it was
/// `cut` before. Blocks while it reads and computes, so it belongs on a thread that may.
///
/// # Errors
/// As of [`decode`](super::decode).
pub fn decode_changes<R: Read + Seek, S: ChangeSink>(
    input: R,
    limits: &DecodeLimits,
    known: &Known,
    cut: &SharedCuts,
    sink: &mut S,
) -> Result<Summary, DecodeError<S::Error>> {
    decode_by(input, limits, known, Rules::ALL, cut, sink)
}

/// The same of an index that was cut while it came, which has to be the one of which this is known. Nothing: the whole is needed, and
/// nothing counts that the sink has got.
///
/// # Errors
/// [`DecodeError::Sink`], and [`DecodeError::Read`] where the kept text can't be read.
pub fn decode_sifted<S: ChangeSink>(
    sifted: &mut Sifted,
    limits: &DecodeLimits,
    known: &Known,
    sink: &mut S,
) -> Result<Option<Summary>, DecodeError<S::Error>> {
    decode_sifted_by(sifted, limits, known, Rules::ALL, sink)
}

fn decode_sifted_by<S: ChangeSink>(
    sifted: &mut Sifted,
    limits: &DecodeLimits,
    known: &Known,
    rules: Rules,
    sink: &mut S,
) -> Result<Option<Summary>, DecodeError<S::Error>> {
    let Sifted { cuts, is_json, texts } = sifted;
    let mut collector = Collector::new(limits, sink);
    let mut changes = Changes::new(texts, limits, known, *is_json, rules, &mut collector);
    match cuts.iter().try_for_each(|cut| changes.chart(cut)) {
        Ok(()) => Ok(Some(collector.finish())),
        Err(Stop::Whole) => Ok(None),
        Err(Stop::Error(error)) => Err(error),
    }
}

/// The rules that make it safe. All hold always, but in the tests that see each of them needed.
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// Head and foot parse by themselves.
    frame: bool,
    /// No chart's key comes twice.
    distinct_keys: bool,
    /// Keys stand at one column, versions at one column of their chart, and nothing else does.
    columns: bool,
    /// A time is left out only where the parser agrees that it is one.
    confirmed_times: bool,
}

impl Rules {
    const ALL: Self = Self {
        frame: true,
        distinct_keys: true,
        columns: true,
        confirmed_times: true,
    };
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

fn decode_by<R: Read + Seek, S: ChangeSink>(
    mut input: R,
    limits: &DecodeLimits,
    known: &Known,
    rules: Rules,
    shared: &SharedCuts,
    sink: &mut S,
) -> Result<Summary, DecodeError<S::Error>> {
    let mut collector = Collector::new(limits, sink);
    match changes(&mut input, limits, known, rules, shared, &mut collector) {
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

fn changes<R: Read + Seek, S: ChangeSink>(
    input: &mut R,
    limits: &DecodeLimits,
    known: &Known,
    rules: Rules,
    shared: &SharedCuts,
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
            cut(input, offset, limits, known, rules)?.framed(limits, rules)
        }
    });
    let charts = match cuts {
        Ok(charts) => charts,
        Err(NotCut::Style) => return Err(Stop::Whole),
        Err(NotCut::Read(error)) => return Err(error.into()),
    };
    let mut changes = Changes::new(input, limits, known, is_json, rules, collector);
    charts.iter().try_for_each(|cut| changes.chart(cut))
}

struct Changes<'c, 'a, R, S: Sink> {
    input: &'c mut R,
    limits: &'c DecodeLimits,
    known: &'c Known,
    is_json: bool,
    rules: Rules,
    collector: &'c mut Collector<'a, S>,
    buffer: Vec<u8>,
    nodes: u64,
}

/// The whole tells it better.
const SOMEWHERE: Position = Position { line: 1, column: 1 };

impl<'c, 'a, R: Read + Seek, S: ChangeSink> Changes<'c, 'a, R, S> {
    fn new(
        input: &'c mut R,
        limits: &'c DecodeLimits,
        known: &'c Known,
        is_json: bool,
        rules: Rules,
        collector: &'c mut Collector<'a, S>,
    ) -> Self {
        Self {
            input,
            limits,
            known,
            is_json,
            rules,
            collector,
            buffer: Vec::new(),
            nodes: 0,
        }
    }

    fn chart(&mut self, cut: &Cut) -> Result<(), Stop<S::Error>> {
        if let Some(known) = self.known.charts.get(&cut.key).filter(|_| self.known.has(cut)) {
            self.count(known.account.nodes)?;
            return Ok(self.collector.add_known(&cut.key, &known.account)?);
        }
        self.collector.begin_chart(&cut.key, false, SOMEWHERE)?;
        let (nodes, times_are_confirmed) = match cut.items {
            None if self.is_json => self.json_versions(&cut.text)?,
            Some(column) => self.versions(&cut.text, column)?,
            // A key, and blank lines.
            None if cut.text.end - cut.text.start > SLICE_BYTES as u64 => return Err(Stop::Whole),
            None => (0, true),
        };
        self.count(nodes)?;
        let mut account = self.collector.end_chart()?;
        account.nodes = nodes;
        let masked = (times_are_confirmed || !self.rules.confirmed_times) && !self.known.times_count;
        let digest = match (cut.masked, masked) {
            (true, false) | (false, true) => self.digest(cut, masked)?,
            _ => cut.digest,
        };
        let chart = KnownChart {
            digest,
            masked,
            account,
        };
        let key = cut.key.clone();
        Ok(self.collector.remember(Remembered { key, chart })?)
    }

    /// The key and the list of a chart are nodes too. The limit is kept well clear of, so that it need not be counted to one.
    fn count(&mut self, nodes: u64) -> Result<(), Stop<S::Error>> {
        self.nodes = self.nodes.saturating_add(nodes).saturating_add(2);
        if self.nodes > self.limits.nodes / 10 * 9 {
            return Err(Stop::Whole);
        }
        Ok(())
    }

    /// Reads the versions of a chart. Gives how many nodes they are, and whether all that looks like a time in them is one.
    fn versions(&mut self, text: &Range<u64>, column: usize) -> Result<(u64, bool), Stop<S::Error>> {
        self.input.seek(SeekFrom::Start(text.start))?;
        let input = (&mut *self.input).take(text.end - text.start);
        let mut slices = Slices::new(input, column, &mut self.buffer);
        slices.begin()?;
        let (mut nodes, mut times_are_confirmed) = (0, true);
        while let Some(slice) = slices.next()? {
            // To the parser it ends a line, to the cutter it does not.
            if memchr(b'\r', slice).is_some() {
                return Err(Stop::Whole);
            }
            let read = match subset::read(slice, column, self.limits) {
                Some(item) => Ok(item),
                // Anchors too: what aliases stand for is bounded for all of them together.
                None => yaml::item(slice, self.limits).map_err(|_| Stop::Whole)?,
            };
            let fields = match read {
                Ok(Item {
                    fields,
                    nodes: of_version,
                    created_line,
                }) => {
                    nodes += of_version;
                    times_are_confirmed &= has_only_this_time(slice, column + 2, created_line);
                    Ok(fields)
                }
                Err(no_map) => {
                    nodes += no_map.nodes;
                    times_are_confirmed &= has_only_this_time(slice, column + 2, None);
                    Err(no_map.reason)
                }
            };
            self.collector.version(fields, SOMEWHERE)?;
        }
        Ok((nodes, times_are_confirmed))
    }

    /// The same in JSON, where keys are what they look like.
    fn json_versions(&mut self, text: &Range<u64>) -> Result<(u64, bool), Stop<S::Error>> {
        self.input.seek(SeekFrom::Start(text.start))?;
        let mut input = (&mut *self.input).take(text.end - text.start);
        super::json::versions(&mut input, self.collector)?;
        Ok((0, true))
    }

    /// The digest of a chart's text, with its times or without.
    fn digest(&mut self, cut: &Cut, masked: bool) -> Result<Digest, Stop<S::Error>> {
        use std::io::BufRead as _;
        self.input.seek(SeekFrom::Start(cut.text.start))?;
        let mut input = BufReader::new((&mut *self.input).take(cut.text.end - cut.text.start));
        let mut digester = Digester::new(&self.known.secret);
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line)? > 0 {
            let time = cut.items.filter(|_| masked);
            match time.and_then(|column| lines::created(&line, column + 2)) {
                Some(time) => {
                    digester.text(&line[..time.start]);
                    digester.mask();
                    digester.text(&line[time.end..]);
                }
                None => digester.text(&line),
            }
            line.clear();
        }
        Ok(digester.finish())
    }
}

/// Whether the only line of a version that looks like a time is the one that the parser has found, if any does.
fn has_only_this_time(slice: &[u8], column: usize, found: Option<usize>) -> bool {
    let lines = slice.split_inclusive(|byte| *byte == b'\n').enumerate();
    let mut times = lines.filter(|(_, line)| lines::created(line, column).is_some());
    match (times.next(), times.next()) {
        (None, _) => true,
        (Some((line, _)), None) => found == Some(line),
        _ => false,
    }
}
