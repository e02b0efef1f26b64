//! What commands print: tables for people, JSON for programs.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use super::Failure;
use crate::text::printable;

/// Prints `text` to the standard output. A reader that has seen enough and closed its end (`| head`) is no failure.
///
/// # Errors
/// When the output can't be written.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("can't write the output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints `value` as indented JSON.
///
/// # Errors
/// When it can't be written.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text =
        serde_json::to_string_pretty(value).map_err(|error| Failure::failed(format!("can't write JSON: {error}")))?;
    print(&(escaped(&text) + "\n"))
}

/// JSON lets control characters beyond ASCII stand as they are, which terminals may obey; escaped they mean the same.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => out.push(c),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// A table without lines, as kubectl prints them: it can be read by people and cut by `awk`. Control characters in cells are not shown.
/// On a terminal they are wrapped to its width.
#[must_use]
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    for row in rows {
        table.add_row(row.iter().map(|cell| printable(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_can_not_drive_the_terminal() {
        let text = table(&["NAME"], [vec!["a\u{1b}[31mb\nc".to_owned()]]);
        assert!(text.contains("a [31mb c"), "{text:?}");
        assert_eq!(text.lines().count(), 2);
    }

    #[test]
    fn json_means_the_same_without_control_characters() {
        let hostile = "a\u{1b}[31m\u{9b}31m\u{7f}b";
        let text = escaped(&serde_json::to_string_pretty(&[hostile]).unwrap());
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [hostile]);
    }
}
