use proptest::prelude::*;

use super::*;

/// Fragments with a meaning in YAML, JSON or an index.
const PIECES: [&str; 54] = [
    "apiVersion: v1\n",
    "entries:\n",
    "entries: ",
    "  a:\n",
    "  b: ",
    "  - ",
    "    ",
    "name: a\n",
    "version: 1.0.0\n",
    "version: ",
    "urls:\n",
    "- u\n",
    "keywords: [",
    "maintainers:\n",
    "created: 2020-01-01T00:00:00Z\n",
    "deprecated: true\n",
    "digest: ",
    "&a ",
    "*a",
    "*a\n",
    "<<: ",
    "<<: *a\n",
    "!!str ",
    "!x ",
    "? ",
    ": ",
    "- ",
    "-",
    ",",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "|\n",
    ">-\n",
    "#",
    "\n",
    "\r\n",
    "\t",
    " ",
    "\u{85}",
    "\u{feff}",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "null",
    "~",
    "\\u0000",
    "\\ud800",
    "\u{0}",
    "é",
    "{\"entries\":{\"a\":[{\"name\":\"a\",\"version\":\"1\"",
];

/// Checks invariants of every accepted index.
fn check(bytes: &[u8]) {
    let Ok((charts, summary)) = decode_within(bytes, &DecodeLimits::default()) else {
        return;
    };
    assert_eq!(summary.names, charts.len() as u64 + summary.deprecated);
    let versions: u64 = charts.iter().map(|chart| chart.versions.len() as u64).sum();
    assert!(versions <= summary.versions && (summary.deprecated > 0 || versions == summary.versions));
    for chart in &charts {
        assert!(!chart.name.is_empty() && !chart.versions.is_empty());
        assert!(chart.maintainers.iter().all(|maintainer| !maintainer.name.is_empty()));
        for version in &chart.versions {
            assert!(!version.version.is_empty());
            assert!(version.urls.as_ref().is_none_or(|urls| !urls.is_empty()));
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        check(&bytes);
    }

    #[test]
    fn small_hostile_documents_do_not_panic(pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..40)) {
        check(pieces.concat().as_bytes());
    }

    #[test]
    fn hostile_entries_do_not_panic(pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..20)) {
        check(format!("apiVersion: v1\nentries:\n  a:\n  - name: a\n    version: 1\n    {}", pieces.concat()).as_bytes());
    }

    #[test]
    fn a_mutated_index_does_not_panic(
        seed in any::<u64>(),
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), 0..40_usize, proptest::sample::select(&PIECES[..])), 1..6),
    ) {
        let mut bytes = generator::generate(seed, 3, 3).into_bytes();
        for (place, length, piece) in edits {
            let start = place.index(bytes.len() + 1);
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, piece.bytes());
        }
        check(&bytes);
    }

    #[test]
    fn an_index_has_the_same_meaning_in_json(seed in any::<u64>()) {
        let yaml = generator::generate(seed, 4, 5);
        let json = serde_json::to_string(&serde_yaml::from_str::<serde_json::Value>(&yaml).unwrap()).unwrap();
        let (mut from_yaml, yaml_summary) = decode_text(&yaml).unwrap();
        let (mut from_json, json_summary) = decode_text(&json).unwrap();
        // `serde_json::Value` does not keep the order of charts.
        from_yaml.sort_by(|a, b| a.name.cmp(&b.name));
        from_json.sort_by(|a, b| a.name.cmp(&b.name));
        prop_assert_eq!(from_yaml, from_json);
        prop_assert_eq!(yaml_summary, json_summary);
    }
}
