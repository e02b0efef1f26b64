//! The lines of a slice.

use memchr::memchr;

use super::{Step, Unfamiliar};

/// Bytes of the longest key that is read here. The parser gives a key up after 1,024 characters.
const KEY_BYTES: usize = 256;

/// A line that isn't blank, without its break.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'s> {
    /// Spaces before its text.
    pub(super) indent: usize,
    /// From its first character that is no space.
    pub(super) text: &'s str,
    /// From 0.
    pub(super) number: usize,
    /// Empty lines right before it.
    pub(super) empty_before: usize,
}

impl<'s> Line<'s> {
    /// The rest of the line as one of its own, if it begins with a dash and a single space.
    pub(super) fn behind_dash(&self) -> Option<Self> {
        let text = self.text.strip_prefix("- ")?;
        (!text.starts_with(' ')).then_some(Self {
            indent: self.indent + 2,
            text,
            ..*self
        })
    }

    /// The key that it begins with, and what stands behind the colon. A key is a simple word, which needs no quotes and
    /// has no other meaning; `<<` is none.
    pub(super) fn key(&self) -> Option<(&'s str, &'s str)> {
        let bytes = self.text.as_bytes();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
        let length = bytes.iter().position(|byte| !is_part(*byte))?;
        if length > KEY_BYTES || !bytes[0].is_ascii_alphanumeric() && bytes[0] != b'_' || bytes[length] != b':' {
            return None;
        }
        let behind = &self.text[length + 1..];
        let value = behind.trim_start_matches(' ');
        (value.is_empty() || value.len() < behind.len()).then_some((&self.text[..length], value))
    }
}

/// Goes through the lines of a slice.
pub(super) struct Lines<'s> {
    /// What has not been looked at yet.
    rest: &'s str,
    /// Lines that have been looked at.
    seen: usize,
    line: Option<Line<'s>>,
    last_read: usize,
}

impl<'s> Lines<'s> {
    /// At none of them yet.
    pub(super) const fn new(slice: &'s str) -> Self {
        Self {
            rest: slice,
            seen: 0,
            line: None,
            last_read: 0,
        }
    }

    /// The line at hand. None: at the end.
    pub(super) const fn line(&self) -> Option<Line<'s>> {
        self.line
    }

    /// The line at hand, if it is indented just so.
    pub(super) fn at(&self, column: usize) -> Option<Line<'s>> {
        self.line.filter(|line| line.indent == column)
    }

    /// The line at hand, if it is indented deeper.
    pub(super) fn deeper_than(&self, column: usize) -> Option<Line<'s>> {
        self.line.filter(|line| line.indent > column)
    }

    /// The number of the last line with text before the one at hand, those of block scalars left out.
    pub(super) const fn last_read(&self) -> usize {
        self.last_read
    }

    /// Takes a part of the line at hand for the line.
    pub(super) const fn go_on_with(&mut self, part: Line<'s>) {
        self.line = Some(part);
    }

    /// Goes to the next line that is not empty. Spaces at its end, and lines of spaces alone, have meaning in some texts and
    /// none in others; Helm writes none, but in block scalars.
    pub(super) fn advance(&mut self) -> Step<()> {
        if let Some(line) = self.line.take() {
            self.last_read = line.number;
        }
        let mut empty_before = 0;
        while let Some(raw) = self.next_raw() {
            if raw.is_empty() {
                empty_before += 1;
                continue;
            }
            if raw.ends_with(' ') {
                return Err(Unfamiliar);
            }
            let text = raw.trim_start_matches(' ');
            self.line = Some(Line {
                indent: raw.len() - text.len(),
                text,
                number: self.seen - 1,
                empty_before,
            });
            break;
        }
        Ok(())
    }

    /// Takes the next line behind the one at hand, whatever it is. All lines end in a break, since the slice does.
    fn next_raw(&mut self) -> Option<&'s str> {
        let raw = self.peek_raw()?;
        self.skip_raw(raw);
        Some(raw)
    }

    /// The next line behind the one at hand, whatever it is.
    pub(super) fn peek_raw(&self) -> Option<&'s str> {
        memchr(b'\n', self.rest.as_bytes()).map(|end| &self.rest[..end])
    }

    /// Passes over the line that [`Self::peek_raw`] has shown.
    pub(super) fn skip_raw(&mut self, raw: &str) {
        self.rest = &self.rest[raw.len() + 1..];
        self.seen += 1;
    }
}
