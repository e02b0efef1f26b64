use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;

use memchr::memchr;

use super::digest::{Digest, Digester};
use super::slices::{MAX_VERSION_BYTES, VersionSlices};
use super::splitter::ChartSlice;
use super::{CacheEntry, CachedChart, CachedIndex, ChangeSink, StreamStop, lines};
use crate::helm::index::collector::ChartCollector;
use crate::helm::index::error::{DecodeError, Position};
use crate::helm::index::yaml::{self, YamlItem, fast_path};
use crate::helm::index::{Chart, ChartStats, DecodeLimits, Sink, json};

/// Errors of a slice lead to a full decode, which reports the position.
const UNKNOWN_POSITION: Position = Position { line: 1, column: 1 };

struct ParsedChart {
    /// Its stats say if it is deprecated.
    chart: Option<Chart>,
    entry: CacheEntry,
}

type ChartError = StreamStop<Infallible>;

type SingleChartCollector<'v> = ChartCollector<'v, SingleChart>;

#[derive(Default)]
struct SingleChart(Option<Chart>);

impl Sink for SingleChart {
    type Error = Infallible;

    fn chart(&mut self, chart: Chart) -> Result<(), Infallible> {
        self.0 = Some(chart);
        Ok(())
    }

    fn deprecated(&mut self, chart: Chart) -> Result<(), Infallible> {
        self.chart(chart)
    }

    fn start_over(&mut self) -> Result<(), Infallible> {
        self.0 = None;
        Ok(())
    }
}

/// Passes all charts of a split index to the collector. Parses only charts that are not cached.
pub(super) fn decode_slices<R: Read + Seek, S: ChangeSink>(
    slices: &[ChartSlice],
    mut parser: ChartParser<'_, R>,
    collector: &mut ChartCollector<'_, S>,
) -> Result<(), StreamStop<S::Error>> {
    // Stop below the limit, because the count is approximate.
    let max_nodes = parser.limits.nodes / 10 * 9;
    let mut nodes: u64 = 0;
    let mut count = |stats: &ChartStats| {
        // The key and the list of a chart are nodes too.
        nodes = nodes.saturating_add(stats.nodes).saturating_add(2);
        if nodes > max_nodes {
            Err(StreamStop::FullDecodeNeeded)
        } else {
            Ok(())
        }
    };
    for slice in slices {
        if let Some(cached) = parser.cache.get(slice) {
            count(&cached.stats)?;
            collector.add(&cached.stats);
            let sink = collector.sink();
            sink.unchanged(&slice.key, &cached.stats).map_err(DecodeError::Sink)?;
            continue;
        }
        let ParsedChart { chart, entry } = parser.chart(slice).map_err(|reason| match reason {
            StreamStop::Error(DecodeError::Read(error)) => StreamStop::from(error),
            StreamStop::Error(_) | StreamStop::FullDecodeNeeded => StreamStop::FullDecodeNeeded,
        })?;
        count(&entry.chart.stats)?;
        collector.add(&entry.chart.stats);
        let received = match chart {
            Some(chart) if entry.chart.stats.deprecated => collector.sink().deprecated(chart),
            Some(chart) => collector.sink().chart(chart),
            None => Ok(()),
        };
        received.map_err(DecodeError::Sink)?;
        collector.sink().cache(entry).map_err(DecodeError::Sink)?;
    }
    Ok(())
}

pub(super) struct ChartParser<'c, R> {
    input: &'c mut R,
    limits: &'c DecodeLimits,
    cache: &'c CachedIndex,
    is_json: bool,
    buffer: Vec<u8>,
}

impl<'c, R: Read + Seek> ChartParser<'c, R> {
    pub(super) const fn new(input: &'c mut R, limits: &'c DecodeLimits, cache: &'c CachedIndex, is_json: bool) -> Self {
        Self {
            input,
            limits,
            cache,
            is_json,
            buffer: Vec::new(),
        }
    }

    fn chart(&mut self, slice: &ChartSlice) -> Result<ParsedChart, ChartError> {
        let mut single = SingleChart::default();
        let mut collector = ChartCollector::new(self.limits, &mut single);
        collector.begin_chart(&slice.key, false, UNKNOWN_POSITION)?;
        let (nodes, timestamps_confirmed) = match slice.versions_column {
            None if self.is_json => self.json_versions(&slice.text, &mut collector)?,
            Some(column) => self.versions(&slice.text, column, &mut collector)?,
            // The slice contains only the key and blank lines.
            None if slice.text.end - slice.text.start > MAX_VERSION_BYTES as u64 => {
                return Err(StreamStop::FullDecodeNeeded);
            }
            None => (0, true),
        };
        let mut stats = collector.end_chart()?;
        stats.nodes = nodes;
        let timestamps_masked = timestamps_confirmed && !self.cache.timestamps_matter;
        let digest = if slice.timestamps_masked == timestamps_masked {
            slice.digest
        } else {
            self.digest(slice, timestamps_masked)?
        };
        let chart = CachedChart {
            digest,
            timestamps_masked,
            stats,
        };
        let key = slice.key.clone();
        Ok(ParsedChart {
            chart: single.0,
            entry: CacheEntry { key, chart },
        })
    }

    /// Returns the number of nodes, and true if every line that looks like a timestamp is one.
    fn versions(
        &mut self,
        text: &Range<u64>,
        column: usize,
        collector: &mut SingleChartCollector<'_>,
    ) -> Result<(u64, bool), ChartError> {
        self.input.seek(SeekFrom::Start(text.start))?;
        let input = (&mut *self.input).take(text.end - text.start);
        let mut slices = VersionSlices::new(input, column, &mut self.buffer);
        slices.begin()?;
        let (mut nodes, mut timestamps_confirmed) = (0, true);
        while let Some(slice) = slices.next()? {
            // A carriage return ends a line for the parser but not for the splitter.
            if memchr(b'\r', slice).is_some() {
                return Err(StreamStop::FullDecodeNeeded);
            }
            let read = match fast_path::read(slice, column, self.limits) {
                Some(item) => Ok(item),
                // Anchors also need a full decode, because alias limits apply to the whole index.
                None => yaml::item(slice, self.limits).map_err(|_| StreamStop::FullDecodeNeeded)?,
            };
            let fields = match read {
                Ok(YamlItem {
                    fields,
                    nodes: of_version,
                    created_line,
                }) => {
                    nodes += of_version;
                    timestamps_confirmed &= has_no_other_timestamp(slice, column + 2, created_line);
                    Ok(fields)
                }
                Err(invalid) => {
                    nodes += invalid.nodes;
                    timestamps_confirmed &= has_no_other_timestamp(slice, column + 2, None);
                    Err(invalid.reason)
                }
            };
            collector.add_version(fields, UNKNOWN_POSITION)?;
        }
        Ok((nodes, timestamps_confirmed))
    }

    fn json_versions(
        &mut self,
        text: &Range<u64>,
        collector: &mut SingleChartCollector<'_>,
    ) -> Result<(u64, bool), ChartError> {
        self.input.seek(SeekFrom::Start(text.start))?;
        let mut input = (&mut *self.input).take(text.end - text.start);
        json::versions(&mut input, collector)?;
        Ok((0, true))
    }

    fn digest(&mut self, slice: &ChartSlice, timestamps_masked: bool) -> Result<Digest, ChartError> {
        self.input.seek(SeekFrom::Start(slice.text.start))?;
        let mut input = BufReader::new((&mut *self.input).take(slice.text.end - slice.text.start));
        let mut digester = Digester::new(&self.cache.digest_key);
        let mut line = Vec::new();
        while input.read_until(b'\n', &mut line)? > 0 {
            let time = slice.versions_column.filter(|_| timestamps_masked);
            match time.and_then(|column| lines::created(&line, column + 2)) {
                Some(time) => {
                    digester.update(&line[..time.start]);
                    digester.mask();
                    digester.update(&line[time.end..]);
                }
                None => digester.update(&line),
            }
            line.clear();
        }
        Ok(digester.finish())
    }
}

/// Returns true if no line looks like a timestamp except the line that the parser found.
fn has_no_other_timestamp(slice: &[u8], column: usize, created_line: Option<usize>) -> bool {
    let lines = slice.split_inclusive(|byte| *byte == b'\n').enumerate();
    let mut times = lines.filter(|(_, line)| lines::created(line, column).is_some());
    match (times.next(), times.next()) {
        (None, _) => true,
        (Some((line, _)), None) => created_line == Some(line),
        _ => false,
    }
}
