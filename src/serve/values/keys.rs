use std::fmt::Write as _;

use granit_parser::{Event, Parser, Placement};

use super::comments::Comments;
use super::scalar::kind;
use super::{Keys, Kind, MAX_BYTES, MAX_KEYS, ValueKey, ValuesError};

const MAX_DEPTH: usize = 100;
/// Lines of comments between a key and its value: the parser holds them, and each takes 100 times the memory of its text.
const MAX_COMMENTS: usize = 10_000;
/// Longer paths are left out: each key repeats the names above it.
const MAX_PATH_BYTES: usize = 512;

/// Reads the keys of the first document, as Helm does.
pub(in crate::serve) fn parse(text: &str) -> Result<Keys, ValuesError> {
    if text.len() > MAX_BYTES {
        return Err(ValuesError::TooLarge);
    }
    let options = granit_parser::options! {
        emit_comments: true,
        max_buffered_comment_events: MAX_COMMENTS,
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
    };
    let (mut reader, mut comments) = (Reader::default(), Comments::default());
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| ValuesError::Invalid {
            line: error.marker().line(),
            message: error.info(),
        })?;
        let line = span.start.line();
        match event {
            // Without its `#`.
            Event::Comment(_, placement) => {
                let comment = span.slice(text).and_then(|comment| comment.get(1..));
                comments.add(line, comment.unwrap_or_default(), placement == Placement::Right);
            }
            Event::Scalar(value, style, _, tag) => reader.leaf(line, kind(&value, style, tag.as_deref()), &value),
            Event::Alias(_) => reader.leaf(line, Kind::Alias, span.slice(text).unwrap_or("*")),
            Event::SequenceStart(..) => reader.open(line, Kind::Array),
            Event::MappingStart(..) => reader.open(line, Kind::Object),
            Event::SequenceEnd | Event::MappingEnd => reader.close(),
            Event::DocumentEnd => break,
            _ => {}
        }
        if reader.items.len() >= MAX_KEYS {
            reader.is_incomplete = true;
            break;
        }
    }
    Ok(reader.finish(&comments))
}

/// A map or a list that is open.
struct Frame {
    /// Length of its path.
    base: usize,
    position: Position,
    is_empty: bool,
    item: Option<usize>,
}

enum Position {
    Key,
    /// After the key on this line.
    Value(usize),
    Item(usize),
}

#[derive(Default)]
struct Reader {
    items: Vec<ValueKey>,
    frames: Vec<Frame>,
    /// Of the last key.
    path: String,
    /// Number of open maps and lists that are left out.
    skipped: usize,
    is_incomplete: bool,
}

impl Reader {
    fn leaf(&mut self, line: usize, kind: Kind, text: &str) {
        if self.skipped > 0 {
            return;
        }
        if self.is_at_key() {
            self.begin_key(line, text);
            return;
        }
        let line = self.begin_value(line);
        if self.path.len() > MAX_PATH_BYTES {
            self.is_incomplete = true;
        } else {
            // `~`, and no text at all, are the same.
            let text = if kind == Kind::Null { "null" } else { text };
            self.add(line, kind, Some(text.to_owned()));
        }
    }

    fn open(&mut self, line: usize, kind: Kind) {
        if self.skipped > 0 {
            self.skipped += 1;
            return;
        }
        if self.is_at_key() {
            // A map or a list as key has no path.
            self.begin_key(line, "?");
            self.skipped = 1;
            return;
        }
        let line = self.begin_value(line);
        if self.path.len() > MAX_PATH_BYTES {
            self.is_incomplete = true;
            self.skipped = 1;
            return;
        }
        let item = self.add(line, kind, None);
        self.frames.push(Frame {
            base: self.path.len(),
            position: if kind == Kind::Array {
                Position::Item(0)
            } else {
                Position::Key
            },
            is_empty: true,
            item,
        });
    }

    fn close(&mut self) {
        if self.skipped > 0 {
            self.skipped -= 1;
            return;
        }
        let Some(frame) = self.frames.pop().filter(|frame| frame.is_empty) else {
            return;
        };
        if let Some(item) = frame.item.and_then(|item| self.items.get_mut(item)) {
            let text = if item.kind == Kind::Array { "[]" } else { "{}" };
            item.default = Some(text.to_owned());
        }
    }

    fn is_at_key(&self) -> bool {
        let position = self.frames.last().map(|frame| &frame.position);
        matches!(position, Some(Position::Key))
    }

    fn begin_key(&mut self, line: usize, key: &str) {
        let Some(frame) = self.frames.last_mut() else { return };
        frame.position = Position::Value(line);
        self.path.truncate(frame.base);
        if !self.path.is_empty() {
            self.path.push('.');
        }
        for c in key.chars() {
            if matches!(c, '.' | ',' | '=' | '[' | ']' | '\\') {
                self.path.push('\\');
            }
            self.path.push(c);
        }
    }

    /// Moves the position of the parent behind the value. Returns the line of its key.
    fn begin_value(&mut self, line: usize) -> usize {
        let Some(frame) = self.frames.last_mut() else {
            return line;
        };
        frame.is_empty = false;
        match frame.position {
            Position::Key => line,
            Position::Value(line_of_key) => {
                frame.position = Position::Key;
                line_of_key
            }
            Position::Item(number) => {
                frame.position = Position::Item(number + 1);
                self.path.truncate(frame.base);
                // Writing to a string never fails.
                let _ = write!(self.path, "[{number}]");
                line
            }
        }
    }

    fn add(&mut self, line: usize, kind: Kind, default: Option<String>) -> Option<usize> {
        if self.path.is_empty() {
            // The document itself.
            return None;
        }
        self.items.push(ValueKey {
            path: self.path.clone(),
            default,
            kind,
            comment: String::new(),
            line,
        });
        Some(self.items.len() - 1)
    }

    fn finish(self, comments: &Comments<'_>) -> Keys {
        let mut last_line = 0;
        let with_comment = |mut item: ValueKey| {
            item.comment = comments.of(&item.path, item.line, item.line != last_line);
            last_line = item.line;
            item
        };
        let items = self.items.into_iter().map(with_comment);
        Keys {
            items: items
                .filter(|item| item.default.is_some() || !item.comment.is_empty())
                .collect(),
            is_incomplete: self.is_incomplete,
        }
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
