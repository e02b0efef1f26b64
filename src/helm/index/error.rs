use std::{fmt, io};

use crate::text::{printable, truncate};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    /// In characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

/// Reasons to reject a whole index. Only [`DecodeError::Read`] and [`DecodeError::Sink`] can succeed when the same bytes are decoded again.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError<E> {
    #[error("not a Helm repository index: {0}; check that the repository URL followed by /index.yaml serves the index")]
    NotAnIndex(String),
    #[error("invalid YAML in index at {position}: {message}")]
    InvalidYaml { message: String, position: Position },
    /// The text starts like JSON but is neither valid JSON nor valid YAML.
    #[error("invalid JSON in index at {position}: {message}")]
    InvalidJson { message: String, position: Position },
    #[error("index exceeds limit near {position}: {limit}")]
    TooComplex { limit: String, position: Position },
    #[error("failed to read the downloaded index: {0}; check the disk of the spool directory")]
    Read(#[source] io::Error),
    #[error("{0}")]
    Sink(E),
}

impl<E> DecodeError<E> {
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotAnIndex(_) => "NotAnIndex",
            Self::InvalidYaml { .. } => "InvalidYAML",
            Self::InvalidJson { .. } => "InvalidJSON",
            Self::TooComplex { .. } => "TooComplex",
            Self::Read(_) => "SpoolFailed",
            Self::Sink(_) => "DecodeInterrupted",
        }
    }
}

#[derive(Debug)]
pub(super) enum ParserError {
    Invalid { message: String, position: Position },
    TooComplex { limit: String, position: Position },
    Read(io::Error),
}

impl ParserError {
    pub(super) fn invalid(message: &str, position: Position) -> Self {
        Self::Invalid {
            message: sanitized(message),
            position,
        }
    }

    pub(super) fn in_json<E>(self) -> DecodeError<E> {
        match self {
            Self::Invalid { message, position } => DecodeError::InvalidJson { message, position },
            other => other.into(),
        }
    }
}

impl<E> From<ParserError> for DecodeError<E> {
    fn from(rejected: ParserError) -> Self {
        match rejected {
            ParserError::Invalid { message, position } => Self::InvalidYaml { message, position },
            ParserError::TooComplex { limit, position } => Self::TooComplex { limit, position },
            ParserError::Read(error) => Self::Read(error),
        }
    }
}

/// Parser messages may quote the index, which is untrusted.
fn sanitized(message: &str) -> String {
    const SHOWN_BYTES: usize = 256;
    truncate(&printable(message), SHOWN_BYTES)
}
