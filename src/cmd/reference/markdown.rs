/// Returns plain text for a paragraph or a cell of a table. Code between backquotes stays code.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_code = false;
    for c in text.chars() {
        match c {
            '`' => {
                is_code = !is_code;
                out.push(c);
            }
            '\n' => out.push(' '),
            // Ends a cell even within code.
            '|' => out.push_str("\\|"),
            '<' | '*' | '[' if !is_code => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

/// Returns text as code for a cell; nothing for an empty text, which Markdown has no code for.
pub(super) fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    format!("`{}`", text.replace('|', "\\|"))
}

pub(super) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(&header.map(str::to_owned));
    text.push_str(&format!("|{}\n", "---|".repeat(N)));
    for row in rows {
        text.push_str(&line(&row));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_outside_of_code() {
        assert_eq!(escape("-<shard> of `<a>|*`\nor *"), r"-\<shard> of `<a>\|*` or \*");
        assert_eq!(code("a|b"), r"`a\|b`");
        assert_eq!(code(""), "");
    }

    #[test]
    fn a_table_has_a_line_for_each_row() {
        let rows = [["1".to_owned(), "2".to_owned()]];
        assert_eq!(table(["a", "b"], rows), "| a | b |\n|---|---|\n| 1 | 2 |\n\n");
    }
}
