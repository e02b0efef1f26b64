pub mod checks;
pub mod progress;

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table};
use jiff::Timestamp;
use serde::Serialize;

use crate::cmd::{Error, failed_to};
pub use crate::text::redacted_url;
use crate::text::{is_control, is_invisible, sanitize, truncate};

/// The maximum length of user-defined text in a cell, in bytes.
const MAX_CELL: usize = 100;

/// Prints to the standard output. A closed pipe, as with `| head`, is not an error.
pub fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(failed_to("write the output")(error)),
        _ => Ok(()),
    }
}

/// Prints each failure to the standard error, and fails with a summary if there is any.
pub fn fail_with_each(failures: &[String], summary: &str) -> Result<(), Error> {
    for failure in failures {
        print_failure(failure);
    }
    fail_if_any(failures.len(), summary)
}

/// Prints a failure to the standard error, without control characters.
pub fn print_failure(failure: &str) {
    eprintln!("{}", sanitize(failure));
}

/// Fails with a summary if there are failures, which have been printed.
pub fn fail_if_any(failures: usize, summary: &str) -> Result<(), Error> {
    match failures {
        0 => Ok(()),
        count => Err(Error::Failed(format!("{count} failures; {summary}"))),
    }
}

pub fn print_json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value)?;
    print(&(escape_controls(&text) + "\n"))
}

/// Escapes characters that JSON allows in strings, but that control a terminal or hide text.
fn escape_controls(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => out.push(c),
            c if is_control(c) || is_invisible(c) => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out
}

/// Formats a table without lines, as kubectl does. On a terminal, cells are wrapped to its width.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    for row in rows {
        table.add_row(row.iter().map(|cell| sanitize(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

/// Returns `-` instead of an empty cell, which would shift the columns for `awk`.
pub fn cell(text: &str) -> String {
    match text.trim() {
        "" => "-".to_owned(),
        text => truncate(text, MAX_CELL),
    }
}

/// Formats one line per entry below `title`, without control characters; empty if there are no entries.
pub fn section(title: &str, entries: impl IntoIterator<Item = String>) -> String {
    let lines: String = entries.into_iter().map(|entry| sanitize(&entry) + "\n").collect();
    if lines.is_empty() {
        lines
    } else {
        format!("{title}{lines}")
    }
}

/// Returns the error for a name that exists in several namespaces.
pub fn ambiguous<'a>(name: &str, namespaces: impl Iterator<Item = &'a str>) -> Error {
    let namespaces: Vec<&str> = namespaces.collect();
    Error::Failed(format!(
        "{name} exists in several namespaces ({}); choose one with -n",
        namespaces.join(", ")
    ))
}

/// Formats the time before or after `now`; `-` if there is none.
pub fn distance(time: Option<Timestamp>, now: Timestamp) -> String {
    let Some(time) = time else { return "-".to_owned() };
    let seconds = now.duration_since(time).as_secs();
    if seconds >= 0 {
        format!("{} ago", short_duration(seconds.unsigned_abs()))
    } else {
        format!("in {}", short_duration(seconds.unsigned_abs()))
    }
}

/// Formats the time since `created`; `-` if it is unknown. Clocks may differ, so a time in the future has age 0.
pub fn age(created: Option<Timestamp>, now: Timestamp) -> String {
    let age = |time| short_duration(u64::try_from(now.duration_since(time).as_secs()).unwrap_or(0));
    created.map_or_else(|| "-".to_owned(), age)
}

/// Formats a duration in the largest unit that leaves two or three digits, as kubectl does.
fn short_duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, "0s ago")]
    #[case(119, "119s ago")]
    #[case(120, "2m ago")]
    #[case(7_200, "2h ago")]
    #[case(172_800, "2d ago")]
    #[case(-600, "in 10m")]
    fn distances_have_the_largest_unit_with_two_digits(#[case] seconds: i64, #[case] expected: &str) {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let time = Timestamp::from_second(1_800_000_000 - seconds).unwrap();
        assert_eq!(distance(Some(time), now), expected);
    }

    #[test]
    fn an_unknown_time_is_a_dash() {
        assert_eq!(distance(None, Timestamp::UNIX_EPOCH), "-");
        assert_eq!(age(None, Timestamp::UNIX_EPOCH), "-");
    }

    #[test]
    fn ages_are_not_negative() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let age_since = |second| age(Timestamp::from_second(second).ok(), now);
        assert_eq!(age_since(1_799_999_700), "5m");
        assert_eq!(age_since(1_800_000_003), "0s");
    }

    #[test]
    fn cells_contain_no_control_characters() {
        let text = table(&["NAME"], [vec!["a\u{1b}[31mb\u{202e}\nc\u{200b}".to_owned()]]);
        assert!(text.contains("a [31mb c"), "{text:?}");
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let hostile = "a\u{1b}[31m\u{9b}31m\u{7f}\u{202e}\u{200b}\u{e0041}b";
        let text = escape_controls(&serde_json::to_string_pretty(&[hostile]).unwrap());
        assert!(
            !text.contains(|c| c != '\n' && (is_control(c) || is_invisible(c))),
            "{text:?}"
        );
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [hostile]);
    }
}
