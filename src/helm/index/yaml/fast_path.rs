//! Reads one chart version in the block style that Helm writes, several times faster than the parser.
//!
//! The result is the same as with the parser ([`super::item`]). Anything unclear is left to the parser as
//! [`UnsupportedStyle`]. Tests over generated, real and mutated versions and a fuzz target compare both.

mod lines;
mod text;

use std::borrow::Cow;

use lines::Lines;

use super::YamlItem;
use crate::helm::index::limits::DecodeLimits;
use crate::helm::index::node::{self, Field, Node, Scalar};

/// Maximum nesting, because the reader is recursive. Real versions have three levels.
const MAX_LEVELS: usize = 32;

/// The parser's text for a missing value.
const MISSING_VALUE: &str = "~";

/// The text may be valid or not; the parser decides.
#[derive(Debug)]
struct UnsupportedStyle;

type Step<T> = Result<T, UnsupportedStyle>;

/// The first line starts with `column` spaces and `- `, all others are blank or deeper. None for unsupported styles.
pub(crate) fn read(slice: &[u8], column: usize, limits: &DecodeLimits) -> Option<YamlItem> {
    // This also bounds every single scalar.
    if slice.len() as u64 > limits.scalar_bytes {
        return None;
    }
    let mut reader = BlockReader {
        lines: Lines::new(text::printable(slice)?),
        levels: limits.depth.min(MAX_LEVELS),
        left: limits.chart_bytes,
        nodes: 0,
    };
    let mut item = reader.item(column).ok()?;
    item.nodes = reader.nodes;
    // The parser also counts the list around the item.
    (item.nodes < limits.nodes).then_some(item)
}

struct BlockReader<'s> {
    lines: Lines<'s>,
    levels: usize,
    left: u64,
    nodes: u64,
}

enum ValueTarget<'p> {
    Item(&'p mut YamlItem),
    Field(&'p mut Vec<(String, Node)>),
    Ignored,
}

impl ValueTarget<'_> {
    fn uses(&self, key: &str) -> bool {
        match self {
            Self::Item(_) => Field::of(key).is_some(),
            Self::Field(_) => node::is_used_nested_key(key),
            Self::Ignored => false,
        }
    }

    fn put(&mut self, key: &str, node: Node) {
        match self {
            Self::Item(item) => {
                if let Some(field) = Field::of(key) {
                    item.fields.put(field, node, false);
                }
            }
            Self::Field(map) => node::put(map, key, node, false),
            Self::Ignored => {}
        }
    }
}

impl<'s> BlockReader<'s> {
    fn item(&mut self, column: usize) -> Step<YamlItem> {
        self.lines.advance()?;
        let dash = self.lines.at(column).ok_or(UnsupportedStyle)?;
        let map = dash.after_dash().ok_or(UnsupportedStyle)?;
        self.lines.replace_line(map);
        let mut item = YamlItem::default();
        self.map(map.indent, 0, ValueTarget::Item(&mut item))?;
        match self.lines.line() {
            None => Ok(item),
            Some(_) => Err(UnsupportedStyle),
        }
    }

    fn begin(&mut self, level: usize) -> Step<()> {
        self.nodes += 1;
        if level > self.levels {
            return Err(UnsupportedStyle);
        }
        Ok(())
    }

    fn take(&mut self, text_bytes: usize) -> Step<()> {
        let bytes = size_of::<(String, Node)>() + text_bytes;
        self.left = self.left.checked_sub(bytes as u64).ok_or(UnsupportedStyle)?;
        Ok(())
    }

    /// Ends at the first line in another column, which the callers check. Recursive.
    fn map(&mut self, column: usize, level: usize, mut target: ValueTarget<'_>) -> Step<()> {
        self.begin(level)?;
        while let Some(line) = self.lines.at(column) {
            let (key, written) = line.key().ok_or(UnsupportedStyle)?;
            self.nodes += 1;
            let node = self.value(written, column, level + 1, target.uses(key))?;
            if let ValueTarget::Item(item) = &mut target
                && key == "created"
            {
                // Leave duplicate keys to the parser.
                if item.fields.has(Field::Created) {
                    return Err(UnsupportedStyle);
                }
                let is_text = matches!(node, Some(Node::Scalar(_))) && !written.is_empty() && !written.starts_with('|');
                item.created_line = (is_text && self.lines.last_read() == line.number).then_some(line.number);
            }
            if let Some(node) = node {
                target.put(key, node);
            }
        }
        Ok(())
    }

    /// Reads the value of a key in this column; `written` follows the colon. Returns None if it is not used.
    fn value(&mut self, written: &'s str, column: usize, level: usize, used: bool) -> Step<Option<Node>> {
        if !written.is_empty() {
            return self.inline(written, column, level, used);
        }
        self.lines.advance()?;
        match self.lines.line() {
            // A list may start in the column of its key.
            Some(line) if line.indent >= column && line.after_dash().is_some() => self.list(line.indent, level, used),
            Some(line) if line.indent > column => self.map_in_field(line.indent, level, used),
            _ => self.scalar(Cow::Borrowed(MISSING_VALUE), true, used),
        }
    }

    fn map_in_field(&mut self, column: usize, level: usize, used: bool) -> Step<Option<Node>> {
        if !used {
            self.map(column, level, ValueTarget::Ignored)?;
            return Ok(None);
        }
        self.take(0)?;
        let mut map = Vec::new();
        self.map(column, level, ValueTarget::Field(&mut map))?;
        Ok(Some(Node::Map(map)))
    }

    fn list(&mut self, column: usize, level: usize, used: bool) -> Step<Option<Node>> {
        self.begin(level)?;
        if used {
            self.take(0)?;
        }
        let mut list = Vec::new();
        while let Some(item) = self.lines.at(column).and_then(|line| line.after_dash()) {
            let node = if item.key().is_some() {
                self.lines.replace_line(item);
                self.map_in_field(item.indent, level + 1, used)?
            } else {
                self.inline(item.text, column, level + 1, used)?
            };
            list.extend(node);
        }
        Ok(used.then_some(Node::List(list)))
    }

    fn inline(&mut self, written: &'s str, column: usize, level: usize, used: bool) -> Step<Option<Node>> {
        let (text, plain) = match written.as_bytes() {
            b"[]" | b"{}" => {
                self.begin(level)?;
                self.lines.advance()?;
                if !used {
                    return Ok(None);
                }
                self.take(0)?;
                return Ok(Some(match written {
                    "[]" => Node::List(Vec::new()),
                    _ => Node::Map(Vec::new()),
                }));
            }
            [b'"', ..] => (text::double_quoted(&mut self.lines, &written[1..], column)?, false),
            [b'\'', ..] => (text::single_quoted(&mut self.lines, &written[1..], column)?, false),
            [b'|', ..] => (text::literal(&mut self.lines, &written[1..], column, used)?, false),
            _ => (text::plain(&mut self.lines, written, column)?, true),
        };
        self.scalar(text, plain, used)
    }

    fn scalar(&mut self, text: Cow<'s, str>, plain: bool, used: bool) -> Step<Option<Node>> {
        self.nodes += 1;
        if !used {
            return Ok(None);
        }
        self.take(text.len())?;
        let text = text.into_owned();
        Ok(Some(Node::Scalar(Scalar { text, plain })))
    }
}
