//! What has changed of an index that was cut: its charts are parsed one by one, each by itself.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;

use memchr::memchr;

use super::digest::{Digest, Digester};
use super::slices::{SLICE_BYTES, Slices};
use super::splitter::ChartSlice;
use super::{CacheEntry, CachedChart, CachedIndex, ChangeSink, Stop, lines};
use crate::helm::index::collector::Collector;
use crate::helm::index::error::{DecodeError, Position};
use crate::helm::index::yaml::{self, Item, fast_path as subset};
use crate::helm::index::{Chart, ChartStats, DecodeLimits, json};

/// The whole tells it better.
const SOMEWHERE: Position = Position { line: 1, column: 1 };

/// A chart that was parsed on its own.
struct Parsed {
    /// None if the chart was skipped entirely or is deprecated.
    chart: Option<Chart>,
    remembered: CacheEntry,
}

/// The reason why a chart could not be parsed on its own.
type NotParsed = Stop<Infallible>;

/// A collector for the versions of one chart.
type One<'v> = Collector<'v, Vec<Chart>>;

/// Hands all charts of a split index to the collector. Only charts that are not known are parsed.
pub(super) fn collect<R: Read + Seek, S: ChangeSink>(
    cuts: &[ChartSlice],
    mut parser: Parser<'_, R>,
    collector: &mut Collector<'_, S>,
) -> Result<(), Stop<S::Error>> {
    // The limit is not approached, so that the count need not be exact.
    let most = parser.limits.nodes / 10 * 9;
    let mut nodes: u64 = 0;
    let mut count = |account: &ChartStats| {
        // The key and the list of a chart are nodes too.
        nodes = nodes.saturating_add(account.nodes).saturating_add(2);
        if nodes > most { Err(Stop::Whole) } else { Ok(()) }
    };
    for cut in cuts {
        if let Some(known) = parser.known.get(cut) {
            count(&known.account)?;
            collector.add(&known.account);
            let sink = collector.sink();
            sink.unchanged(&cut.key, &known.account).map_err(DecodeError::Sink)?;
            continue;
        }
        let Parsed { chart, remembered } = parser.chart(cut).map_err(|reason| match reason {
            Stop::Error(DecodeError::Read(error)) => Stop::from(error),
            Stop::Error(_) | Stop::Whole => Stop::Whole,
        })?;
        count(&remembered.chart.account)?;
        collector.add(&remembered.chart.account);
        if let Some(chart) = chart {
            collector.sink().chart(chart).map_err(DecodeError::Sink)?;
        }
        collector.sink().remember(remembered).map_err(DecodeError::Sink)?;
    }
    Ok(())
}

/// Parses charts where they stand in an index.
pub(super) struct Parser<'c, R> {
    input: &'c mut R,
    limits: &'c DecodeLimits,
    known: &'c CachedIndex,
    is_json: bool,
    buffer: Vec<u8>,
}

impl<'c, R: Read + Seek> Parser<'c, R> {
    pub(super) const fn new(input: &'c mut R, limits: &'c DecodeLimits, known: &'c CachedIndex, is_json: bool) -> Self {
        Self {
            input,
            limits,
            known,
            is_json,
            buffer: Vec::new(),
        }
    }

    fn chart(&mut self, cut: &ChartSlice) -> Result<Parsed, NotParsed> {
        let mut charts = Vec::new();
        let mut collector = Collector::new(self.limits, &mut charts);
        collector.begin_chart(&cut.key, false, SOMEWHERE)?;
        let (nodes, times_are_confirmed) = match cut.items {
            None if self.is_json => self.json_versions(&cut.text, &mut collector)?,
            Some(column) => self.versions(&cut.text, column, &mut collector)?,
            // A key, and blank lines.
            None if cut.text.end - cut.text.start > SLICE_BYTES as u64 => return Err(Stop::Whole),
            None => (0, true),
        };
        let mut account = collector.end_chart()?;
        account.nodes = nodes;
        let masked = times_are_confirmed && !self.known.times_count;
        let digest = if cut.masked == masked {
            cut.digest
        } else {
            self.digest(cut, masked)?
        };
        let chart = CachedChart {
            digest,
            masked,
            account,
        };
        let key = cut.key.clone();
        Ok(Parsed {
            chart: charts.pop(),
            remembered: CacheEntry { key, chart },
        })
    }

    /// Reads the versions of a chart. Gives how many nodes they are, and whether all that looks like a time in them is one.
    fn versions(
        &mut self,
        text: &Range<u64>,
        column: usize,
        collector: &mut One<'_>,
    ) -> Result<(u64, bool), NotParsed> {
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
            collector.version(fields, SOMEWHERE)?;
        }
        Ok((nodes, times_are_confirmed))
    }

    /// The same in JSON, where keys are what they look like.
    fn json_versions(&mut self, text: &Range<u64>, collector: &mut One<'_>) -> Result<(u64, bool), NotParsed> {
        self.input.seek(SeekFrom::Start(text.start))?;
        let mut input = (&mut *self.input).take(text.end - text.start);
        json::versions(&mut input, collector)?;
        Ok((0, true))
    }

    /// The digest of a chart's text, with its times or without.
    fn digest(&mut self, cut: &ChartSlice, masked: bool) -> Result<Digest, NotParsed> {
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
