use std::ops::Range;

use crate::helm::index::created;

const MAX_KEY_BYTES: usize = 250;

pub(super) fn indent(line: &[u8]) -> usize {
    line.iter().take_while(|byte| **byte == b' ').count()
}

/// Returns true for spaces only. A tab is not blank, because parsers treat it differently.
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\n'))
}

pub(super) fn is_deeper(line: &[u8], column: usize) -> bool {
    const AT_ONCE: usize = 16;
    match line.first_chunk::<AT_ONCE>() {
        // This runs for every line of an index.
        Some(front) if column < AT_ONCE => {
            let others = u128::from_le_bytes(*front) ^ u128::from_le_bytes([b' '; AT_ONCE]);
            others.trailing_zeros() as usize / 8 > column
        }
        _ => line
            .get(..=column)
            .is_some_and(|front| front.iter().all(|byte| *byte == b' ')),
    }
}

/// Returns true if a list item starts at this column. The text before it must be spaces.
pub(super) fn is_item(line: &[u8], column: usize) -> bool {
    matches!(line.get(column..), Some([b'-', b' ' | b'\n', ..] | [b'-']))
}

/// A plain word followed by a colon only. Keys count as text, whatever their YAML type.
pub(super) fn chart_key(line: &[u8], column: usize) -> Option<&str> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let key = line.get(column..)?.strip_suffix(b":")?;
    let (first, rest) = key.split_first()?;
    let is_word = first.is_ascii_alphanumeric()
        && rest
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/'));
    (is_word && key.len() <= MAX_KEY_BYTES).then(|| std::str::from_utf8(key).ok())?
}

/// Returns the range without quotes if the line has the form `created: "2020-01-01T00:00:00Z"` at this column.
pub(super) fn created(line: &[u8], column: usize) -> Option<Range<usize>> {
    const KEY: &[u8] = b"created: ";
    // Reject most lines cheaply.
    if line.get(column) != Some(&b'c') || indent(line) != column {
        return None;
    }
    let start = column + KEY.len();
    let value = line.get(column..)?.strip_prefix(KEY)?;
    let value = value.strip_suffix(b"\n").unwrap_or(value);
    let (start, value) = match value {
        [b'"', value @ .., b'"'] | [b'\'', value @ .., b'\''] => (start + 1, value),
        value => (start, value),
    };
    created::is_time(value).then(|| start..start + value.len())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("  argo-cd:\n", Some("argo-cd"))]
    #[case("  1.5:", Some("1.5"))]
    #[case("  team/chart:\n", Some("team/chart"))]
    #[case("  a: \n", None)]
    #[case("  a: []\n", None)]
    #[case("  a:\r\n", None)]
    #[case("  \"a\":\n", None)]
    #[case("  ? a:\n", None)]
    #[case("  <<:\n", None)]
    #[case("  -a:\n", None)]
    #[case("  :\n", None)]
    #[case("  a:b:\n", None)]
    #[case("   a:\n", None)]
    fn a_chart_starts_with_a_word_and_a_colon(#[case] line: &str, #[case] key: Option<&str>) {
        assert_eq!(chart_key(line.as_bytes(), 2), key);
    }

    #[rstest]
    #[case(
        "    created: \"2026-08-06T23:01:31.821658025Z\"\n",
        Some("2026-08-06T23:01:31.821658025Z")
    )]
    #[case("    created: 2020-01-01T00:00:00+02:00\n", Some("2020-01-01T00:00:00+02:00"))]
    #[case("    created: '2020-01-01T00:00:00Z'", Some("2020-01-01T00:00:00Z"))]
    #[case("    created: 2020-01-01T00:00:00Z:\n", None)]
    #[case("    created: 2020-01-01T00:00:00Z \n", None)]
    #[case("    created: 2020-01-01T00:00:00Z # then\n", None)]
    #[case("    created: \"2020-01-01T00:00:00Z\n", None)]
    #[case("    created: 2020-01-01\n", None)]
    #[case("    created: \"\n", None)]
    #[case("     created: 2020-01-01T00:00:00Z\n", None)]
    #[case("  - created: 2020-01-01T00:00:00Z\n", None)]
    #[case("    created: 2020-01-01T00:00:00é\n", None)]
    fn a_timestamp_must_have_the_exact_form(#[case] line: &str, #[case] time: Option<&str>) {
        assert_eq!(created(line.as_bytes(), 4).map(|place| &line[place]), time);
    }

    #[test]
    fn a_line_with_more_leading_spaces_is_deeper() {
        for spaces in 0..40 {
            for rest in ["", "\n", "a\n", "- a: b # much of it is left\n", "\t\n", "!\n", "\0\n"] {
                let line = " ".repeat(spaces) + rest;
                for column in 0..40 {
                    assert_eq!(
                        is_deeper(line.as_bytes(), column),
                        spaces > column,
                        "{line:?}, {column}"
                    );
                }
            }
        }
    }

    #[rstest]
    #[case("  - a: b\n", true)]
    #[case("  -\n", true)]
    #[case("  -", true)]
    #[case("  -a\n", false)]
    #[case("  --- a\n", false)]
    #[case("  ", false)]
    fn an_item_starts_with_a_dash_and_a_space(#[case] line: &str, #[case] is: bool) {
        assert_eq!(is_item(line.as_bytes(), 2), is);
    }
}
