use std::collections::BTreeMap;
use std::time::Duration;

use similar::TextDiff;

use super::{Keys, MAX_BYTES, ValueKey};

/// After it, the rest of the text is one change: the diff is still correct, but not the shortest.
const DEADLINE: Duration = Duration::from_millis(200);
/// The deadline does not cover joining the changes.
const MAX_LINES: usize = 20_000;

/// Keys with a default that differ, in the order of the files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct Difference<'a> {
    pub(in crate::serve) added: Vec<&'a ValueKey>,
    pub(in crate::serve) removed: Vec<&'a ValueKey>,
    /// From and to.
    pub(in crate::serve) changed: Vec<(&'a ValueKey, &'a ValueKey)>,
}

pub(in crate::serve) fn compare<'a>(from: &'a Keys, to: &'a Keys) -> Difference<'a> {
    let (old, new) = (by_path(from), by_path(to));
    let mut difference = Difference::default();
    for (path, &key) in &new {
        match old.get(path).copied() {
            None => difference.added.push(key),
            Some(before) if before.default != key.default || before.kind != key.kind => {
                difference.changed.push((before, key));
            }
            Some(_) => {}
        }
    }
    let removed = old.iter().filter(|(path, _)| !new.contains_key(*path));
    difference.removed.extend(removed.map(|(_, key)| *key));
    difference.added.sort_by_key(|key| key.line);
    difference.changed.sort_by_key(|(_, key)| key.line);
    difference.removed.sort_by_key(|key| key.line);
    difference
}

/// Of equal paths the last counts, as for Helm.
fn by_path(keys: &Keys) -> BTreeMap<&str, &ValueKey> {
    let keys = keys.items.iter().filter(|key| key.default.is_some());
    keys.map(|key| (key.path.as_str(), key)).collect()
}

/// Returns a unified diff, empty if the texts are equal. `None`: a text is too long.
pub(in crate::serve) fn unified_diff(from: &str, to: &str, names: [&str; 2]) -> Option<String> {
    let is_too_long = |text: &str| text.len() > MAX_BYTES || line_ends(text) > MAX_LINES;
    if is_too_long(from) || is_too_long(to) {
        return None;
    }
    let [from_name, to_name] = names;
    let diff = TextDiff::configure().timeout(DEADLINE).diff_lines(from, to);
    let unified = diff.unified_diff().header(from_name, to_name).to_string();
    Some(unified)
}

/// Counts the ends of lines as the diff does: a carriage return alone is one too.
fn line_ends(text: &str) -> usize {
    text.matches(['\n', '\r']).count() - text.matches("\r\n").count()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::parse;
    use super::*;

    #[test]
    fn keys_are_added_removed_and_changed() {
        let from = parse("a: 1\nb: 2\nc: {d: 1}\nsame: x\n").unwrap();
        let to = parse("# new\nsame: x\na: \"1\"\nc: {e: 1}\nb: 2\n").unwrap();
        let found = compare(&from, &to);
        let paths = |keys: &[&ValueKey]| keys.iter().map(|key| key.path.clone()).collect::<Vec<_>>();
        assert_eq!(
            (paths(&found.added), paths(&found.removed)),
            (vec!["c.e".to_owned()], vec!["c.d".to_owned()])
        );
        let changed: Vec<_> = found.changed.iter().map(|(from, to)| (from.line, to.line)).collect();
        assert_eq!(changed, [(1, 3)]);
        assert_eq!(compare(&to, &to), Difference::default());
    }

    #[test]
    fn a_text_diff_is_unified() {
        let diff = unified_diff("a\nb\nc", "a\nB\nc", ["web 1.0.0", "web 1.1.0"]).unwrap();
        assert!(
            diff.starts_with("--- web 1.0.0\n+++ web 1.1.0\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c"),
            "{diff}"
        );
        assert_eq!(unified_diff("a\n", "a\n", ["x", "y"]).unwrap(), "");
    }

    #[test]
    fn long_texts_are_refused_and_different_ones_end_in_time() {
        assert_eq!(unified_diff(&"\n".repeat(MAX_LINES + 1), "", ["x", "y"]), None);
        assert_eq!(unified_diff(&"\r".repeat(MAX_LINES + 1), "", ["x", "y"]), None);
        assert!(unified_diff(&"\r\n".repeat(MAX_LINES), "", ["x", "y"]).is_some());
        assert_eq!(unified_diff("", &"x".repeat(MAX_BYTES + 1), ["x", "y"]), None);
        let text = |step: usize| {
            (0..MAX_LINES)
                .map(|line| format!("{}\n", line * step % 977))
                .collect::<String>()
        };
        let started = Instant::now();
        let diff = unified_diff(&text(3), &text(7), ["x", "y"]).unwrap();
        assert!(diff.len() > 1000);
        assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    }
}
