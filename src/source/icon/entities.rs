//! Entities that an SVG declares: drawing programs do so for the names of namespaces.
//!
//! The parser bounds how far one entity expands into others, but not how often a long one is referred to.

use super::IconError;

const DECLARATION: &str = "<!ENTITY";

/// Bytes that all entities may expand to.
const EXPANDED_BYTES: usize = 1024 * 1024;

/// Declarations that are read, each of which may reach to the end of the text. Drawing programs make twenty.
const DECLARATIONS: usize = 256;

/// Bytes that the name of an entity may have.
const NAME_BYTES: usize = 1024;

/// Refuses entities that hold others, and those that would expand to too much.
pub(super) fn check(text: &str) -> Result<(), IconError> {
    let refused = |what: &str| Err(IconError::TooComplex(what.to_owned()));
    let mut longest = 0;
    // Each place that looks like a declaration is read as one, be it a comment: so none can be hidden.
    for (number, (place, _)) in text.match_indices(DECLARATION).enumerate() {
        if number == DECLARATIONS {
            return refused("it declares too many entities");
        }
        let Some(value) = value(&text[place + DECLARATION.len()..])? else {
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
fn value(rest: &str) -> Result<Option<&str>, IconError> {
    let Some((name, mut rest)) = word(rest)? else {
        return Ok(None);
    };
    if name == "%" {
        match word(rest)? {
            None => return Ok(None),
            Some((_, behind)) => rest = behind,
        }
    }
    let rest = rest.trim_start();
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        return Ok(None);
    };
    let value = &rest[quote.len_utf8()..];
    Ok(Some(value.split_once(quote).map_or(value, |(value, _)| value)))
}

/// The next word and what is behind it; none if the text ends with it.
fn word(text: &str) -> Result<Option<(&str, &str)>, IconError> {
    let text = text.trim_start();
    let beginning = &text[..text.floor_char_boundary(NAME_BYTES)];
    match beginning.find(|c: char| c.is_ascii_whitespace()) {
        Some(end) => Ok(Some((&text[..end], &text[end + 1..]))),
        None if beginning.len() < text.len() => Err(IconError::TooComplex(
            "the name of an entity in it is too long".to_owned(),
        )),
        None => Ok(None),
    }
}
