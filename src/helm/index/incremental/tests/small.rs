//! What counts as a change.

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
fn an_index_that_has_not_changed_is_not_read() {
    assert_eq!(read_after(INDEX, INDEX), Vec::<String>::new());
}

#[test]
fn times_of_versions_and_of_the_index_are_no_change() {
    let later = INDEX
        .replace(
            "created: \"2020-01-01T00:00:00Z\"",
            "created: \"2026-11-21T10:00:00.123456789Z\"",
        )
        .replace("created: 2020", "created: 2021")
        .replace("generated: \"2020", "generated: \"2026");
    assert_eq!(read_after(INDEX, &later), Vec::<String>::new());
}

#[test]
fn the_order_of_charts_is_no_change() {
    let loki =
        "  loki:\n  - name: loki\n    created: 2020-01-01T00:00:00.5+02:00\n    version: 3.0.0\n    deprecated: true\n";
    let later = INDEX
        .replace(loki, "")
        .replace("generated:", &format!("{loki}generated:"));
    assert_ne!(later, INDEX);
    assert_eq!(read_after(INDEX, &later), Vec::<String>::new());
}

#[test]
fn a_chart_that_has_gone_leaves_the_others_alone() {
    let later = INDEX.replace(
        "  tempo:\n  - name: tempo\n    version: 2.0.0\n    description: made at 2020-01-01T00:00:00Z\n",
        "",
    );
    let memory = follow(&Memory::empty(), INDEX).memory;
    let delta = follow(&memory, &later);
    assert_eq!(delta.read, Vec::<String>::new());
    assert_eq!(delta.memory.known.charts.len(), 2);
}

#[rstest]
#[case::a_new_version(
    "  - name: alloy\n    created: \"2020",
    "  - name: alloy\n    version: 1.1.0\n  - name: alloy\n    created: \"2020",
    "alloy"
)]
#[case::another_url("alloy-1.0.0.tgz", "alloy-1.0.0-1.tgz", "alloy")]
#[case::a_deprecated_one("version: 3.0.0", "version: 3.0.1", "loki")]
#[case::a_time_in_a_text("made at 2020", "made at 2021", "tempo")]
#[case::what_is_no_time("\"2020-01-01T00:00:00Z\"\n    version", "\"never\"\n    version", "alloy")]
#[case::a_time_without_its_quotes("\"2019-01-01T00:00:00Z\"", "2019-01-01T00:00:00Z", "alloy")]
fn one_changed_chart_is_read(#[case] from: &str, #[case] to: &str, #[case] key: &str) {
    let later = INDEX.replacen(from, to, 1);
    assert_ne!(later, INDEX);
    assert_eq!(read_after(INDEX, &later), [key]);
}

#[test]
fn a_version_that_can_not_be_used_is_named_although_its_chart_is_known() {
    let index = INDEX.replace("version: 0.9.0", "version: [0.9.0]");
    let memory = follow(&Memory::empty(), &index).memory;
    let delta = follow(&memory, &index);
    assert!(delta.read.is_empty());
    assert_eq!(delta.summary.skipped.count, 1);
    assert_eq!(delta.summary.skipped.first[0].chart, "alloy");
}

#[rstest]
#[case::a_text_over_two_charts(
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
#[case::lines_of_windows("\n", "\r\n")]
fn what_is_in_doubt_is_decoded_as_a_whole(#[case] from: &str, #[case] to: &str) {
    let later = if from == "\n" {
        INDEX.replace(from, to)
    } else {
        INDEX.replacen(from, to, 1)
    };
    assert_not_cut(INDEX, &later);
}

#[test]
fn a_time_that_is_part_of_a_text_is_a_change() {
    let index = INDEX.replace(
        "  - name: tempo\n",
        "  - {name: tempo, version: 1.0.0, home: 'made\n    created: 2020-01-01T00:00:00Z\n    by hand'}\n  - name: tempo\n",
    );
    let later = index.replace(
        "\n    created: 2020-01-01T00:00:00Z\n",
        "\n    created: 2021-01-01T00:00:00Z\n",
    );
    assert_ne!(index, later);
    assert_eq!(read_after(&index, &later), ["tempo"]);
}

#[test]
fn it_does_not_matter_how_the_bytes_come() {
    let memory = follow(&Memory::empty(), INDEX).memory;
    for at_once in [1, 2, 3, 7, 64, 1000] {
        let delta = compare(&memory, INDEX.as_bytes(), &DecodeLimits::default(), at_once);
        assert!(delta.unwrap().unwrap().read.is_empty());
        let delta = compare(&Memory::empty(), INDEX.as_bytes(), &DecodeLimits::default(), at_once);
        let delta = delta.unwrap().unwrap();
        assert_eq!(delta.read, ["alloy", "loki", "tempo"]);
        assert_eq!(delta.memory.known.charts, memory.known.charts);
    }
}

#[test]
fn a_shared_split_leaves_only_changed_charts_to_be_read() {
    let index = generator::generate(7, 20, 20);
    let limits = DecodeLimits::default();
    let memory = follow(&Memory::empty(), &index).memory;
    let changed = index.replacen("  version: ", "  version: 9", 1);
    let shared = SharedSplit::default();
    let read = || {
        let mut input = Counted(Cursor::new(&changed), 0);
        let mut sought = Sought::after(&memory);
        decode_changes(&mut input, &limits, &memory.known, &shared, &mut sought).unwrap();
        (input.1, sought.read.len())
    };
    let (first, parsed) = read();
    assert!(first > changed.len() && parsed == 1, "{first} {parsed}");
    let (second, parsed) = read();
    assert!(second < changed.len() / 2 && parsed == 1, "{second} {parsed}");
}

/// Counts what is read.
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
fn an_index_larger_than_what_is_read_at_once_is_cut_alike() {
    let index = generator::generate(7, 40, 60);
    assert!(index.len() > 1024 * 1024);
    let memory = follow(&Memory::empty(), &index).memory;
    assert_eq!(memory.charts.len(), 40);
    let later = index.replacen("  version: ", "  version: 9", 1);
    assert_eq!(follow(&memory, &later).read.len(), 1);
}

#[test]
fn times_are_a_change_where_they_count() {
    let mut memory = Memory::empty();
    memory.known.times_count = true;
    let mut memory = follow(&memory, INDEX).memory;
    memory.known.times_count = true;
    assert!(memory.known.charts.values().all(|chart| !chart.masked));
    assert!(follow(&memory, INDEX).read.is_empty());
    let later = INDEX.replace("\"2019-01-01", "\"2026-11-21");
    assert_eq!(follow(&memory, &later).read, ["alloy"]);
}

#[rstest]
#[case::a_mark_behind_a_carriage_return("    version: 1.0.0\n", "    version: 1.0.0\r...\n")]
#[case::a_directive_behind_one("apiVersion: v1\n", "#\r%TAG !! tag:x,2000:\r---\napiVersion: v1\n")]
#[case::what_looks_like_a_page("apiVersion: v1\n", "<x: 1\napiVersion: v1\n")]
fn what_the_whole_refuses_is_refused(#[case] from: &str, #[case] to: &str) {
    let later = INDEX.replacen(from, to, 1);
    assert_ne!(later, INDEX);
    let memory = follow(&Memory::empty(), INDEX).memory;
    for memory in [&memory, &Memory::empty()] {
        compare(memory, later.as_bytes(), &DecodeLimits::default(), usize::MAX).unwrap();
    }
}

#[test]
fn a_long_nothing_is_refused_as_by_the_whole() {
    let later = INDEX.replacen(
        "  loki:\n",
        &format!("  nothing:\n{}  loki:\n", "\n".repeat(9 * 1024 * 1024)),
        1,
    );
    let memory = follow(&Memory::empty(), INDEX).memory;
    let delta = compare(&memory, later.as_bytes(), &DecodeLimits::default(), usize::MAX).unwrap();
    assert!(delta.is_none());
}
