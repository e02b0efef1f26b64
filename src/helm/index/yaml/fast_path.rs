//! One chart version in the plain block style that Helm writes, read line by line: several times as fast as by the parser.
//!
//! What it reads means the same to the parser; whatever it is not sure of, it leaves to the parser ([`super::item`]). So
//! it knows no errors, only what is [`Unfamiliar`]. All its rules are held against the parser by tests over made, real and
//! mutated versions, and by a fuzz target.

mod lines;
mod text;

use std::borrow::Cow;

use lines::Lines;

use super::Item;
use crate::helm::index::limits::DecodeLimits;
use crate::helm::index::node::{self, Field, Node, Scalar};

/// Levels of lists and maps below a version that are read here. Real versions have three; each takes some stack.
const LEVELS: usize = 32;

/// What the parser makes of a value that is not there.
const NOTHING: &str = "~";

/// It isn't in the style that is read here. Nothing else is known: it may be valid or not.
#[derive(Debug)]
struct Unfamiliar;

type Step<T> = Result<T, Unfamiliar>;

/// Reads the item that `slice` holds: lines of which the first begins with `column` spaces and `- `, and all others are
/// blank or indented deeper than `column`. None: it isn't in the style that this reads.
pub(crate) fn read(slice: &[u8], column: usize, limits: &DecodeLimits) -> Option<Item> {
    // So no text in it is too long, and no part of it keeps the parser going for too long.
    if slice.len() as u64 > limits.scalar_bytes {
        return None;
    }
    let mut reader = Reader {
        lines: Lines::new(text::printable(slice)?),
        levels: limits.depth.min(LEVELS),
        left: limits.chart_bytes,
        nodes: 0,
    };
    let mut item = reader.item(column).ok()?;
    item.nodes = reader.nodes;
    // To the parser, an item that stands alone stands in a list, which counts too.
    (item.nodes < limits.nodes).then_some(item)
}

struct Reader<'s> {
    lines: Lines<'s>,
    levels: usize,
    /// Bytes that the version may still take.
    left: u64,
    nodes: u64,
}

/// What the values of a map are wanted for.
enum Place<'p> {
    Item(&'p mut Item),
    /// They are part of a field.
    Field(&'p mut Vec<(String, Node)>),
    Nowhere,
}

impl Place<'_> {
    fn wants(&self, key: &str) -> bool {
        match self {
            Self::Item(_) => Field::of(key).is_some(),
            Self::Field(_) => node::is_wanted_below_a_field(key),
            Self::Nowhere => false,
        }
    }

    /// Of two equal keys the last wins, as by the parser.
    fn put(&mut self, key: &str, node: Node) {
        match self {
            Self::Item(item) => {
                if let Some(field) = Field::of(key) {
                    item.fields.put(field, node, false);
                }
            }
            Self::Field(map) => node::put(map, key, node, false),
            Self::Nowhere => {}
        }
    }
}

impl<'s> Reader<'s> {
    fn item(&mut self, column: usize) -> Step<Item> {
        self.lines.advance()?;
        let dash = self.lines.at(column).ok_or(Unfamiliar)?;
        let map = dash.behind_dash().ok_or(Unfamiliar)?;
        self.lines.go_on_with(map);
        let mut item = Item::default();
        self.map(map.indent, 0, Place::Item(&mut item))?;
        match self.lines.line() {
            None => Ok(item),
            Some(_) => Err(Unfamiliar),
        }
    }

    /// A list or map begins, so many levels below the version.
    fn begin(&mut self, level: usize) -> Step<()> {
        self.nodes += 1;
        if level > self.levels {
            return Err(Unfamiliar);
        }
        Ok(())
    }

    /// Counts what the version makes us hold, like the other way.
    fn take(&mut self, text_bytes: usize) -> Step<()> {
        let bytes = size_of::<(String, Node)>() + text_bytes;
        self.left = self.left.checked_sub(bytes as u64).ok_or(Unfamiliar)?;
        Ok(())
    }

    /// The map whose first key stands on the line at hand. It ends at the first line in another column; whether that one
    /// stands where it may is found out further up, where nobody goes on with it if not. Recursive, within the levels.
    fn map(&mut self, column: usize, level: usize, mut place: Place<'_>) -> Step<()> {
        self.begin(level)?;
        while let Some(line) = self.lines.at(column) {
            let (key, written) = line.key().ok_or(Unfamiliar)?;
            self.nodes += 1;
            let node = self.value(written, column, level + 1, place.wants(key))?;
            if let Place::Item(item) = &mut place
                && key == "created"
            {
                // Which of two counts is not decided here.
                if item.fields.has(Field::Created) {
                    return Err(Unfamiliar);
                }
                let is_text = matches!(node, Some(Node::Scalar(_))) && !written.is_empty() && !written.starts_with('|');
                item.created_line = (is_text && self.lines.last_read() == line.number).then_some(line.number);
            }
            if let Some(node) = node {
                place.put(key, node);
            }
        }
        Ok(())
    }

    /// The value of a key in this column, of which `written` stands behind the key. None: it isn't wanted.
    fn value(&mut self, written: &'s str, column: usize, level: usize, wanted: bool) -> Step<Option<Node>> {
        if !written.is_empty() {
            return self.inline(written, column, level, wanted);
        }
        self.lines.advance()?;
        match self.lines.line() {
            // A list may stand in the column of its key.
            Some(line) if line.indent >= column && line.behind_dash().is_some() => {
                self.list(line.indent, level, wanted)
            }
            Some(line) if line.indent > column => self.map_in_field(line.indent, level, wanted),
            _ => self.scalar(Cow::Borrowed(NOTHING), true, wanted),
        }
    }

    fn map_in_field(&mut self, column: usize, level: usize, wanted: bool) -> Step<Option<Node>> {
        if !wanted {
            self.map(column, level, Place::Nowhere)?;
            return Ok(None);
        }
        self.take(0)?;
        let mut map = Vec::new();
        self.map(column, level, Place::Field(&mut map))?;
        Ok(Some(Node::Map(map)))
    }

    /// The list whose first dash stands on the line at hand. It ends as a map does.
    fn list(&mut self, column: usize, level: usize, wanted: bool) -> Step<Option<Node>> {
        self.begin(level)?;
        if wanted {
            self.take(0)?;
        }
        let mut list = Vec::new();
        while let Some(item) = self.lines.at(column).and_then(|line| line.behind_dash()) {
            let node = if item.key().is_some() {
                self.lines.go_on_with(item);
                self.map_in_field(item.indent, level + 1, wanted)?
            } else {
                self.inline(item.text, column, level + 1, wanted)?
            };
            list.extend(node);
        }
        Ok(wanted.then_some(Node::List(list)))
    }

    /// What begins on the line at hand, behind the key or dash in this column.
    fn inline(&mut self, written: &'s str, column: usize, level: usize, wanted: bool) -> Step<Option<Node>> {
        let (text, plain) = match written.as_bytes() {
            b"[]" | b"{}" => {
                self.begin(level)?;
                self.lines.advance()?;
                if !wanted {
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
            [b'|', ..] => (text::literal(&mut self.lines, &written[1..], column, wanted)?, false),
            _ => (text::plain(&mut self.lines, written, column)?, true),
        };
        self.scalar(text, plain, wanted)
    }

    fn scalar(&mut self, text: Cow<'s, str>, plain: bool, wanted: bool) -> Step<Option<Node>> {
        self.nodes += 1;
        if !wanted {
            return Ok(None);
        }
        self.take(text.len())?;
        let text = text.into_owned();
        Ok(Some(Node::Scalar(Scalar { text, plain })))
    }
}
