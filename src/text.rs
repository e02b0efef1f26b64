//! Sanitizing and truncating untrusted text; hexadecimal encoding; JSON as Go writes it, and its size; wildcards; detection
//! of SVGs.

mod svg;
mod wildcards;

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use url::Url;

pub use svg::is_svg;
pub use wildcards::matches_wildcards;

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

/// Counts the bytes of a value as JSON, without a copy of them.
#[must_use]
pub fn json_size(value: &impl Serialize) -> usize {
    struct Counter(usize);

    impl Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut counter = Counter(0);
    // Neither a value nor a type of the API fails, nor does the counter.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
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

/// Encodes JSON as Go's encoder does, which escapes HTML. Hashes of KubeVela are over such texts.
#[must_use]
pub fn go_json(value: &Value) -> String {
    let text = value.to_string();
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // They stand in strings only.
            '<' => escaped.push_str("\\u003c"),
            '>' => escaped.push_str("\\u003e"),
            '&' => escaped.push_str("\\u0026"),
            '\u{2028}' => escaped.push_str("\\u2028"),
            '\u{2029}' => escaped.push_str("\\u2029"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Longest text from outside that leaves this process, in bytes.
pub const MAX_TEXT: usize = 1024;

/// Makes text from outside safe for a status, an event, a log or a terminal: printable and at most [`MAX_TEXT`] bytes.
#[must_use]
pub fn sanitize(text: &str) -> String {
    // Bounds the work. The rest is cut anyway, unless most characters are invisible.
    let end = text.floor_char_boundary(4 * MAX_TEXT);
    truncate(&printable(&text[..end]), MAX_TEXT)
}

/// Makes text from outside safe like [`sanitize`], but keeps line breaks and at most `limit` bytes.
#[must_use]
pub fn sanitize_lines(text: &str, limit: usize) -> String {
    let end = text.floor_char_boundary(4 * limit);
    let lines: Vec<String> = text[..end].split('\n').map(printable).collect();
    truncate(&lines.join("\n"), limit)
}

/// Prevents terminal escape sequences, and removes characters that hide or reorder text.
#[must_use]
pub fn printable(text: &str) -> String {
    let visible = text.chars().filter(|c| !is_invisible(*c));
    visible.map(|c| if is_control(c) { ' ' } else { c }).collect()
}

/// Returns true for control characters and line separators.
#[must_use]
pub fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// No width, or another direction of text (Unicode's Cf and default-ignorable, without variation selectors).
#[must_use]
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
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

/// Returns the URL of a repository without user information, query and fragment, which may contain secrets.
#[must_use]
pub fn redacted_url(text: &str) -> String {
    match Url::parse(text.trim()) {
        Ok(url) if !url.cannot_be_a_base() => {
            let may_have_secrets = !url.username().is_empty()
                || url.password().is_some()
                || url.query().is_some()
                || url.fragment().is_some();
            if may_have_secrets {
                public_url(&url)
            } else {
                printable(text)
            }
        }
        // `me:secret@host` is parsed as a URL of scheme `me` without host.
        _ if text.contains(['@', '?', '#']) => "(not a valid URL)".to_owned(),
        _ => printable(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_encoded_as_go_does() {
        let value = json!({ "b": "<a>&\u{2028}\u{2029}\"é", "a": 1 });
        assert_eq!(go_json(&value), r#"{"a":1,"b":"\u003ca\u003e\u0026\u2028\u2029\"é"}"#);
    }

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
    fn characters_that_hide_or_reorder_text_are_removed() {
        let hostile = "a\u{202e}b\u{2066}c\u{200b}d\u{feff}e\u{61c}f\u{e0041}g\u{ad}h";
        assert_eq!(printable(hostile), "abcdefgh");
        assert_eq!(printable("a\u{2028}b\u{9b}c\u{7f}d\te"), "a b c d e");
        for visible in ["Ünïcödé", "日本語", "שלום", "🚢 e\u{301}"] {
            assert_eq!(printable(visible), visible);
        }
    }

    #[test]
    fn sanitized_text_is_short_and_printable() {
        let hostile = "\u{202e}\u{1b}[31mx".repeat(10_000);
        let clean = sanitize(&hostile);
        assert!(clean.len() <= MAX_TEXT && clean.ends_with('…'), "{} bytes", clean.len());
        assert!(!clean.contains(|c| is_control(c) || is_invisible(c)));
        assert_eq!(sanitize("short"), "short");
    }

    #[test]
    fn sanitized_lines_keep_their_breaks() {
        assert_eq!(sanitize_lines("a\u{1b}b\nc\rd\n", 20), "a b\nc d\n");
        let clean = sanitize_lines(&"\u{202e}x\n".repeat(10_000), 100);
        assert!(
            clean.len() <= 100 && clean.starts_with("x\nx\n") && clean.ends_with('…'),
            "{clean:?}"
        );
    }

    #[test]
    fn a_public_url_contains_no_secrets() {
        let url = Url::parse("https://user:secret@example.com/charts?token=secret#secret").unwrap();
        assert_eq!(public_url(&url), "https://example.com/charts");
    }

    #[test]
    fn a_url_is_unchanged_unless_it_may_contain_secrets() {
        for plain in [
            "https://charts.example",
            "file:./harbour",
            "oci://charts.example/team",
            "no url",
            "",
        ] {
            assert_eq!(redacted_url(plain), plain);
        }
        assert_eq!(
            redacted_url("https://me:hush@charts.example/a?token=hush#hush"),
            "https://charts.example/a"
        );
        assert_eq!(redacted_url("me:hush@charts.example"), "(not a valid URL)");
        assert_eq!(redacted_url("://me:hush@x"), "(not a valid URL)");
    }
}
