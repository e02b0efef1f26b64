//! An index in JSON, cut into its charts by brackets and quotes.
//!
//! ```text
//!  {"apiVersion":"v1","entries":{"alloy":[…],"loki":[…]},"generated":"…"}      the bytes
//!  {"apiVersion":"v1","entries":{"alloy":0,"loki":0},"generated":"…"}          the frame, which has to parse
//!                                        […]     […]                           the charts: each has to parse by itself
//! ```
//! Where the frame and each chart are JSON by themselves, the whole is, and says the same: a value may stand for another. What is
//! not found to be so is read as a whole.

use std::collections::HashSet;
use std::io::Read;

use memchr::memchr2;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use wide::u8x16;

use super::CachedIndex;
use super::digest::Digester;
use super::splitter::{CHARTS, ChartSlice, KEYS_BYTES, SplitError, feed};
use crate::helm::index::{DecodeLimits, created};

/// Bytes of all that is no chart.
const FRAME_BYTES: usize = 4 * 1024 * 1024;

/// Lists and maps around what is looked at: the index, its entries, the versions of a chart, one version.
const IN_INDEX: usize = 1;
const IN_ENTRIES: usize = 2;
const IN_VERSION: usize = 4;

/// Cuts what is read from here on, which is `offset` bytes behind the beginning.
pub(super) fn cut(
    input: &mut impl Read,
    offset: u64,
    limits: &DecodeLimits,
    known: &CachedIndex,
) -> Result<Vec<ChartSlice>, SplitError> {
    let mut cutter = Cutter::new(limits, known);
    feed(input, offset, |bytes, base, is_last| {
        if is_last && !bytes.is_empty() {
            // A text that does not end is no JSON.
            return Err(SplitError::Style);
        }
        cutter.take(bytes, base)
    })?;
    cutter.finish()
}

struct Cutter<'k> {
    known: &'k CachedIndex,
    charts_limit: usize,
    depth: usize,
    key: Key,
    is_in_entries: bool,
    chart: Option<Open>,
    keys: HashSet<String>,
    keys_bytes: usize,
    charts: Vec<ChartSlice>,
    frame: Vec<u8>,
}

/// The last text, where it may be a key.
#[derive(Default)]
struct Key {
    /// Of the index and its entries. Of versions, which have most of all keys, none is copied.
    text: String,
    /// Whether it is the key of a version's time.
    is_created: bool,
    /// Whether a colon has followed it.
    is_followed: bool,
}

impl Key {
    fn clear(&mut self) {
        self.text.clear();
        self.is_created = false;
        self.is_followed = false;
    }
}

struct Open {
    key: String,
    start: u64,
    digester: Digester,
}

impl<'k> Cutter<'k> {
    fn new(limits: &DecodeLimits, known: &'k CachedIndex) -> Self {
        Self {
            known,
            charts_limit: usize::try_from(limits.charts).map_or(CHARTS, |limit| limit.min(CHARTS)),
            depth: 0,
            key: Key::default(),
            is_in_entries: false,
            chart: None,
            keys: HashSet::new(),
            keys_bytes: 0,
            charts: Vec::new(),
            frame: Vec::new(),
        }
    }

    /// Takes as much as there is of whole tokens; gives how many bytes they have.
    fn take(&mut self, bytes: &[u8], base: u64) -> Result<usize, SplitError> {
        let (mut at, mut passed) = (0, 0);
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => {
                    let Some(end) = end_of_text(bytes, at + 1) else { break };
                    self.text(bytes, at + 1..end, &mut passed)?;
                    at = end;
                    // What mostly comes next, at one look.
                    at += match bytes.get(end + 1..end + 3) {
                        Some(b":\"") => {
                            self.key.is_followed = true;
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
                        self.pass(&bytes[passed..at])?;
                        passed = at;
                        self.begin_chart(*byte, base + at as u64)?;
                    }
                    self.is_in_entries |= self.depth == IN_INDEX && self.key.is_followed && self.key.text == "entries";
                    self.depth += 1;
                    self.key.clear();
                }
                b'}' | b']' => {
                    self.depth = self.depth.checked_sub(1).ok_or(SplitError::Style)?;
                    self.key.clear();
                    if self.depth == IN_ENTRIES && self.chart.is_some() {
                        self.pass(&bytes[passed..=at])?;
                        passed = at + 1;
                        self.end_chart(base + passed as u64);
                    }
                    self.is_in_entries &= self.depth > IN_INDEX;
                }
                b':' => self.key.is_followed = true,
                b',' => self.key.clear(),
                _ => {}
            }
            at += 1;
        }
        self.pass(&bytes[passed..at])?;
        Ok(at)
    }

    /// A text between quotes: a key, or a value.
    fn text(&mut self, bytes: &[u8], text: std::ops::Range<usize>, passed: &mut usize) -> Result<(), SplitError> {
        if let Some(chart) = &mut self.chart
            && self.key.is_created
            && self.key.is_followed
            && !self.known.times_count
            && created::is_time(&bytes[text.clone()])
        {
            chart.digester.text(&bytes[*passed..text.start]);
            chart.digester.mask();
            *passed = text.end;
        }
        if self.key.is_followed {
            return Ok(());
        }
        match self.depth {
            IN_VERSION => self.key.is_created = &bytes[text] == b"created",
            IN_INDEX | IN_ENTRIES => {
                let key = std::str::from_utf8(&bytes[text]).map_err(|_| SplitError::Style)?;
                // What it stands for would have to be found out.
                if key.contains('\\') {
                    return Err(SplitError::Style);
                }
                self.key.text.clear();
                self.key.text.push_str(key);
            }
            _ => {}
        }
        Ok(())
    }

    /// What comes next is of the chart that is open, or of the frame.
    fn pass(&mut self, bytes: &[u8]) -> Result<(), SplitError> {
        match &mut self.chart {
            Some(chart) => chart.digester.text(bytes),
            None if self.frame.len() + bytes.len() > FRAME_BYTES => return Err(SplitError::Style),
            None => self.frame.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn begin_chart(&mut self, bracket: u8, start: u64) -> Result<(), SplitError> {
        let key = std::mem::take(&mut self.key);
        self.keys_bytes += key.text.len();
        let fits = self.charts.len() < self.charts_limit && self.keys_bytes <= KEYS_BYTES;
        if bracket != b'[' || !key.is_followed || !fits || !self.keys.insert(key.text.clone()) {
            return Err(SplitError::Style);
        }
        self.frame.push(b'0');
        self.chart = Some(Open {
            key: key.text,
            start,
            digester: Digester::new(&self.known.secret),
        });
        Ok(())
    }

    fn end_chart(&mut self, end: u64) {
        if let Some(chart) = self.chart.take() {
            self.charts.push(ChartSlice {
                key: chart.key,
                text: chart.start..end,
                items: None,
                digest: chart.digester.finish(),
                masked: !self.known.times_count,
            });
        }
    }

    /// All of it.
    fn finish(self) -> Result<Vec<ChartSlice>, SplitError> {
        let keys: Vec<&str> = self.charts.iter().map(|chart| chart.key.as_str()).collect();
        if keys.is_empty() || !is_frame(&self.frame, &keys) {
            return Err(SplitError::Style);
        }
        Ok(self.charts)
    }
}

/// Where the quote is that ends a text.
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

/// The first quote or backslash. Most texts are short, and to begin a search takes longer than to look at them.
fn quote_or_escape(bytes: &[u8]) -> Option<usize> {
    let (blocks, rest) = bytes.as_chunks();
    for (number, block) in blocks.iter().enumerate() {
        let lanes = u8x16::from(*block);
        let found = lanes.simd_eq(u8x16::splat(b'"')) | lanes.simd_eq(u8x16::splat(b'\\'));
        let found = found.to_bitmask();
        if found != 0 {
            return Some(number * block.len() + found.trailing_zeros() as usize);
        }
    }
    let in_rest = memchr2(b'"', b'\\', rest)?;
    Some(bytes.len() - rest.len() + in_rest)
}

/// Whether this is an index whose only `entries` are these keys, each with a 0 in the place of its chart.
fn is_frame(text: &[u8], keys: &[&str]) -> bool {
    struct Frame<'k>(&'k [&'k str]);

    impl<'de> Visitor<'de> for Frame<'_> {
        type Value = bool;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("the map that an index is")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
            let mut entries = 0;
            let mut are_these = true;
            while let Some(key) = map.next_key::<String>()? {
                if key == "entries" {
                    entries += 1;
                    let Entries(found) = map.next_value()?;
                    are_these &= found.iter().map(String::as_str).eq(self.0.iter().copied());
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(entries == 1 && are_these)
        }
    }

    // What is passed over would not be looked at for this.
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let is_frame = serde::Deserializer::deserialize_map(&mut deserializer, Frame(keys));
    is_frame.is_ok_and(|is_frame| is_frame) && deserializer.end().is_ok()
}

/// The keys of a map whose values are all 0.
struct Entries(Vec<String>);

impl<'de> serde::Deserialize<'de> for Entries {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'de> Visitor<'de> for Keys {
            type Value = Vec<String>;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("the charts of an index")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, u8>()? {
                    if value != 0 {
                        return Err(serde::de::Error::custom("a value is no chart"));
                    }
                    keys.push(key);
                }
                Ok(keys)
            }
        }

        deserializer.deserialize_map(Keys).map(Entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the text ends by looking at each byte.
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
    fn a_text_ends_at_its_quote_wherever_that_stands() {
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
