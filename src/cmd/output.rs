//! What commands print: tables for people, JSON for programs.

use std::io::{self, Write};

use comfy_table::{ContentArrangement, Table};
use serde::Serialize;

use url::Url;

use super::Failure;
use crate::text::{printable, public_url};

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

/// The URL of a repository as it may be shown: as it is written, unless it holds user information, a query or a fragment, which may be
/// secrets and are left out.
#[must_use]
pub fn shown_url(text: &str) -> String {
    match Url::parse(text.trim()) {
        Ok(url) if !url.cannot_be_a_base() => {
            let is_plain = url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none();
            if is_plain { printable(text) } else { public_url(&url) }
        }
        // What can't be parsed, or has no host (`me:secret@host` is a URL of the scheme `me`), can't be rid of a secret either.
        _ if text.contains(['@', '?', '#']) => "(not a valid URL)".to_owned(),
        _ => printable(text),
    }
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
    fn a_repository_s_url_is_shown_as_written_but_for_what_may_be_secret() {
        for plain in [
            "https://charts.example",
            "file:./harbour",
            "oci://charts.example/team",
            "no url",
            "",
        ] {
            assert_eq!(shown_url(plain), plain);
        }
        assert_eq!(
            shown_url("https://me:hush@charts.example/a?token=hush#hush"),
            "https://charts.example/a"
        );
        assert_eq!(shown_url("me:hush@charts.example"), "(not a valid URL)");
        assert_eq!(shown_url("://me:hush@x"), "(not a valid URL)");
    }

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
