//! Entities that an SVG declares: drawing programs do so for the names of namespaces.
//!
//! The parser bounds how far one entity expands into others, but not how often a long one is referred to.

use super::IconError;

const DECLARATION: &str = "<!ENTITY";

/// Bytes that all entities may expand to.
const EXPANDED_BYTES: usize = 1024 * 1024;

/// Refuses entities that hold others, and those that would expand to too much.
pub(super) fn check(text: &str) -> Result<(), IconError> {
    let refused = |what: &str| Err(IconError::TooComplex(what.to_owned()));
    let mut longest = 0;
    // Each place that looks like a declaration is read as one, be it a comment: so none can be hidden.
    for (place, _) in text.match_indices(DECLARATION) {
        let Some(value) = value(&text[place + DECLARATION.len()..]) else {
            continue;
        };
        if value.contains('&') {
            return refused("an entity in it holds another");
        }
        longest = longest.max(value.len());
    }
    if longest.saturating_mul(text.matches('&').count()) > EXPANDED_BYTES {
        return refused("its entities expand too far");
    }
    Ok(())
}

/// The text of the declaration whose name comes first in the rest; none if it only names a file, which is not read.
fn value(rest: &str) -> Option<&str> {
    let (name, rest) = rest.trim_start().split_once(|c: char| c.is_ascii_whitespace())?;
    let rest = if name == "%" {
        rest.trim_start().split_once(|c: char| c.is_ascii_whitespace())?.1
    } else {
        rest
    };
    let rest = rest.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let value = &rest[quote.len_utf8()..];
    Some(value.split_once(quote).map_or(value, |(value, _)| value))
}
