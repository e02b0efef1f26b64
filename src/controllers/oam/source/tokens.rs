//! Splits CUE source into tokens, with matching brackets and the commas that line ends imply.

use super::{MAX_NESTING, MAX_TEMPLATE_BYTES};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// An identifier, a keyword or `_|_`.
    Word,
    Number,
    /// A string or bytes literal without interpolation.
    Text,
    /// The part of an interpolated literal up to the first `\(`.
    TextStart,
    /// The part between two interpolations.
    TextMiddle,
    /// The part after the last interpolation.
    TextEnd,
    Open,
    Close,
    /// A comma, written or implied by a line end.
    Comma,
    Operator,
}

#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: TokenKind,
    pub start: usize,
    pub end: usize,
    /// For `Open` and `TextStart`, the index of the token that closes it.
    pub partner: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Comment {
    pub start: usize,
    pub end: usize,
    /// Returns true if nothing but blanks precedes it on its line.
    pub is_alone: bool,
}

pub struct Tokens {
    pub tokens: Vec<Token>,
    pub comments: Vec<Comment>,
}

/// An error in the source that CUE would reject too, with the line it is on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct SyntaxError {
    pub line: usize,
    pub message: String,
}

impl SyntaxError {
    pub fn at(source: &str, position: usize, message: impl Into<String>) -> Self {
        let before = source.as_bytes().get(..position).unwrap_or_default();
        Self {
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            message: message.into(),
        }
    }
}

/// Splits source into tokens.
///
/// # Errors
///
/// Literals and brackets that are not closed, and sources beyond the limits of size and nesting.
pub fn tokenize(source: &str) -> Result<Tokens, SyntaxError> {
    if source.len() > MAX_TEMPLATE_BYTES {
        let message = format!("the template is larger than {} KiB", MAX_TEMPLATE_BYTES / 1024);
        return Err(SyntaxError { line: 1, message });
    }
    let mut lexer = Lexer {
        source,
        bytes: source.as_bytes(),
        at: 0,
        tokens: Vec::new(),
        comments: Vec::new(),
        open: Vec::new(),
    };
    lexer.run()?;
    Ok(Tokens {
        tokens: lexer.tokens,
        comments: lexer.comments,
    })
}

/// A bracket or an interpolation that is not closed yet.
struct Frame {
    token: usize,
    /// The literal to continue after the bracket of an interpolation.
    literal: Option<Quote>,
}

#[derive(Clone, Copy)]
struct Quote {
    byte: u8,
    hashes: usize,
    is_multiline: bool,
}

struct Lexer<'a> {
    source: &'a str,
    bytes: &'a [u8],
    at: usize,
    tokens: Vec<Token>,
    comments: Vec<Comment>,
    open: Vec<Frame>,
}

impl Lexer<'_> {
    fn run(&mut self) -> Result<(), SyntaxError> {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' => {
                    self.imply_comma();
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if self.peek(1) == Some(b'/') => self.comment(),
                b'"' | b'\'' => self.literal()?,
                b'#' if self.opens_raw_literal() => self.literal()?,
                b'{' | b'[' | b'(' => self.open()?,
                b'}' | b']' | b')' => self.close(byte)?,
                b',' => self.token(TokenKind::Comma, 1),
                b'0'..=b'9' => self.number(),
                b'.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) => self.number(),
                b'_' if self.bytes[self.at..].starts_with(b"_|_") => self.token(TokenKind::Word, 3),
                _ => self.word_or_operator(),
            }
        }
        self.imply_comma();
        match self.open.last() {
            Some(frame) => Err(self.error(self.tokens[frame.token].start, "a bracket is not closed")),
            None => Ok(()),
        }
    }

    fn peek(&self, offset: usize) -> Option<u8> {
        self.bytes.get(self.at + offset).copied()
    }

    fn error(&self, position: usize, message: &str) -> SyntaxError {
        SyntaxError::at(self.source, position, message)
    }

    fn token(&mut self, kind: TokenKind, length: usize) {
        let start = self.at;
        self.at += length;
        self.tokens.push(Token {
            kind,
            start,
            end: self.at,
            partner: 0,
        });
    }

    /// Adds the comma that CUE adds at a line end after an operand.
    fn imply_comma(&mut self) {
        let ends_operand = self.tokens.last().is_some_and(|token| match token.kind {
            TokenKind::Word | TokenKind::Number | TokenKind::Text | TokenKind::TextEnd | TokenKind::Close => true,
            TokenKind::Operator => &self.source[token.start..token.end] == "...",
            _ => false,
        });
        if ends_operand {
            self.token(TokenKind::Comma, 0);
        }
    }

    fn comment(&mut self) {
        let start = self.at;
        let length = memchr::memchr(b'\n', &self.bytes[start..]).unwrap_or(self.bytes.len() - start);
        let line = memchr::memrchr(b'\n', &self.bytes[..start]).map_or(0, |newline| newline + 1);
        self.comments.push(Comment {
            start,
            end: start + length,
            is_alone: self.source[line..start].trim().is_empty(),
        });
        self.at += length;
    }

    fn push(&mut self, frame: Frame) -> Result<(), SyntaxError> {
        if self.open.len() >= MAX_NESTING {
            let message = format!("brackets are nested more than {MAX_NESTING} deep");
            return Err(self.error(self.at, &message));
        }
        self.open.push(frame);
        Ok(())
    }

    fn open(&mut self) -> Result<(), SyntaxError> {
        self.push(Frame {
            token: self.tokens.len(),
            literal: None,
        })?;
        self.token(TokenKind::Open, 1);
        Ok(())
    }

    fn close(&mut self, bracket: u8) -> Result<(), SyntaxError> {
        let unexpected = format!("unexpected {:?}", char::from(bracket));
        let Some(frame) = self.open.pop() else {
            return Err(self.error(self.at, &unexpected));
        };
        if let Some(quote) = frame.literal {
            if bracket != b')' {
                return Err(self.error(self.at, &unexpected));
            }
            return self.continue_literal(quote, frame.token, self.at, self.at + 1);
        }
        let opening = self.tokens[frame.token].start;
        if !matches!(
            (self.bytes[opening], bracket),
            (b'{', b'}') | (b'[', b']') | (b'(', b')')
        ) {
            return Err(self.error(self.at, &unexpected));
        }
        self.tokens[frame.token].partner = self.tokens.len();
        self.token(TokenKind::Close, 1);
        Ok(())
    }

    fn opens_raw_literal(&self) -> bool {
        let rest = &self.bytes[self.at..];
        let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
        matches!(rest.get(hashes), Some(b'"' | b'\''))
    }

    fn literal(&mut self) -> Result<(), SyntaxError> {
        let start = self.at;
        let hashes = self.bytes[start..].iter().take_while(|byte| **byte == b'#').count();
        let byte = self.bytes[start + hashes];
        let rest = &self.bytes[start + hashes..];
        let is_multiline = rest.starts_with(&[byte; 3]) && matches!(rest.get(3), Some(b'\n' | b'\r'));
        let quote = Quote {
            byte,
            hashes,
            is_multiline,
        };
        let content = start + hashes + if is_multiline { 3 } else { 1 };
        self.continue_literal(quote, usize::MAX, start, content)
    }

    /// Reads a literal from `content` to its end or its next interpolation; `first` is its `TextStart`, if there is one.
    fn continue_literal(
        &mut self,
        quote: Quote,
        first: usize,
        start: usize,
        content: usize,
    ) -> Result<(), SyntaxError> {
        let is_first = first == usize::MAX;
        let mut at = content;
        loop {
            let Some(byte) = self.bytes.get(at).copied() else {
                return Err(self.error(start, "a string is not closed"));
            };
            let rest = &self.bytes[at..];
            if byte == b'\n' && !quote.is_multiline {
                return Err(self.error(start, "a string is not closed"));
            }
            if byte == b'\\' && is_repeated(&rest[1..], b'#', quote.hashes) {
                if rest.get(1 + quote.hashes) == Some(&b'(') {
                    let length = at + 2 + quote.hashes - start;
                    return self.interpolate(
                        quote,
                        if is_first { self.tokens.len() } else { first },
                        is_first,
                        length,
                    );
                }
                at += 2 + quote.hashes;
                continue;
            }
            let quotes = if quote.is_multiline { 3 } else { 1 };
            if is_repeated(rest, quote.byte, quotes) && is_repeated(&rest[quotes..], b'#', quote.hashes) {
                let end = at + quotes + quote.hashes;
                self.at = start;
                if !is_first {
                    self.tokens[first].partner = self.tokens.len();
                }
                self.token(if is_first { TokenKind::Text } else { TokenKind::TextEnd }, end - start);
                return Ok(());
            }
            at += 1;
        }
    }

    fn interpolate(&mut self, quote: Quote, first: usize, is_first: bool, length: usize) -> Result<(), SyntaxError> {
        self.push(Frame {
            token: first,
            literal: Some(quote),
        })?;
        let kind = if is_first {
            TokenKind::TextStart
        } else {
            TokenKind::TextMiddle
        };
        self.token(kind, length);
        Ok(())
    }

    fn number(&mut self) {
        let rest = &self.bytes[self.at..];
        let mut length = 1;
        while let Some(byte) = rest.get(length) {
            let continues = match byte {
                b'.' => rest.get(length + 1) != Some(&b'.'),
                b'+' | b'-' => matches!(rest[length - 1], b'e' | b'E') && !rest.starts_with(b"0x"),
                byte => byte.is_ascii_alphanumeric() || *byte == b'_',
            };
            if !continues {
                break;
            }
            length += 1;
        }
        self.token(TokenKind::Number, length);
    }

    fn word_or_operator(&mut self) {
        let rest = &self.source[self.at..];
        let is_part = |c: char| c == '_' || c == '$' || c.is_alphanumeric();
        let prefix = rest.find(|c| c != '_' && c != '#').unwrap_or(rest.len());
        let length = prefix + rest[prefix..].find(|c| !is_part(c)).unwrap_or(rest.len() - prefix);
        if length > 0 {
            return self.token(TokenKind::Word, length);
        }
        let operators = ["...", "==", "!=", "<=", ">=", "=~", "!~", "&&", "||"];
        let operator = operators.iter().find(|operator| rest.starts_with(**operator));
        let length = operator.map_or_else(
            || rest.chars().next().map_or(1, char::len_utf8),
            |operator| operator.len(),
        );
        self.token(TokenKind::Operator, length);
    }
}

fn is_repeated(bytes: &[u8], byte: u8, count: usize) -> bool {
    bytes.len() >= count && bytes[..count].iter().all(|one| *one == byte)
}
