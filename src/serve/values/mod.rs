//! Values of a chart as a list of keys, and the differences of two files. Text in, keys out: no input or output.
//!
//! ```text
//!  text ─► events of the YAML parser ─┬─► keys, defaults, types, lines ─┬─► Keys ─► compare
//!                                     └─► comments ─────────────────────┘
//! ```
//! The text is a chart author's: its size, its nesting, and the number and length of its keys are limited, and aliases are not
//! expanded.

mod comments;
mod difference;
mod keys;
mod scalar;

use serde::Serialize;

pub(super) use difference::{compare, unified_diff};
pub(super) use keys::parse;

pub(super) const MAX_BYTES: usize = 1024 * 1024;
pub(super) const MAX_KEYS: usize = 5_000;
/// Of a default or a comment in a response.
pub(super) const MAX_TEXT_BYTES: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValueKey {
    /// As for `helm --set`, such as `ingress.hosts[0].host`.
    pub(super) path: String,
    /// `None`: a map or a list whose parts have keys of their own.
    pub(super) default: Option<String>,
    pub(super) kind: Kind,
    pub(super) comment: String,
    pub(super) line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Alias,
    Array,
    Boolean,
    Integer,
    Null,
    Number,
    Object,
    String,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Alias => "alias",
            Self::Array => "array",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Null => "null",
            Self::Number => "number",
            Self::Object => "object",
            Self::String => "string",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    /// In the order of the file. Maps and lists that are not empty are left out if they have no comment.
    pub(super) items: Vec<ValueKey>,
    /// True if some are left out because of a limit.
    pub(super) is_incomplete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ValuesError {
    #[error("it has more than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("line {line}: {message}")]
    Invalid { line: usize, message: String },
}
