use regex::{Regex, RegexBuilder};

use super::error::OverrideError;
use crate::text::matches_wildcards;

/// Longest pattern. Names of objects are not longer.
pub(super) const MAX_BYTES: usize = 253;
/// Size of a compiled expression. A search takes up to this times the length of the name.
const MAX_COMPILED_BYTES: usize = 64 * 1024;

pub(super) enum NamePattern<'a> {
    /// Matches the whole name; `*` stands for any characters.
    Anchored(&'a str),
    /// Matches a part of the name, as KubeVela does.
    Unanchored(Regex),
    Nothing,
}

impl<'a> NamePattern<'a> {
    pub(super) fn new(text: &'a str, is_unanchored: bool) -> Result<Self, OverrideError> {
        if text.len() > MAX_BYTES {
            return Err(OverrideError::LongPattern(text.len()));
        }
        if !is_unanchored {
            return Ok(Self::Anchored(text));
        }
        // KubeVela takes the other characters as they are in a regular expression, and ignores an invalid one.
        let expression = RegexBuilder::new(&text.replace('*', ".*"))
            .size_limit(MAX_COMPILED_BYTES)
            .build();
        Ok(expression.map_or(Self::Nothing, Self::Unanchored))
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Anchored(pattern) => matches_wildcards(pattern, name),
            Self::Unanchored(expression) => expression.is_match(name),
            Self::Nothing => false,
        }
    }
}

pub(super) fn is_exact(text: &str, is_unanchored: bool) -> bool {
    const OPERATORS: [char; 12] = ['(', ')', '[', ']', '{', '}', '|', '+', '?', '^', '$', '\\'];
    !(text.is_empty() || text.contains('*') || is_unanchored && text.contains(OPERATORS))
}
