//! Sanitizing and truncating untrusted text; hexadecimal encoding.

use url::Url;

/// Truncates `text` to at most `limit` bytes, including an ellipsis.
#[must_use]
pub fn truncate(text: &str, limit: usize) -> String {
    const ELLIPSIS: &str = "…";
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub(ELLIPSIS.len()));
    format!("{}{ELLIPSIS}", &text[..end])
}

/// Encodes bytes in lower case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 0xf)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// Decodes hexadecimal text of exactly `LENGTH` bytes.
#[must_use]
pub fn from_hex<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * LENGTH {
        return None;
    }
    let mut bytes = [0; LENGTH];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| {
            char::from(pair[at])
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        *byte = digit(0)? << 4 | digit(1)?;
    }
    Some(bytes)
}

/// Replaces control characters by spaces, to prevent terminal escape sequences.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Returns a URL without user information.
#[must_use]
pub fn without_user_info(url: &Url) -> Url {
    let mut url = url.clone();
    // Both fail only for URLs that cannot contain user information.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url
}

/// Returns a URL without user information, query and fragment, which may contain secrets.
#[must_use]
pub fn public_url(url: &Url) -> String {
    let mut url = without_user_info(url);
    url.set_query(None);
    url.set_fragment(None);
    printable(url.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncation_respects_the_limit_and_character_boundaries() {
        assert_eq!(truncate("short", 10), "short");
        assert_eq!(truncate("éééééé", 8), "éé…");
        assert!(truncate("éééééé", 8).len() <= 8);
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(printable("a\u{1b}[31mb\nc"), "a [31mb c");
    }

    #[test]
    fn a_public_url_contains_no_secrets() {
        let url = Url::parse("https://user:secret@example.com/charts?token=secret#secret").unwrap();
        assert_eq!(public_url(&url), "https://example.com/charts");
    }
}
