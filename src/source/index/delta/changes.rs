//! What has changed of an index that was cut: its charts are parsed one by one, each by itself.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use memchr::memchr;

use super::cut::Cut;
use super::digest::{Digest, Digester, Secret};
use super::slices::{SLICE_BYTES, Slices};
use super::{ChangeSink, Known, KnownChart, Remembered, Stop, lines};
use crate::source::index::collect::Collector;
use crate::source::index::error::{DecodeError, Position};
use crate::source::index::yaml::{self, Item, subset};
use crate::source::index::{Chart, DecodeLimits, Sink, json};

/// The whole tells it better.
const SOMEWHERE: Position = Position { line: 1, column: 1 };

/// A chart that was parsed by itself.
#[derive(Clone)]
pub(super) struct Parsed {
    /// Nothing: all of it was skipped, or it is deprecated.
    chart: Option<Chart>,
    /// What is to be remembered of it, what it adds to the summary included.
    remembered: Remembered,
}

impl Parsed {
    /// How much memory it takes, about.
    pub(super) fn bytes(&self) -> usize {
        /// What an allocation takes beside what is in it, and what stands around all of it.
        const BESIDE: usize = 32;
        const AROUND: usize = 1024;
        let text = |text: &String| size_of::<String>() + text.len() + BESIDE;
        let texts = |texts: &Option<Vec<String>>| texts.iter().flatten().map(text).sum::<usize>();
        let Some(chart) = &self.chart else { return AROUND };
        let head = [
            &chart.name,
            &chart.description,
            &chart.home,
            &chart.icon,
            &chart.category,
        ];
        let maintainers = chart
            .maintainers
            .iter()
            .map(|by| text(&by.name) + by.email.as_ref().map_or(0, text));
        let versions = chart.versions.iter().map(|version| {
            let texts_of_it = [
                &version.version,
                &version.app_version,
                &version.created,
                &version.digest,
            ];
            texts_of_it.map(text).iter().sum::<usize>() + size_of_val(&version.urls) + texts(&version.urls)
        });
        let lists = texts(&chart.keywords) + texts(&chart.sources) + maintainers.sum::<usize>();
        AROUND + head.map(text).iter().sum::<usize>() + lists + versions.sum::<usize>()
    }
}

/// Why a chart could not be parsed by itself.
pub(super) type NotParsed = Stop<Infallible>;

/// What takes the versions of one chart.
type One<'v> = Collector<'v, Vec<Chart>>;

/// Tells of an index by what is known of it and by what is not.
pub(super) struct Changes<'c, 'a, S: Sink> {
    known: &'c Known,
    limits: &'c DecodeLimits,
    collector: &'c mut Collector<'a, S>,
    nodes: u64,
}

impl<'c, 'a, S: ChangeSink> Changes<'c, 'a, S> {
    pub(super) const fn new(known: &'c Known, limits: &'c DecodeLimits, collector: &'c mut Collector<'a, S>) -> Self {
        Self {
            known,
            limits,
            collector,
            nodes: 0,
        }
    }

    /// Takes all charts, by `parse` those that are not known.
    pub(super) fn take(
        mut self,
        cuts: &[Cut],
        mut parse: impl FnMut(&Cut) -> Result<Arc<Parsed>, NotParsed>,
    ) -> Result<(), Stop<S::Error>> {
        for cut in cuts {
            if let Some(known) = self.known.get(cut) {
                self.count(known.account.nodes)?;
                self.collector.add_known(&cut.key, &known.account)?;
                continue;
            }
            let parsed = parse(cut).map_err(|reason| match reason {
                Stop::Error(DecodeError::Read(error)) => Stop::from(error),
                Stop::Error(_) | Stop::Whole => Stop::Whole,
            })?;
            self.count(parsed.remembered.chart.account.nodes)?;
            let Parsed { chart, remembered } = Arc::unwrap_or_clone(parsed);
            self.collector.add_parsed(chart, &remembered.chart.account)?;
            self.collector.remember(remembered)?;
        }
        Ok(())
    }

    /// The key and the list of a chart are nodes too. The limit is kept well clear of, so that it need not be counted to one.
    fn count(&mut self, nodes: u64) -> Result<(), Stop<S::Error>> {
        self.nodes = self.nodes.saturating_add(nodes).saturating_add(2);
        if self.nodes > self.limits.nodes / 10 * 9 {
            return Err(Stop::Whole);
        }
        Ok(())
    }
}

/// Parses charts where they stand in an index.
pub(super) struct Parser<'c, R> {
    input: &'c mut R,
    limits: &'c DecodeLimits,
    /// Of what is known no more, so that others may have what was parsed.
    secret: Secret,
    times_count: bool,
    is_json: bool,
    buffer: Vec<u8>,
}

impl<'c, R: Read + Seek> Parser<'c, R> {
    pub(super) const fn new(input: &'c mut R, limits: &'c DecodeLimits, known: &'c Known, is_json: bool) -> Self {
        Self {
            input,
            limits,
            secret: known.secret,
            times_count: known.times_count,
            is_json,
            buffer: Vec::new(),
        }
    }

    /// Parses a chart.
    pub(super) fn chart(&mut self, cut: &Cut) -> Result<Parsed, NotParsed> {
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
        let masked = times_are_confirmed && !self.times_count;
        let digest = if cut.masked == masked {
            cut.digest
        } else {
            self.digest(cut, masked)?
        };
        let chart = KnownChart {
            digest,
            masked,
            account,
        };
        let key = cut.key.clone();
        Ok(Parsed {
            chart: charts.pop(),
            remembered: Remembered { key, chart },
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
    fn digest(&mut self, cut: &Cut, masked: bool) -> Result<Digest, NotParsed> {
        self.input.seek(SeekFrom::Start(cut.text.start))?;
        let mut input = BufReader::new((&mut *self.input).take(cut.text.end - cut.text.start));
        let mut digester = Digester::new(&self.secret);
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
