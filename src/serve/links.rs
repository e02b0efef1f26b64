//! Paths in responses.

use std::fmt::Write as _;

/// Encodes a segment of a path (RFC 3986).
pub(super) fn segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string never fails.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_with_a_meaning_in_a_url_are_encoded() {
        assert_eq!(segment("team-a_1.0~x"), "team-a_1.0~x");
        assert_eq!(segment("a/b?c#d%\"é\0"), "a%2Fb%3Fc%23d%25%22%C3%A9%00");
    }
}
