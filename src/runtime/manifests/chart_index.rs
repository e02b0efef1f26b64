//! Recognizes the index of a chart repository, which is no manifest.

/// The part of a file that tells an index.
pub const HEAD: usize = 4096;

/// Returns true for the beginning of a mapping with `entries` and without `kind`, in YAML or JSON.
pub fn is_index(head: &[u8]) -> bool {
    let head = &head[..head.len().min(HEAD)];
    let is_json = head.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let keys = if is_json { json_keys(head) } else { yaml_keys(head) };
    let has = |wanted: &str| keys.contains(&wanted.as_bytes());
    has("entries") && !has("kind")
}

/// Returns the keys at the beginning of lines, of all documents.
fn yaml_keys(text: &[u8]) -> Vec<&[u8]> {
    let lines = text.split(|byte| *byte == b'\n');
    let keys = lines.filter_map(|line| line.split(|byte| *byte == b':').next());
    let unquoted = keys.map(|key| {
        let quoted = |quote: u8| key.strip_prefix(&[quote]).and_then(|key| key.strip_suffix(&[quote]));
        quoted(b'"').or(quoted(b'\'')).unwrap_or(key)
    });
    unquoted.collect()
}

/// Returns keys and values of the outermost map. A value is never mistaken for `entries`, which has a list or map.
fn json_keys(text: &[u8]) -> Vec<&[u8]> {
    let (mut keys, mut depth, mut at) = (Vec::new(), 0_usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                let start = at + 1;
                at = end_of_text(text, start);
                let after = text.get(at + 1..).unwrap_or_default();
                let next = after.iter().find(|byte| !byte.is_ascii_whitespace());
                if depth == 1 && next == Some(&b':') {
                    keys.push(&text[start..at]);
                }
            }
            _ => {}
        }
        at += 1;
    }
    keys
}

fn end_of_text(text: &[u8], mut at: usize) -> usize {
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("apiVersion: v1\nentries:\n  web: []\n", true)]
    #[case("# by hand\r\n'entries': {}\ngenerated: x\n", true)]
    #[case("{\"apiVersion\": \"v1\", \"entries\" : {\"kind\": [{\"kind\": 1}]}}", true)]
    #[case(" {\n\"a\\\"\": [\"}\"], \"entries\": ", true)]
    #[case("apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nentries: {}\n", false)]
    #[case("entries: {}\n---\nkind: AppRepository\n", false)]
    #[case("{\"kind\": \"AppRepository\", \"entries\": {}}", false)]
    #[case("{\"a\": \"entries\", \"b\": {\"entries\": 1}}", false)]
    #[case("spec:\n  entries: []\n", false)]
    #[case("", false)]
    #[case("{\"entries", false)]
    fn an_index_has_entries_and_no_kind(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(is_index(text.as_bytes()), expected);
        let long = format!("{text}{}", "x".repeat(2 * HEAD));
        assert_eq!(is_index(long.as_bytes()), expected && !text.is_empty());
    }
}
