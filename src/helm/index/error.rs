//! Why an index is refused.

use std::{fmt, io};

use crate::text::{printable, truncate};

/// A place in the index, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "line {}, column {}", self.line, self.column)
    }
}

/// Why an index as a whole is refused. A bad entry never is a reason: it is skipped and named in the
/// [`Summary`](super::Summary).
///
/// Decoding the same bytes again fails in the same way, so none of these is worth a retry before the index changes;
/// [`DecodeError::Read`] and [`DecodeError::Sink`] alone say nothing about the index.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError<E> {
    /// It is something else: nothing at all, an HTML page, a list, a map without `entries`.
    #[error(
        "this is no Helm index: {0}; check that the repository's URL, with /index.yaml added, is where its index is served"
    )]
    NotAnIndex(String),
    /// It breaks the rules of YAML.
    #[error("the index is no valid YAML: {message} at {position}; its publisher has to repair it")]
    InvalidYaml {
        /// What is wrong there.
        message: String,
        /// Where.
        position: Position,
    },
    /// It begins like JSON and is neither JSON nor YAML.
    #[error("the index is no valid JSON: {message} at {position}; its publisher has to repair it")]
    InvalidJson {
        /// What is wrong there.
        message: String,
        /// Where.
        position: Position,
    },
    /// It breaks one of the [`DecodeLimits`](super::DecodeLimits).
    #[error("the index is refused as too complex: {limit}, near {position}; its publisher has to make it simpler")]
    TooComplex {
        /// The limit, as a sentence that names its value.
        limit: String,
        /// Where it was broken.
        position: Position,
    },
    /// The bytes could not be read back.
    #[error("reading the downloaded index failed: {0}; check the disk that holds the spool directory")]
    Read(#[source] io::Error),
    /// What takes the charts failed.
    #[error("{0}")]
    Sink(E),
}

impl<E> DecodeError<E> {
    /// The reason for a status condition.
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

/// Why a parser gives up, before the notation and the sink have a part in it.
#[derive(Debug)]
pub(super) enum Refused {
    Invalid { message: String, position: Position },
    TooComplex { limit: String, position: Position },
    Read(io::Error),
}

impl Refused {
    pub(super) fn invalid(message: &str, position: Position) -> Self {
        Self::Invalid {
            message: shown(message),
            position,
        }
    }

    /// As an error of JSON.
    pub(super) fn in_json<E>(self) -> DecodeError<E> {
        match self {
            Self::Invalid { message, position } => DecodeError::InvalidJson { message, position },
            other => other.into(),
        }
    }
}

/// As an error of YAML, the usual notation.
impl<E> From<Refused> for DecodeError<E> {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid { message, position } => Self::InvalidYaml { message, position },
            Refused::TooComplex { limit, position } => Self::TooComplex { limit, position },
            Refused::Read(error) => Self::Read(error),
        }
    }
}

/// A parser's message may quote the index, which anybody may have written.
fn shown(message: &str) -> String {
    const SHOWN_BYTES: usize = 256;
    truncate(&printable(message), SHOWN_BYTES)
}
