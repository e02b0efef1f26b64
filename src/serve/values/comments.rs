//! Comments of keys: above a key, or beside it. Markers of helm-docs and of Bitnami's generator are removed.

use std::collections::{BTreeMap, HashMap};

use super::MAX_TEXT_BYTES;
use crate::text::truncate;

#[derive(Default)]
pub(super) struct Comments<'a> {
    lines: BTreeMap<usize, Line<'a>>,
    /// Descriptions by path, of lines such as `## @param image.tag Tag of the image`.
    parameters: HashMap<String, &'a str>,
}

struct Line<'a> {
    text: &'a str,
    /// Beside content.
    is_right: bool,
}

impl<'a> Comments<'a> {
    /// Adds a comment, without its first `#`.
    pub(super) fn add(&mut self, line: usize, text: &'a str, is_right: bool) {
        let text = text.trim_start_matches('#').trim();
        if let Some((path, description)) = parameter(text) {
            self.parameters.insert(path.to_owned(), description);
        }
        self.lines.insert(line, Line { text, is_right });
    }

    /// Returns the comment of a key. `is_first`: no other key before it is on this line.
    pub(super) fn of(&self, path: &str, line: usize, is_first: bool) -> String {
        let comment = match self.parameters.get(path) {
            Some(description) => (*description).to_owned(),
            None if !is_first => return String::new(),
            None => self.around(line),
        };
        truncate(&comment, MAX_TEXT_BYTES)
    }

    fn around(&self, line: usize) -> String {
        let mut block = Vec::new();
        let mut at = line;
        while let Some(above) = at.checked_sub(1).and_then(|above| self.lines.get(&above))
            && !above.is_right
        {
            block.push(above.text);
            at -= 1;
        }
        block.reverse();
        // helm-docs reads from the last `--`; the lines before are often other keys that are commented out.
        if let Some(start) = block.iter().rposition(|text| text.starts_with("--")) {
            block.drain(..start);
        }
        let beside = self.lines.get(&line).filter(|comment| comment.is_right);
        block.extend(beside.map(|comment| comment.text));
        // Annotations such as `@default` are for generators.
        let texts = block.into_iter().filter(|text| !text.starts_with('@'));
        let texts = texts.map(|text| text.strip_prefix("--").unwrap_or(text).trim());
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

/// Returns path and description of `@param PATH [MODIFIERS] DESCRIPTION`.
fn parameter(text: &str) -> Option<(&str, &str)> {
    let (path, rest) = text
        .strip_prefix("@param ")?
        .trim_start()
        .split_once(char::is_whitespace)?;
    let rest = rest.trim();
    let description = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, description)) => description.trim(),
        None => rest,
    };
    Some((path, description))
}
