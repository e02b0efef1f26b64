//! Texts of chart authors as pages show them.

use crate::serve::api::keys;
use crate::serve::values::ValueKey;
use crate::text::{is_control, is_invisible, printable, truncate};

/// Removes characters that hide or reorder text, and keeps line breaks and tabs. The result is not longer than the text.
pub(super) fn visible_lines(text: &str) -> String {
    if text.bytes().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')) {
        return text.to_owned();
    }
    let visible = text.chars().filter(|c| !is_invisible(*c) && *c != '\r');
    visible
        .map(|c| {
            if is_control(c) && !matches!(c, '\n' | '\t') {
                ' '
            } else {
                c
            }
        })
        .collect()
}

/// Of a file in a page.
const MAX_FILE_BYTES: usize = 512 * 1024;
const MAX_FILE_LINES: usize = 10_000;

/// The start of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CutText {
    pub(super) text: String,
    pub(super) is_cut: bool,
}

/// Returns the lines of a file that a page shows, without an empty last one.
pub(super) fn cut_lines(text: &str) -> CutText {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let start = text.get(..text.floor_char_boundary(MAX_FILE_BYTES)).unwrap_or_default();
    let end = start.match_indices('\n').nth(MAX_FILE_LINES - 1);
    let shown = end.and_then(|(end, _)| start.get(..end)).unwrap_or(start);
    CutText {
        is_cut: shown.len() < text.len(),
        text: visible_lines(shown),
    }
}

/// Returns a text of one line.
pub(super) fn line(text: &str, limit: usize) -> String {
    truncate(&printable(&truncate(text, 4 * limit)), limit)
}

/// Returns the default of a key as pages show it; `None` for a map or a list whose parts have rows.
pub(super) fn default(key: &ValueKey) -> Option<String> {
    let default = visible_lines(&keys::default(key)?);
    Some(if default.is_empty() { "\"\"".to_owned() } else { default })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_and_hidden_characters_are_not() {
        assert_eq!(visible_lines("a:\r\n\tb\u{202e}\u{1b}c\n"), "a:\n\tb c\n");
        assert_eq!(line("a\nb\u{202e}c", 100), "a bc");
        assert!(line(&"é".repeat(1000), 20).len() <= 20);
    }

    #[test]
    fn a_long_file_is_cut() {
        let cut = |text: &str| {
            let CutText { text, is_cut } = cut_lines(text);
            (text.len(), text.split('\n').count(), is_cut)
        };
        assert_eq!(cut("a: 1\nb: 2\n"), (9, 2, false));
        assert_eq!(cut("a: 1\nb: 2"), (9, 2, false));
        assert_eq!(cut(""), (0, 1, false));
        assert_eq!(
            cut(&"\n".repeat(MAX_FILE_LINES)),
            (MAX_FILE_LINES - 1, MAX_FILE_LINES, false)
        );
        assert_eq!(
            cut(&"a\n".repeat(2 * MAX_FILE_LINES)),
            (2 * MAX_FILE_LINES - 1, MAX_FILE_LINES, true)
        );
        assert_eq!(cut(&"x".repeat(5 * 1024 * 1024)), (MAX_FILE_BYTES, 1, true));
    }
}
