//! Splits an index in Helm's layout into charts by line prefixes.
//!
//! ```text
//!  apiVersion: v1            ─┐
//!  entries:                  ─┴─ header
//!    alloy:                  ─┐
//!    - name: alloy            │  a chart: digest of its text without timestamps
//!      created: "2026-…"      │
//!    - …                     ─┘
//!    loki:                      the next chart, at the same column
//!    …
//!  generated: "2026-…"       ─── footer
//! ```
//!
//! The splitter does not parse YAML. A quoted or block scalar could contain a line that looks like a boundary, so the
//! header, the footer and every changed version must also parse on their own. Otherwise the caller falls back to a full
//! decode. A cached chart was parsed when its digest was computed.

use std::collections::HashSet;
use std::io::{self, Read};
use std::ops::Range;

use memchr::memrchr;

use super::CachedIndex;
use super::digest::{Digest, Digester};
use super::ends::LineEnds;
use super::envelope::{is_valid_footer, is_valid_header};
use super::lines::{chart_key, created, indent, is_blank, is_deeper, is_item};
use crate::helm::index::DecodeLimits;

const BUFFER_BYTES: usize = 256 * 1024;
const MAX_ENVELOPE_BYTES: usize = 64 * 1024;
/// Limits on charts and their keys, which are all held in memory during a sync.
pub(super) const MAX_CHARTS: usize = 5_000;
pub(super) const MAX_KEYS_BYTES: usize = 1024 * 1024;
const MAX_COLUMN: usize = 16;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChartSlice {
    pub(super) key: String,
    pub(super) text: Range<u64>,
    /// Column of the list items. None if the chart has no versions.
    pub(super) versions_column: Option<usize>,
    pub(super) digest: Digest,
    /// The digest excludes timestamps, if there are any.
    pub(super) timestamps_masked: bool,
}

#[derive(Debug)]
pub(super) enum SplitError {
    UnsupportedLayout,
    Read(io::Error),
}

/// Splits the rest of the input. `offset` is its position in the index.
pub(super) fn split(
    input: &mut impl Read,
    offset: u64,
    limits: &DecodeLimits,
    cache: &CachedIndex,
) -> Result<Vec<ChartSlice>, SplitError> {
    let mut splitter = Splitter::new(limits, cache);
    let end = read_chunks(input, offset, |bytes, base, is_last| {
        let complete = if is_last {
            bytes.len()
        } else {
            memrchr(b'\n', bytes).map_or(0, |end| end + 1)
        };
        splitter.consume(&bytes[..complete], base)?;
        Ok(complete)
    })?;
    splitter.finish(end)
}

/// Passes each chunk with its offset to `take`, the last with `true`. Returns the end offset. `take` returns the
/// number of consumed bytes. The rest comes again with the next chunk, and must fit into the buffer.
pub(super) fn read_chunks(
    input: &mut impl Read,
    offset: u64,
    mut take: impl FnMut(&[u8], u64, bool) -> Result<usize, SplitError>,
) -> Result<u64, SplitError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let (mut filled, mut base) = (0, offset);
    loop {
        let count = match input.read(&mut buffer[filled..]) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(SplitError::Read(error)),
        };
        filled += count;
        let consumed = take(&buffer[..filled], base, count == 0)?;
        base += consumed as u64;
        if count == 0 {
            return Ok(base);
        }
        buffer.copy_within(consumed..filled, 0);
        filled -= consumed;
        if filled == buffer.len() {
            return Err(SplitError::UnsupportedLayout);
        }
    }
}

struct Splitter<'k> {
    limits: &'k DecodeLimits,
    cache: &'k CachedIndex,
    max_charts: usize,
    state: State,
    column: usize,
    chart: Option<OpenYamlChart>,
    keys: HashSet<String>,
    keys_bytes: usize,
    header: Vec<u8>,
    slices: Vec<ChartSlice>,
    footer: Vec<u8>,
}

#[derive(PartialEq, Eq)]
enum State {
    Header,
    Charts,
    Footer,
}

struct OpenYamlChart {
    key: String,
    start: u64,
    versions_column: Option<usize>,
    versions: u64,
    timestamps_masked: bool,
    digester: Digester,
}

enum IndexLine<'l> {
    Chart(&'l str),
    Inside,
    Footer,
}

impl<'k> Splitter<'k> {
    fn new(limits: &'k DecodeLimits, cache: &'k CachedIndex) -> Self {
        Self {
            limits,
            cache,
            max_charts: usize::try_from(limits.charts).map_or(MAX_CHARTS, |limit| limit.min(MAX_CHARTS)),
            state: State::Header,
            column: 0,
            chart: None,
            keys: HashSet::new(),
            keys_bytes: 0,
            header: Vec::new(),
            slices: Vec::new(),
            footer: Vec::new(),
        }
    }

    fn consume(&mut self, lines: &[u8], base: u64) -> Result<(), SplitError> {
        let ends = LineEnds::of(lines);
        let unfinished = (lines.last().is_some_and(|last| *last != b'\n')).then_some(lines.len());
        let (mut start, mut digested) = (0, 0);
        for end in ends.chain(unfinished) {
            let line = &lines[start..end];
            match self.state {
                State::Charts if self.is_plain(line) => {}
                State::Header => {
                    extend(&mut self.header, line)?;
                    digested = end;
                    if line == b"entries:\n" {
                        self.state = State::Charts;
                    }
                }
                State::Charts => match self.classify(line)? {
                    IndexLine::Inside => self.digest_without_timestamp(lines, start..end, &mut digested),
                    IndexLine::Chart(key) => {
                        self.end_chart(&lines[digested..start], base + start as u64);
                        digested = start;
                        self.begin_chart(key, base + start as u64)?;
                    }
                    IndexLine::Footer => {
                        self.end_chart(&lines[digested..start], base + start as u64);
                        digested = end;
                        self.state = State::Footer;
                        extend(&mut self.footer, line)?;
                    }
                },
                State::Footer => extend(&mut self.footer, line)?,
            }
            start = end;
        }
        if let Some(chart) = &mut self.chart {
            chart.digester.update(&lines[digested..]);
        }
        Ok(())
    }

    fn is_plain(&self, line: &[u8]) -> bool {
        let items = self.chart.as_ref().and_then(|chart| chart.versions_column);
        // A timestamp key starts two columns deeper than its item.
        items.is_some_and(|items| is_deeper(line, items) && line.get(items + 2) != Some(&b'c'))
    }

    fn classify<'l>(&mut self, line: &'l [u8]) -> Result<IndexLine<'l>, SplitError> {
        if self.chart.is_some() && is_deeper(line, self.column) {
            return self.classify_inside(line);
        }
        let spaces = indent(line);
        if spaces == 0 && line != b"\n" {
            return Ok(IndexLine::Footer);
        }
        if is_blank(line) {
            // A blank line before the first chart belongs to no chart.
            return self
                .chart
                .as_ref()
                .map(|_| IndexLine::Inside)
                .ok_or(SplitError::UnsupportedLayout);
        }
        if self.slices.is_empty() && self.chart.is_none() {
            if spaces > MAX_COLUMN {
                return Err(SplitError::UnsupportedLayout);
            }
            self.column = spaces;
        }
        if spaces != self.column {
            return Err(SplitError::UnsupportedLayout);
        }
        match chart_key(line, spaces) {
            Some(key) => Ok(IndexLine::Chart(key)),
            None => self.classify_inside(line),
        }
    }

    /// Handles a line of the current chart. Versions start at one column, all other lines are deeper.
    fn classify_inside<'l>(&mut self, line: &'l [u8]) -> Result<IndexLine<'l>, SplitError> {
        let Some(chart) = &mut self.chart else {
            return Err(SplitError::UnsupportedLayout);
        };
        match chart.versions_column {
            Some(column) if is_deeper(line, column) => Ok(IndexLine::Inside),
            _ if is_blank(line) => Ok(IndexLine::Inside),
            items => {
                let column = items.unwrap_or_else(|| indent(line));
                let is_first_column = indent(line) == column && column <= MAX_COLUMN;
                if !(is_first_column && is_item(line, column)) {
                    return Err(SplitError::UnsupportedLayout);
                }
                chart.versions_column = Some(column);
                chart.versions += 1;
                if chart.versions > self.limits.versions_per_chart {
                    return Err(SplitError::UnsupportedLayout);
                }
                Ok(IndexLine::Inside)
            }
        }
    }

    fn digest_without_timestamp(&mut self, lines: &[u8], line: Range<usize>, digested: &mut usize) {
        if let Some(chart) = &mut self.chart
            && chart.timestamps_masked
            && let Some(items) = chart.versions_column
            && let Some(time) = created(&lines[line.clone()], items + 2)
        {
            chart.digester.update(&lines[*digested..line.start + time.start]);
            chart.digester.mask();
            *digested = line.start + time.end;
        }
    }

    fn begin_chart(&mut self, key: &str, start: u64) -> Result<(), SplitError> {
        self.keys_bytes += key.len();
        let is_new = self.keys.insert(key.to_owned());
        if !is_new || self.slices.len() >= self.max_charts || self.keys_bytes > MAX_KEYS_BYTES {
            return Err(SplitError::UnsupportedLayout);
        }
        self.chart = Some(OpenYamlChart {
            key: key.to_owned(),
            start,
            versions_column: None,
            versions: 0,
            timestamps_masked: !self.cache.timestamps_matter
                && self.cache.charts.get(key).is_none_or(|cache| cache.timestamps_masked),
            digester: Digester::new(&self.cache.digest_key),
        });
        Ok(())
    }

    fn end_chart(&mut self, rest: &[u8], end: u64) {
        if let Some(mut chart) = self.chart.take() {
            chart.digester.update(rest);
            self.slices.push(ChartSlice {
                key: chart.key,
                text: chart.start..end,
                versions_column: chart.versions_column,
                digest: chart.digester.finish(),
                timestamps_masked: chart.timestamps_masked,
            });
        }
    }

    fn finish(mut self, end: u64) -> Result<Vec<ChartSlice>, SplitError> {
        self.end_chart(&[], end);
        if self.slices.is_empty()
            || !is_valid_header(&self.header, self.limits)
            || !is_valid_footer(&self.footer, self.limits)
        {
            return Err(SplitError::UnsupportedLayout);
        }
        Ok(self.slices)
    }
}

fn extend(envelope: &mut Vec<u8>, line: &[u8]) -> Result<(), SplitError> {
    if envelope.len() + line.len() > MAX_ENVELOPE_BYTES {
        return Err(SplitError::UnsupportedLayout);
    }
    envelope.extend_from_slice(line);
    Ok(())
}
