//! Texts of chart authors as pages show them.

use jiff::Timestamp;

use crate::text::{is_control, is_invisible, printable, truncate};

/// Removes characters that hide or reorder text, and keeps line breaks and tabs. The result is not longer than the text.
pub(super) fn visible_lines(text: &str) -> String {
    let visible = text.chars().filter(|c| !is_invisible(*c) && *c != '\r');
    visible
        .map(|c| if is_control(c) && !matches!(c, '\n' | '\t') { ' ' } else { c })
        .collect()
}

/// Returns a text of one line.
pub(super) fn line(text: &str, limit: usize) -> String {
    truncate(&printable(&truncate(text, 4 * limit)), limit)
}

pub(super) fn date(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d").to_string()
}

/// Joins a path and parameters; empty values are left out.
pub(super) fn with_query(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(parameters.iter().filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    if query.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{query}")
    }
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
    fn parameters_are_encoded() {
        assert_eq!(with_query("/a", &[("q", ""), ("tab", "")]), "/a");
        assert_eq!(with_query("/a", &[("q", "x&y z"), ("tab", "values")]), "/a?q=x%26y+z&tab=values");
    }
}
