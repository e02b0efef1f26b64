use memchr::memchr;

use super::{Step, UnsupportedStyle};

/// The parser allows at most 1,024 characters.
const MAX_KEY_BYTES: usize = 256;

#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'s> {
    pub(super) indent: usize,
    pub(super) text: &'s str,
    pub(super) number: usize,
    pub(super) empty_before: usize,
}

impl<'s> Line<'s> {
    /// Returns the text after a dash and a single space as a line of its own.
    pub(super) fn after_dash(&self) -> Option<Self> {
        let text = self.text.strip_prefix("- ")?;
        (!text.starts_with(' ')).then_some(Self {
            indent: self.indent + 2,
            text,
            ..*self
        })
    }

    /// Returns the key and the text after the colon. Accepts only plain words without a special meaning, so not `<<`.
    pub(super) fn key(&self) -> Option<(&'s str, &'s str)> {
        let bytes = self.text.as_bytes();
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
        let length = bytes.iter().position(|byte| !is_part(*byte))?;
        if length > MAX_KEY_BYTES || !bytes[0].is_ascii_alphanumeric() && bytes[0] != b'_' || bytes[length] != b':' {
            return None;
        }
        let rest = &self.text[length + 1..];
        let value = rest.trim_start_matches(' ');
        (value.is_empty() || value.len() < rest.len()).then_some((&self.text[..length], value))
    }
}

pub(super) struct Lines<'s> {
    rest: &'s str,
    seen: usize,
    line: Option<Line<'s>>,
    last_read: usize,
}

impl<'s> Lines<'s> {
    pub(super) const fn new(slice: &'s str) -> Self {
        Self {
            rest: slice,
            seen: 0,
            line: None,
            last_read: 0,
        }
    }

    pub(super) const fn line(&self) -> Option<Line<'s>> {
        self.line
    }

    pub(super) fn at(&self, column: usize) -> Option<Line<'s>> {
        self.line.filter(|line| line.indent == column)
    }

    pub(super) fn deeper_than(&self, column: usize) -> Option<Line<'s>> {
        self.line.filter(|line| line.indent > column)
    }

    /// Returns the number of the last line before the current one, ignoring block scalars.
    pub(super) const fn last_read(&self) -> usize {
        self.last_read
    }

    pub(super) const fn replace_line(&mut self, part: Line<'s>) {
        self.line = Some(part);
    }

    /// Moves to the next line that is not empty. Trailing spaces and lines of spaces are unsupported, because their
    /// meaning depends on the scalar; Helm writes them in block scalars only.
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
                return Err(UnsupportedStyle);
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

    fn next_raw(&mut self) -> Option<&'s str> {
        let raw = self.peek_raw()?;
        self.skip_raw(raw);
        Some(raw)
    }

    /// Returns the raw line after the current one. The slice ends with a line break, so every line does.
    pub(super) fn peek_raw(&self) -> Option<&'s str> {
        memchr(b'\n', self.rest.as_bytes()).map(|end| &self.rest[..end])
    }

    pub(super) fn skip_raw(&mut self, raw: &str) {
        self.rest = &self.rest[raw.len() + 1..];
        self.seen += 1;
    }
}
