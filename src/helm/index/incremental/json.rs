//! Splits an index in JSON into charts by brackets and quotes.
//!
//! ```text
//!  {"apiVersion":"v1","entries":{"alloy":[…],"loki":[…]},"generated":"…"}      the index
//!  {"apiVersion":"v1","entries":{"alloy":0,"loki":0},"generated":"…"}          the envelope, must parse
//!                                        […]     […]                           the charts, each must parse
//! ```
//!
//! If the envelope and every chart are valid JSON, so is the index, with the same content. Else it needs a full decode.

use std::collections::HashSet;
use std::io::Read;

use memchr::memchr2;
use serde::de::{MapAccess, Visitor};
use wide::u8x16;

use super::CachedIndex;
use super::digest::Digester;
use super::splitter::{ChartSlice, MAX_CHARTS, MAX_KEYS_BYTES, SplitError, read_chunks};
use crate::helm::index::{DecodeLimits, created};

const MAX_ENVELOPE_BYTES: usize = 4 * 1024 * 1024;

/// Nesting depths: the index, its entries, one version.
const IN_INDEX: usize = 1;
const IN_ENTRIES: usize = 2;
const IN_VERSION: usize = 4;

/// Splits the rest of the input. `offset` is its position in the index.
pub(super) fn split(
    input: &mut impl Read,
    offset: u64,
    limits: &DecodeLimits,
    cache: &CachedIndex,
) -> Result<Vec<ChartSlice>, SplitError> {
    let mut splitter = JsonSplitter::new(limits, cache);
    read_chunks(input, offset, |bytes, base, is_last| {
        if is_last && !bytes.is_empty() {
            // The input ends inside a string.
            return Err(SplitError::UnsupportedLayout);
        }
        splitter.consume(bytes, base)
    })?;
    splitter.finish()
}

struct JsonSplitter<'k> {
    cache: &'k CachedIndex,
    max_charts: usize,
    depth: usize,
    key: LastText,
    is_in_entries: bool,
    chart: Option<OpenJsonChart>,
    keys: HashSet<String>,
    keys_bytes: usize,
    charts: Vec<ChartSlice>,
    envelope: Vec<u8>,
}

#[derive(Default)]
struct LastText {
    /// Set for keys of the index and of `entries` only. Keys of versions are too many to copy.
    text: String,
    is_created: bool,
    has_colon: bool,
}

impl LastText {
    fn clear(&mut self) {
        self.text.clear();
        self.is_created = false;
        self.has_colon = false;
    }
}

struct OpenJsonChart {
    key: String,
    start: u64,
    digester: Digester,
}

impl<'k> JsonSplitter<'k> {
    fn new(limits: &DecodeLimits, cache: &'k CachedIndex) -> Self {
        Self {
            cache,
            max_charts: usize::try_from(limits.charts).map_or(MAX_CHARTS, |limit| limit.min(MAX_CHARTS)),
            depth: 0,
            key: LastText::default(),
            is_in_entries: false,
            chart: None,
            keys: HashSet::new(),
            keys_bytes: 0,
            charts: Vec::new(),
            envelope: Vec::new(),
        }
    }

    fn consume(&mut self, bytes: &[u8], base: u64) -> Result<usize, SplitError> {
        let (mut at, mut flushed) = (0, 0);
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => {
                    let Some(end) = end_of_text(bytes, at + 1) else { break };
                    self.take_text(bytes, at + 1..end, &mut flushed)?;
                    at = end;
                    // Fast path for the most frequent next characters.
                    at += match bytes.get(end + 1..end + 3) {
                        Some(b":\"") => {
                            self.key.has_colon = true;
                            1
                        }
                        Some(b",\"") => {
                            self.key.clear();
                            1
                        }
                        _ => 0,
                    };
                }
                b'{' | b'[' => {
                    if self.depth == IN_ENTRIES && self.is_in_entries && self.chart.is_none() {
                        self.flush(&bytes[flushed..at])?;
                        flushed = at;
                        self.begin_chart(*byte, base + at as u64)?;
                    }
                    self.is_in_entries |= self.depth == IN_INDEX && self.key.has_colon && self.key.text == "entries";
                    self.depth += 1;
                    self.key.clear();
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(SplitError::UnsupportedLayout)?;
                    self.key.clear();
                    if self.depth == IN_ENTRIES && self.chart.is_some() {
                        self.flush(&bytes[flushed..=at])?;
                        flushed = at + 1;
                        self.end_chart(base + flushed as u64);
                    }
                    self.is_in_entries &= self.depth > IN_INDEX;
                }
                b':' => self.key.has_colon = true,
                b',' => self.key.clear(),
                _ => {}
            }
            at += 1;
        }
        self.flush(&bytes[flushed..at])?;
        Ok(at)
    }

    fn take_text(&mut self, bytes: &[u8], text: std::ops::Range<usize>, flushed: &mut usize) -> Result<(), SplitError> {
        if let Some(chart) = &mut self.chart
            && self.key.is_created
            && self.key.has_colon
            && !self.cache.timestamps_matter
            && created::is_time(&bytes[text.clone()])
        {
            chart.digester.update(&bytes[*flushed..text.start]);
            chart.digester.mask();
            *flushed = text.end;
        }
        if self.key.has_colon {
            return Ok(());
        }
        match self.depth {
            IN_VERSION => self.key.is_created = &bytes[text] == b"created",
            IN_INDEX | IN_ENTRIES => {
                let key = std::str::from_utf8(&bytes[text]).map_err(|_| SplitError::UnsupportedLayout)?;
                // Escaped keys would have to be decoded.
                if key.contains('\\') {
                    return Err(SplitError::UnsupportedLayout);
                }
                self.key.text.clear();
                self.key.text.push_str(key);
            }
            _ => {}
        }
        Ok(())
    }

    /// Appends the bytes to the open chart or to the envelope.
    fn flush(&mut self, bytes: &[u8]) -> Result<(), SplitError> {
        match &mut self.chart {
            Some(chart) => chart.digester.update(bytes),
            None if self.envelope.len() + bytes.len() > MAX_ENVELOPE_BYTES => {
                return Err(SplitError::UnsupportedLayout);
            }
            None => self.envelope.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn begin_chart(&mut self, bracket: u8, start: u64) -> Result<(), SplitError> {
        let key = std::mem::take(&mut self.key);
        self.keys_bytes += key.text.len();
        let fits = self.charts.len() < self.max_charts && self.keys_bytes <= MAX_KEYS_BYTES;
        if bracket != b'[' || !key.has_colon || !fits || !self.keys.insert(key.text.clone()) {
            return Err(SplitError::UnsupportedLayout);
        }
        self.envelope.push(b'0');
        self.chart = Some(OpenJsonChart {
            key: key.text,
            start,
            digester: Digester::new(&self.cache.digest_key),
        });
        Ok(())
    }

    fn end_chart(&mut self, end: u64) {
        if let Some(chart) = self.chart.take() {
            self.charts.push(ChartSlice {
                key: chart.key,
                text: chart.start..end,
                versions_column: None,
                digest: chart.digester.finish(),
                timestamps_masked: !self.cache.timestamps_matter,
            });
        }
    }

    fn finish(self) -> Result<Vec<ChartSlice>, SplitError> {
        let keys: Vec<&str> = self.charts.iter().map(|chart| chart.key.as_str()).collect();
        if keys.is_empty() || !is_valid_envelope(&self.envelope, &keys) {
            return Err(SplitError::UnsupportedLayout);
        }
        Ok(self.charts)
    }
}

fn end_of_text(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        at += quote_or_escape(bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

/// Most strings are short, so starting a `memchr` search costs more than testing a block.
fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    let (blocks, rest) = bytes.as_chunks();
    for (number, block) in blocks.iter().enumerate() {
        let lanes = u8x16::from(*block);
        let matches = lanes.simd_eq(u8x16::splat(b'"')) | lanes.simd_eq(u8x16::splat(b'\\'));
        let mask = matches.to_bitmask();
        if mask != 0 {
            return Some(number * block.len() + mask.trailing_zeros() as usize);
        }
    }
    let in_rest = memchr2(b'"', b'\\', rest)?;
    Some(bytes.len() - rest.len() + in_rest)
}

/// Returns true if the text is an index whose only `entries` has exactly these keys, each with the value 0.
fn is_valid_envelope(text: &[u8], keys: &[&str]) -> bool {
    #[derive(serde::Deserialize)]
    struct Envelope {
        entries: EntryKeys,
    }

    // Serde does not check the encoding of ignored values.
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    // Two `entries` are an error.
    let envelope = serde_json::from_str::<Envelope>(text);
    envelope.is_ok_and(|envelope| envelope.entries.0.iter().eq(keys))
}

struct EntryKeys(Vec<String>);

impl<'de> serde::Deserialize<'de> for EntryKeys {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EntryKeysVisitor;

        impl<'de> Visitor<'de> for EntryKeysVisitor {
            type Value = Vec<String>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a map of charts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, u8>()? {
                    if value != 0 {
                        return Err(serde::de::Error::custom("not a placeholder of a chart"));
                    }
                    keys.push(key);
                }
                Ok(keys)
            }
        }

        deserializer.deserialize_map(EntryKeysVisitor).map(EntryKeys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plainly(bytes: &[u8], start: usize) -> Option<usize> {
        let mut is_escaped = false;
        let mut rest = bytes.iter().enumerate().skip(start);
        let end = rest.find(|(_, byte)| {
            let is_end = **byte == b'"' && !is_escaped;
            is_escaped = **byte == b'\\' && !is_escaped;
            is_end
        });
        end.map(|(at, _)| at)
    }

    #[test]
    fn a_string_ends_at_its_quote_at_any_offset() {
        let odd = [b'"', b'\\', b'a', 0x23, 0x21, 0x5d, 0x5b, 0xa2, 0xdc, 0, 0x80, 0xff];
        for length in 0..40 {
            for at in 0..length {
                for (first, second) in odd
                    .iter()
                    .flat_map(|first| odd.iter().map(move |second| (*first, *second)))
                {
                    let mut bytes = vec![b'x'; length];
                    bytes[at] = first;
                    if let Some(next) = bytes.get_mut(at + 1) {
                        *next = second;
                    }
                    for ends in [false, true] {
                        if ends {
                            bytes.push(b'"');
                        }
                        for start in 0..bytes.len().min(3) {
                            let found = end_of_text(&bytes, start);
                            assert_eq!(found, plainly(&bytes, start), "{bytes:?} from {start}");
                        }
                    }
                }
            }
        }
    }
}
