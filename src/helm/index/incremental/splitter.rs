//! An index in Helm's style, cut into its charts by how lines begin.
//!
//! ```text
//!  apiVersion: v1            ─┐
//!  entries:                  ─┴─ head
//!    alloy:                  ─┐
//!    - name: alloy            │  a chart: its text is digested, the times of its versions left out
//!      created: "2026-…"      │
//!    - …                     ─┘
//!    loki:                      the next one, at the same column
//!    …
//!  generated: "2026-…"       ─── foot
//! ```
//! This looks at bytes, not at YAML: a quote may hide a line that looks like a cut. It is safe because head, foot and each version
//! have to parse by themselves, and did so when their text was digested: then nothing reaches over a cut. What does not look like
//! this is no error; it is read as a whole.

use std::collections::HashSet;
use std::io::{self, Read};
use std::ops::Range;

use memchr::memrchr;

use super::CachedIndex;
use super::digest::{Digest, Digester};
use super::ends::LineEnds;
use super::envelope::{is_foot, is_head};
use super::lines::{chart_key, created, indent, is_blank, is_deeper, is_item};
use crate::helm::index::DecodeLimits;

/// What is read at once. A longer line is not cut.
const BUFFER: usize = 256 * 1024;
/// Bytes of all that stands before the first chart, and of what follows the last.
const FRAME_BYTES: usize = 64 * 1024;
/// Charts, and bytes of their keys: what a sync holds of each is in memory.
pub(super) const CHARTS: usize = 5_000;
pub(super) const KEYS_BYTES: usize = 1024 * 1024;
/// Columns in front of a chart's key. Helm writes two.
const MAX_COLUMN: usize = 16;

/// One chart of an index.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ChartSlice {
    pub(super) key: String,
    /// Where its text is, its key included.
    pub(super) text: Range<u64>,
    /// The column of its versions. Nothing: it has none.
    pub(super) items: Option<usize>,
    pub(super) digest: Digest,
    /// Whether times were left out of the digest, as far as there are any.
    pub(super) masked: bool,
}

/// Why an index was not cut.
#[derive(Debug)]
pub(super) enum SplitError {
    /// It looks otherwise.
    Style,
    Read(io::Error),
}

/// Cuts what is read from here on, which is `offset` bytes behind the beginning.
pub(super) fn cut(
    input: &mut impl Read,
    offset: u64,
    limits: &DecodeLimits,
    known: &CachedIndex,
) -> Result<Vec<ChartSlice>, SplitError> {
    let mut cutter = Cutter::new(limits, known);
    let end = feed(input, offset, |bytes, base, is_last| {
        let whole = if is_last {
            bytes.len()
        } else {
            memrchr(b'\n', bytes).map_or(0, |end| end + 1)
        };
        cutter.take(&bytes[..whole], base)?;
        Ok(whole)
    })?;
    cutter.finish(end)
}

/// Reads to the end, and hands on what is there and where it begins, at last with `true`. Gives where the end is.
///
/// What is not taken comes again with what follows it; more of it than the buffer holds is in no style that is cut.
pub(super) fn feed(
    input: &mut impl Read,
    offset: u64,
    mut take: impl FnMut(&[u8], u64, bool) -> Result<usize, SplitError>,
) -> Result<u64, SplitError> {
    let mut buffer = vec![0; BUFFER];
    let (mut filled, mut base) = (0, offset);
    loop {
        let count = match input.read(&mut buffer[filled..]) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(SplitError::Read(error)),
        };
        filled += count;
        let taken = take(&buffer[..filled], base, count == 0)?;
        base += taken as u64;
        if count == 0 {
            return Ok(base);
        }
        buffer.copy_within(taken..filled, 0);
        filled -= taken;
        if filled == buffer.len() {
            return Err(SplitError::Style);
        }
    }
}

struct Cutter<'k> {
    limits: &'k DecodeLimits,
    known: &'k CachedIndex,
    charts_limit: usize,
    state: State,
    /// Of the charts' keys, once there is one.
    column: usize,
    chart: Option<Open>,
    keys: HashSet<String>,
    keys_bytes: usize,
    head: Vec<u8>,
    cuts: Vec<ChartSlice>,
    foot: Vec<u8>,
}

#[derive(PartialEq, Eq)]
enum State {
    Head,
    Charts,
    Foot,
}

/// The chart that is being read.
struct Open {
    key: String,
    start: u64,
    items: Option<usize>,
    versions: u64,
    masked: bool,
    digester: Digester,
}

/// What a line among the charts is.
enum Line<'l> {
    Chart(&'l str),
    Inside,
    Foot,
}

impl<'k> Cutter<'k> {
    fn new(limits: &'k DecodeLimits, known: &'k CachedIndex) -> Self {
        Self {
            limits,
            known,
            charts_limit: usize::try_from(limits.charts).map_or(CHARTS, |limit| limit.min(CHARTS)),
            state: State::Head,
            column: 0,
            chart: None,
            keys: HashSet::new(),
            keys_bytes: 0,
            head: Vec::new(),
            cuts: Vec::new(),
            foot: Vec::new(),
        }
    }

    /// Takes whole lines, which begin at `base`.
    fn take(&mut self, lines: &[u8], base: u64) -> Result<(), SplitError> {
        let ends = LineEnds::of(lines);
        let unfinished = (lines.last().is_some_and(|last| *last != b'\n')).then_some(lines.len());
        let (mut start, mut digested) = (0, 0);
        for end in ends.chain(unfinished) {
            let line = &lines[start..end];
            match self.state {
                State::Charts if self.is_plain(line) => {}
                State::Head => {
                    extend(&mut self.head, line)?;
                    digested = end;
                    if line == b"entries:\n" {
                        self.state = State::Charts;
                    }
                }
                State::Charts => match self.classify(line)? {
                    Line::Inside => self.digest_without_time(lines, start..end, &mut digested),
                    Line::Chart(key) => {
                        self.end_chart(&lines[digested..start], base + start as u64);
                        digested = start;
                        self.begin_chart(key, base + start as u64)?;
                    }
                    Line::Foot => {
                        self.end_chart(&lines[digested..start], base + start as u64);
                        digested = end;
                        self.state = State::Foot;
                        extend(&mut self.foot, line)?;
                    }
                },
                State::Foot => extend(&mut self.foot, line)?,
            }
            start = end;
        }
        if let Some(chart) = &mut self.chart {
            chart.digester.text(&lines[digested..]);
        }
        Ok(())
    }

    /// Returns true for a line of a version that needs no further checks, as most lines do.
    fn is_plain(&self, line: &[u8]) -> bool {
        let items = self.chart.as_ref().and_then(|chart| chart.items);
        // Two columns further in a time may start.
        items.is_some_and(|items| is_deeper(line, items) && line.get(items + 2) != Some(&b'c'))
    }

    fn classify<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, SplitError> {
        if self.chart.is_some() && is_deeper(line, self.column) {
            return self.inside(line);
        }
        let spaces = indent(line);
        if spaces == 0 && line != b"\n" {
            return Ok(Line::Foot);
        }
        if is_blank(line) {
            // Before the first chart it would belong to nothing.
            return self.chart.as_ref().map(|_| Line::Inside).ok_or(SplitError::Style);
        }
        if self.cuts.is_empty() && self.chart.is_none() {
            if spaces > MAX_COLUMN {
                return Err(SplitError::Style);
            }
            self.column = spaces;
        }
        if spaces != self.column {
            return Err(SplitError::Style);
        }
        match chart_key(line, spaces) {
            Some(key) => Ok(Line::Chart(key)),
            None => self.inside(line),
        }
    }

    /// A line of the current chart: its versions begin at one column, and all else is deeper.
    fn inside<'l>(&mut self, line: &'l [u8]) -> Result<Line<'l>, SplitError> {
        let Some(chart) = &mut self.chart else {
            return Err(SplitError::Style);
        };
        match chart.items {
            Some(column) if is_deeper(line, column) => Ok(Line::Inside),
            _ if is_blank(line) => Ok(Line::Inside),
            items => {
                let column = items.unwrap_or_else(|| indent(line));
                let is_first_column = indent(line) == column && column <= MAX_COLUMN;
                if !(is_first_column && is_item(line, column)) {
                    return Err(SplitError::Style);
                }
                chart.items = Some(column);
                chart.versions += 1;
                if chart.versions > self.limits.versions_per_chart {
                    return Err(SplitError::Style);
                }
                Ok(Line::Inside)
            }
        }
    }

    /// Digests up to the time in this line, if it holds one, and leaves the time out.
    fn digest_without_time(&mut self, lines: &[u8], line: Range<usize>, digested: &mut usize) {
        if let Some(chart) = &mut self.chart
            && chart.masked
            && let Some(items) = chart.items
            && let Some(time) = created(&lines[line.clone()], items + 2)
        {
            chart.digester.text(&lines[*digested..line.start + time.start]);
            chart.digester.mask();
            *digested = line.start + time.end;
        }
    }

    fn begin_chart(&mut self, key: &str, start: u64) -> Result<(), SplitError> {
        self.keys_bytes += key.len();
        let is_new = self.keys.insert(key.to_owned());
        if !is_new || self.cuts.len() >= self.charts_limit || self.keys_bytes > KEYS_BYTES {
            return Err(SplitError::Style);
        }
        self.chart = Some(Open {
            key: key.to_owned(),
            start,
            items: None,
            versions: 0,
            masked: !self.known.times_count && self.known.charts.get(key).is_none_or(|known| known.masked),
            digester: Digester::new(&self.known.secret),
        });
        Ok(())
    }

    fn end_chart(&mut self, rest: &[u8], end: u64) {
        if let Some(mut chart) = self.chart.take() {
            chart.digester.text(rest);
            self.cuts.push(ChartSlice {
                key: chart.key,
                text: chart.start..end,
                items: chart.items,
                digest: chart.digester.finish(),
                masked: chart.masked,
            });
        }
    }

    /// All of it, which ends here.
    fn finish(mut self, end: u64) -> Result<Vec<ChartSlice>, SplitError> {
        self.end_chart(&[], end);
        if self.cuts.is_empty() || !is_head(&self.head, self.limits) || !is_foot(&self.foot, self.limits) {
            return Err(SplitError::Style);
        }
        Ok(self.cuts)
    }
}

fn extend(frame: &mut Vec<u8>, line: &[u8]) -> Result<(), SplitError> {
    if frame.len() + line.len() > FRAME_BYTES {
        return Err(SplitError::Style);
    }
    frame.extend_from_slice(line);
    Ok(())
}
