//! The memory that JSON takes once it is parsed: up to a hundred times its text.

use std::io;

use serde_json::Value;

/// A map of any size, and at most a struct: the first node of a B-tree, with the overhead of its allocation.
const OBJECT: u64 = 648;
/// Entries that a node has at least once it was split.
const ENTRIES_PER_NODE: u64 = 5;
/// Each further entry, in nodes that are half full.
const ENTRY: u64 = 136;
/// The first allocation of a list.
const LIST: u64 = 144;
/// A value in a list that grows by doubling.
const VALUE: u64 = 48;
/// A text, besides its bytes.
const TEXT: u64 = 32;

/// Counts without parsing. The text may come in parts. For invalid JSON, the count is of no use, and parsing fails.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParsedSize {
    objects: u64,
    entries: u64,
    lists: u64,
    values: u64,
    texts: u64,
    text_bytes: u64,
    is_in_text: bool,
    is_escaped: bool,
}

impl ParsedSize {
    fn add(&mut self, part: &[u8]) {
        for byte in part {
            if self.is_in_text {
                self.text_bytes += 1;
                match byte {
                    _ if self.is_escaped => self.is_escaped = false,
                    b'\\' => self.is_escaped = true,
                    b'"' => self.is_in_text = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => {
                    self.is_in_text = true;
                    self.texts += 1;
                }
                b'{' => self.objects += 1,
                b'[' => self.lists += 1,
                b':' => self.entries += 1,
                b',' => self.values += 1,
                _ => {}
            }
        }
    }

    #[must_use]
    pub const fn bytes(&self) -> u64 {
        let further_entries = self.entries.saturating_sub(ENTRIES_PER_NODE * self.objects);
        OBJECT * self.objects
            + ENTRY * further_entries
            + LIST * self.lists
            + VALUE * self.values
            + TEXT * self.texts
            + self.text_bytes
    }
}

impl io::Write for ParsedSize {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        self.add(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the memory that JSON takes once it is parsed.
#[must_use]
pub fn parsed_bytes(json: &str) -> u64 {
    let mut size = ParsedSize::default();
    size.add(json.as_bytes());
    size.bytes()
}

/// Returns the memory that a value takes, without a copy of it.
#[must_use]
pub fn parsed_size(value: &Value) -> u64 {
    let mut size = ParsedSize::default();
    // Neither a value nor the counter fails.
    let _ = serde_json::to_writer(&mut size, value);
    size.bytes()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// Returns what the allocations of a value take with the allocator of the C library.
    fn allocated(value: &Value) -> u64 {
        let allocation = |bytes: usize| (bytes.max(24) + 8).next_multiple_of(16) as u64;
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => allocation(text.len()),
            Value::Array(values) => {
                let list = match values.capacity() {
                    0 => 0,
                    capacity => allocation(capacity * size_of::<Value>()),
                };
                list + values.iter().map(allocated).sum::<u64>()
            }
            Value::Object(fields) => {
                // Ascending keys split each full node of eleven entries in the middle.
                let nodes = fields.len().div_ceil(6) as u64;
                let keys: u64 = fields.keys().map(|key| allocation(key.len())).sum();
                nodes * allocation(11 * (size_of::<String>() + size_of::<Value>()) + 16)
                    + keys
                    + fields.values().map(allocated).sum::<u64>()
            }
        }
    }

    #[rstest]
    #[case::maps_of_one_field(json!(vec![json!({ "a": 0 }); 1000]))]
    #[case::lists_of_one_value(json!(vec![json!([0]); 1000]))]
    #[case::numbers(json!(vec![0; 1000]))]
    #[case::texts(json!(vec!["a"; 1000]))]
    #[case::a_long_text(json!("a\\\"{[,:".repeat(10_000)))]
    #[case::a_large_map((0..1000).map(|number| (format!("{number:04}"), json!(number))).collect::<serde_json::Map<_, _>>().into())]
    #[case::an_object(json!({ "name": "web", "type": "webservice", "properties": { "image": "nginx", "ports": [{ "port": 80 }] } }))]
    fn the_size_is_at_least_what_is_allocated_and_not_much_more(#[case] value: Value) {
        let text = value.to_string();
        let parsed: Value = serde_json::from_str(&text).unwrap();
        let (counted, real) = (parsed_bytes(&text), allocated(&parsed));
        assert!(counted >= real && counted <= 2 * real + 1024, "{counted} for {real}");
    }

    #[test]
    fn text_may_come_in_parts() {
        let text = json!({ "a\"{": ["\\", 1, { "b": null }] }).to_string();
        let mut size = ParsedSize::default();
        for byte in text.as_bytes() {
            io::Write::write_all(&mut size, &[*byte]).unwrap();
        }
        assert_eq!(size.bytes(), parsed_bytes(&text));
        assert_eq!(size.bytes(), parsed_size(&serde_json::from_str(&text).unwrap()));
    }
}
