use rstest::rstest;

use super::*;

const INDEX: &str = r#"apiVersion: v1
entries:
  alloy:
  - name: alloy
    created: "2020-01-01T00:00:00Z"
    version: 1.0.0
    urls:
    - alloy-1.0.0.tgz
  - name: alloy
    created: "2019-01-01T00:00:00Z"
    version: 0.9.0
  loki:
  - name: loki
    created: 2020-01-01T00:00:00.5+02:00
    version: 3.0.0
    deprecated: true
  tempo:
  - name: tempo
    version: 2.0.0
    description: made at 2020-01-01T00:00:00Z
generated: "2020-01-01T00:00:00Z"
"#;

#[test]
fn an_unchanged_index_is_not_parsed() {
    assert_eq!(parsed_after(INDEX, INDEX), Vec::<String>::new());
}

#[test]
fn timestamps_do_not_count_as_changes() {
    let later = INDEX
        .replace(
            "created: \"2020-01-01T00:00:00Z\"",
            "created: \"2026-11-21T10:00:00.123456789Z\"",
        )
        .replace("created: 2020", "created: 2021")
        .replace("generated: \"2020", "generated: \"2026");
    assert_eq!(parsed_after(INDEX, &later), Vec::<String>::new());
}

#[test]
fn the_order_of_charts_does_not_count_as_a_change() {
    let loki =
        "  loki:\n  - name: loki\n    created: 2020-01-01T00:00:00.5+02:00\n    version: 3.0.0\n    deprecated: true\n";
    let later = INDEX
        .replace(loki, "")
        .replace("generated:", &format!("{loki}generated:"));
    assert_ne!(later, INDEX);
    assert_eq!(parsed_after(INDEX, &later), Vec::<String>::new());
}

#[test]
fn a_removed_chart_does_not_affect_the_others() {
    let later = INDEX.replace(
        "  tempo:\n  - name: tempo\n    version: 2.0.0\n    description: made at 2020-01-01T00:00:00Z\n",
        "",
    );
    let state = decode_next(&CatalogState::empty(), INDEX).state;
    let incremental = decode_next(&state, &later);
    assert_eq!(incremental.parsed, Vec::<String>::new());
    assert_eq!(incremental.state.cache.charts.len(), 2);
}

#[rstest]
#[case::a_new_version(
    "  - name: alloy\n    created: \"2020",
    "  - name: alloy\n    version: 1.1.0\n  - name: alloy\n    created: \"2020",
    "alloy"
)]
#[case::another_url("alloy-1.0.0.tgz", "alloy-1.0.0-1.tgz", "alloy")]
#[case::a_deprecated_one("version: 3.0.0", "version: 3.0.1", "loki")]
#[case::a_timestamp_in_a_text("made at 2020", "made at 2021", "tempo")]
#[case::not_a_timestamp("\"2020-01-01T00:00:00Z\"\n    version", "\"never\"\n    version", "alloy")]
#[case::an_unquoted_timestamp("\"2019-01-01T00:00:00Z\"", "2019-01-01T00:00:00Z", "alloy")]
fn only_the_changed_chart_is_parsed(#[case] from: &str, #[case] to: &str, #[case] key: &str) {
    let later = INDEX.replacen(from, to, 1);
    assert_ne!(later, INDEX);
    assert_eq!(parsed_after(INDEX, &later), [key]);
}

#[test]
fn invalid_versions_of_a_cached_chart_are_reported() {
    let index = INDEX.replace("version: 0.9.0", "version: [0.9.0]");
    let state = decode_next(&CatalogState::empty(), &index).state;
    let incremental = decode_next(&state, &index);
    assert!(incremental.parsed.is_empty());
    assert_eq!(incremental.summary.skipped.count, 1);
    assert_eq!(incremental.summary.skipped.first[0].chart, "alloy");
}

#[test]
fn a_version_that_is_nested_too_deeply_is_skipped_as_by_the_full_decode() {
    let deep = format!("version: 0.9.0\n    x: {}{}", "[".repeat(40), "]".repeat(40));
    let index = INDEX.replace("version: 0.9.0", &deep);
    let state = decode_next(&CatalogState::empty(), &index).state;
    assert_eq!(state.charts.len(), 3, "incremental decode");
    let incremental = decode_next(&state, &index);
    assert!(incremental.parsed.is_empty());
    assert_eq!(incremental.summary.skipped.count, 1);
}

#[rstest]
#[case::a_text_across_charts(
    "    description: made at 2020-01-01T00:00:00Z\n",
    "    description: \"made\n  evil:\n  - name: evil\n    version: 1\n    home: at\"\n"
)]
#[case::an_unfinished_quote("version: 3.0.0", "version: \"3.0.0")]
#[case::an_anchor("    - alloy-1.0.0.tgz", "    - &url alloy-1.0.0.tgz")]
#[case::a_chart_twice("  tempo:", "  alloy:")]
#[case::another_column("  tempo:", "   tempo:")]
#[case::a_comment_between("  tempo:", "  # the last one\n  tempo:")]
#[case::a_flow("  tempo:\n", "  a: []\n  tempo:\n")]
#[case::a_directive("apiVersion", "%TAG ! tag:x,2000:\n---\napiVersion")]
#[case::entries_twice("generated:", "entries:\n  a:\n  - name: a\n    version: 1\ngenerated:")]
#[case::a_second_document("generated:", "---\ngenerated:")]
#[case::a_tab_at_the_end("generated:", "\t\ngenerated:")]
#[case::windows_line_breaks("\n", "\r\n")]
fn unsupported_layouts_are_fully_decoded(#[case] from: &str, #[case] to: &str) {
    let later = if from == "\n" {
        INDEX.replace(from, to)
    } else {
        INDEX.replacen(from, to, 1)
    };
    assert_needs_full_decode(INDEX, &later);
}

#[test]
fn a_timestamp_inside_a_text_counts_as_a_change() {
    let index = INDEX.replace(
        "  - name: tempo\n",
        "  - {name: tempo, version: 1.0.0, home: 'made\n    created: 2020-01-01T00:00:00Z\n    by hand'}\n  - name: tempo\n",
    );
    let later = index.replace(
        "\n    created: 2020-01-01T00:00:00Z\n",
        "\n    created: 2021-01-01T00:00:00Z\n",
    );
    assert_ne!(index, later);
    assert_eq!(parsed_after(&index, &later), ["tempo"]);
}

#[test]
fn the_result_does_not_depend_on_the_read_size() {
    let state = decode_next(&CatalogState::empty(), INDEX).state;
    for at_once in [1, 2, 3, 7, 64, 1000] {
        let incremental = compare(&state, INDEX.as_bytes(), &DecodeLimits::default(), at_once);
        assert!(incremental.unwrap().unwrap().parsed.is_empty());
        let incremental = compare(
            &CatalogState::empty(),
            INDEX.as_bytes(),
            &DecodeLimits::default(),
            at_once,
        );
        let incremental = incremental.unwrap().unwrap();
        assert_eq!(incremental.parsed, ["alloy", "loki", "tempo"]);
        assert_eq!(incremental.state.cache.charts, state.cache.charts);
    }
}

#[test]
fn with_a_shared_split_only_changed_charts_are_read() {
    let index = generator::generate(7, 20, 20);
    let limits = DecodeLimits::default();
    let state = decode_next(&CatalogState::empty(), &index).state;
    let changed = index.replacen("  version: ", "  version: 9", 1);
    let shared = SharedSplit::default();
    let read = || {
        let mut input = Counted(Cursor::new(&changed), 0);
        let mut sink = CatalogSink::after(&state);
        decode_changes(&mut input, &limits, &state.cache, &shared, &mut sink).unwrap();
        (input.1, sink.parsed.len())
    };
    let (first, parsed) = read();
    assert!(first > changed.len() && parsed == 1, "{first} {parsed}");
    let (second, parsed) = read();
    assert!(second < changed.len() / 2 && parsed == 1, "{second} {parsed}");
}

/// Counts the bytes that are read.
struct Counted<'b>(Cursor<&'b str>, usize);

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1 += count;
        Ok(count)
    }
}

impl Seek for Counted<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn an_index_larger_than_the_buffer_is_split_in_the_same_way() {
    let index = generator::generate(7, 40, 60);
    assert!(index.len() > 1024 * 1024);
    let state = decode_next(&CatalogState::empty(), &index).state;
    assert_eq!(state.charts.len(), 40);
    let later = index.replacen("  version: ", "  version: 9", 1);
    assert_eq!(decode_next(&state, &later).parsed.len(), 1);
}

#[test]
fn timestamps_count_as_changes_if_they_matter() {
    let mut state = CatalogState::empty();
    state.cache.timestamps_matter = true;
    let mut state = decode_next(&state, INDEX).state;
    state.cache.timestamps_matter = true;
    assert!(state.cache.charts.values().all(|chart| !chart.timestamps_masked));
    assert!(decode_next(&state, INDEX).parsed.is_empty());
    let later = INDEX.replace("\"2019-01-01", "\"2026-11-21");
    assert_eq!(decode_next(&state, &later).parsed, ["alloy"]);
}

#[rstest]
#[case::a_byte_order_mark_after_a_carriage_return("    version: 1.0.0\n", "    version: 1.0.0\r...\n")]
#[case::a_second_directive("apiVersion: v1\n", "#\r%TAG !! tag:x,2000:\r---\napiVersion: v1\n")]
#[case::an_html_page("apiVersion: v1\n", "<x: 1\napiVersion: v1\n")]
fn the_incremental_decode_rejects_what_the_full_decode_rejects(#[case] from: &str, #[case] to: &str) {
    let later = INDEX.replacen(from, to, 1);
    assert_ne!(later, INDEX);
    let state = decode_next(&CatalogState::empty(), INDEX).state;
    for state in [&state, &CatalogState::empty()] {
        compare(state, later.as_bytes(), &DecodeLimits::default(), usize::MAX).unwrap();
    }
}

#[test]
fn a_long_blank_text_is_rejected_as_by_the_full_decode() {
    let later = INDEX.replacen(
        "  loki:\n",
        &format!("  nothing:\n{}  loki:\n", "\n".repeat(9 * 1024 * 1024)),
        1,
    );
    let state = decode_next(&CatalogState::empty(), INDEX).state;
    let incremental = compare(&state, later.as_bytes(), &DecodeLimits::default(), usize::MAX).unwrap();
    assert!(incremental.is_none());
}
