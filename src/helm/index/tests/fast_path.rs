//! Compares the fast path with the parser.

use proptest::prelude::*;
use rstest::rstest;

use super::generator::Random;
use super::*;
use crate::helm::index::node::{Field, Node};
use crate::helm::index::yaml::{InvalidItem, ItemError, YamlItem, fast_path, item};

fn limits() -> DecodeLimits {
    DecodeLimits::default()
}

fn column_of(slice: &[u8]) -> usize {
    slice.iter().take_while(|byte| **byte == b' ').count()
}

/// Returns true if the fast path reads the slice. Panics if the parser disagrees.
fn is_read_equally(slice: &[u8], limits: &DecodeLimits) -> bool {
    let Some(by_lines) = fast_path::read(slice, column_of(slice), limits) else {
        return false;
    };
    match item(slice, limits) {
        Ok(Ok(by_parser)) => assert_eq!(by_lines, by_parser, "{}", String::from_utf8_lossy(slice)),
        other => panic!("{}\nto the parser: {other:?}", String::from_utf8_lossy(slice)),
    }
    true
}

fn described(description: &str) -> String {
    format!("  - created: \"2020-01-01T00:00:00Z\"\n    description:{description}\n    name: a\n")
}

fn text_of(mut item: YamlItem, field: Field) -> Option<String> {
    match item.fields.take(field)? {
        Node::Scalar(scalar) => Some(scalar.text),
        _ => None,
    }
}

#[rstest]
#[case::plain(" a b", Some("a b"))]
#[case::odd_characters_inside(" https://e.io/?a=b#c, d & e: - 'f'", None)]
#[case::colons_and_hashes_inside(" https://e.io/?a=b#c, d & 'f'", Some("https://e.io/?a=b#c, d & 'f'"))]
#[case::dash(" -a", Some("-a"))]
#[case::dash_alone(" -", None)]
#[case::list_after_a_key(" - a", None)]
#[case::two_spaces("  a", Some("a"))]
#[case::space_after(" a ", None)]
#[case::no_space("a", None)]
#[case::absent("", Some("~"))]
#[case::null(" null", Some("null"))]
#[case::folded(" a\n      b\n\n     c", Some("a b\nc"))]
#[case::folded_dash(" a\n      - b", Some("a - b"))]
#[case::folded_key(" a\n      b: c", None)]
#[case::folded_comment(" a\n      # b", None)]
#[case::folded_too_far_left(" a\n    b", None)]
#[case::folded_from_the_next_line("\n      a", None)]
#[case::comment(" a # b", None)]
#[case::key(" a: b", None)]
#[case::colon_at_the_end(" a:", None)]
#[case::single(" 'it''s: # \\n'", Some("it's: # \\n"))]
#[case::single_empty(" ''", Some(""))]
#[case::single_folded(" 'a\n      b\n\n\n      ''c'''", Some("a b\n\n'c'"))]
#[case::single_open(" 'a", None)]
#[case::single_with_rest(" 'a' b", None)]
#[case::single_folded_too_far_left(" 'a\n    b'", None)]
#[case::double(" \"a: # 'b'\"", Some("a: # 'b'"))]
#[case::escapes(" \"\\\"\\\\ \\n\\t\\r\\x41\\u00e9\\U0001F525\"", Some("\"\\ \n\t\rAé\u{1f525}"))]
#[case::other_escape(" \"\\e\"", None)]
#[case::surrogates(" \"\\ud83d\\udd25\"", None)]
#[case::half_an_escape(" \"\\u12\"", None)]
#[case::double_folded(" \"a\n      \\ b\n\n      c\"", Some("a  b\nc"))]
#[case::escaped_break(" \"a\\\n      b\"", None)]
#[case::space_before_a_break(" \"a \n      b\"", None)]
#[case::spaces_on_a_line(" \"a\n      \n      b\"", None)]
#[case::double_closed_on_its_own_line(" \"a\n      \"", Some("a "))]
#[case::literal(" |\n      a: # b\n\n        c \n     \n", Some("a: # b\n\n  c \n"))]
#[case::literal_stripped(" |-\n      a\n", Some("a"))]
#[case::literal_kept(" |+\n      a\n", Some("a\n\n"))]
#[case::literal_empty(" |", Some(""))]
#[case::literal_that_begins_empty(" |\n\n      a", None)]
#[case::literal_with_an_indent(" |2\n       a", None)]
#[case::literal_that_ends_between(" |\n      a\n     b", None)]
#[case::folded_block(" >\n      a", None)]
#[case::anchor(" &a b", None)]
#[case::alias(" *a", None)]
#[case::tag(" !!str b", None)]
#[case::flow(" {a: b}", None)]
#[case::tab(" a\tb", None)]
#[case::carriage_return(" a\r", None)]
#[case::next_line(" a\u{85}b", None)]
#[case::line_separator(" a\u{2028}b", None)]
#[case::byte_order_mark(" \u{feff}a", None)]
fn a_text_is_read_like_the_parser_or_left_to_it(#[case] written: &str, #[case] text: Option<&str>) {
    let slice = described(written);
    let read = fast_path::read(slice.as_bytes(), 2, &limits()).and_then(|item| text_of(item, Field::Description));
    assert_eq!(read.as_deref(), text);
    is_read_equally(slice.as_bytes(), &limits());
}

#[rstest]
#[case::only_a_key("- a:\n", true)]
#[case::list_in_the_column_of_its_key("  - urls:\n    - a\n    - b\n    name: c\n", true)]
#[case::list_deeper("  - urls:\n      - a\n      - b\n    name: c\n", true)]
#[case::maps_in_a_list(
    "  - maintainers:\n    - email: a\n      name: b\n    - name: c\n    name: d\n",
    true
)]
#[case::map_in_a_map("  - annotations:\n      category: a\n      b: |\n        c\n    name: d\n", true)]
#[case::empty_collections("  - urls: []\n    annotations: {}\n    keywords:\n    - []\n    - {}\n", true)]
#[case::key_twice("  - name: a\n    name: b\n    maintainers:\n    - name: a\n      name: b\n", true)]
#[case::empty_lines("  - name: a\n\n    version: b\n\n", true)]
#[case::created_twice("  - created: a\n    created: b\n", false)]
#[case::null("  -\n", false)]
#[case::text("  - a\n", false)]
#[case::list("  - - a\n", false)]
#[case::two_items("  - a: b\n  - a: b\n", false)]
#[case::another_list("  - a: b\n - a: b\n", false)]
#[case::key_too_far_left("  - a: b\n   c: d\n", false)]
#[case::key_too_far_right("  - a: b\n     c: d\n", false)]
#[case::item_too_far_right("  - a:\n      - \"b\"\n       - c\n", false)]
#[case::text_that_looks_like_an_item("  - a:\n      - b\n       - c\n", true)]
#[case::empty_item("  - urls:\n    -\n    - a\n", false)]
#[case::list_in_a_list("  - urls:\n    - - a\n", false)]
#[case::merge_key("  - <<: {name: a}\n", false)]
#[case::quoted_key("  - \"name\": a\n", false)]
#[case::complex_key("  - ? name\n    : a\n", false)]
#[case::comment("  - name: a\n    # b\n", false)]
#[case::no_break_at_the_end("  - name: a", false)]
#[case::another_document("- name: a\n---\n- name: b\n", false)]
#[case::empty_text("", false)]
#[case::no_text(b"  - name: \xff\n", false)]
fn a_version_is_read_like_the_parser_or_left_to_it(#[case] slice: impl AsRef<[u8]>, #[case] read: bool) {
    assert_eq!(is_read_equally(slice.as_ref(), &limits()), read);
}

#[rstest]
#[case::in_quotes("  - name: a\n    created: \"2020\"\n", Some(1))]
#[case::first("  - created: 2020\n    name: a\n", Some(0))]
#[case::after_an_empty_line("  - name: a\n\n    created: '2020'\n", Some(2))]
#[case::after_a_block("  - a: |\n      created: 1\n\n    created: 2020\n", Some(3))]
#[case::escaped("  - created: \"\\x32020\"\n", Some(0))]
#[case::on_two_lines("  - created: 2020\n      2021\n", None)]
#[case::in_a_block("  - created: |\n      2020\n", None)]
#[case::empty("  - created:\n    name: a\n", None)]
#[case::list("  - created: []\n", None)]
#[case::deeper("  - a:\n      created: 2020\n", None)]
#[case::in_a_text("  - a: 'b\n      created: 2020\n      c'\n", None)]
#[case::absent("  - name: a\n", None)]
fn the_fast_path_returns_the_line_of_created(#[case] slice: &str, #[case] line: Option<usize>) {
    assert!(is_read_equally(slice.as_bytes(), &limits()));
    assert_eq!(
        fast_path::read(slice.as_bytes(), 2, &limits()).unwrap().created_line,
        line
    );
}

#[rstest]
#[case::in_flow_style("  - {created: 2020}\n", None)]
#[case::quoted_key("  - \"created\": 2020\n", None)]
#[case::complex_key("  - ? created\n    : 2020\n", None)]
#[case::tag("  - created: !!str 2020\n", None)]
#[case::twice("  - created: 2020\n    created: 2021\n    created: 2022\n", None)]
#[case::merged("  - <<: {created: 2020}\n", None)]
#[case::comment("  - a: b\n    created: 2020 # c\n", Some(1))]
fn the_parser_returns_the_line_of_created_if_it_is_on_a_single_line(#[case] slice: &str, #[case] line: Option<usize>) {
    assert_eq!(item(slice.as_bytes(), &limits()).unwrap().unwrap().created_line, line);
}

#[rstest]
#[case("  -\n", "it is null", 1)]
#[case("  - ~\n", "it is null", 1)]
#[case("  - a\n", "it is a text, expected a map", 1)]
#[case("  - [a, [b]]\n", "it is a list, expected a map", 4)]
fn an_item_that_is_not_a_map_has_the_same_reason_as_in_an_index(
    #[case] slice: &str,
    #[case] reason: &'static str,
    #[case] nodes: u64,
) {
    assert_eq!(
        item(slice.as_bytes(), &limits()).unwrap(),
        Err(InvalidItem { reason, nodes })
    );
    let (_, summary) = decode_text(format!("apiVersion: v1\nentries:\n  a:\n{slice}")).unwrap();
    assert_eq!(summary.skipped.first[0].reason, reason);
}

#[rstest]
fn anything_but_a_single_item_is_rejected(
    #[values(
        "",
        "# a\n",
        "a: b\n",
        "a\n",
        "[]\n",
        "[{a: b}]\n",
        "- a: b\n- a: b\n",
        "- a: b\n---\n- c: d\n"
    )]
    slice: &str,
) {
    let rejected = item(slice.as_bytes(), &limits()).unwrap_err();
    assert!(
        matches!(rejected, ItemError::NotASingleItem | ItemError::ParserError(_)),
        "{rejected:?}"
    );
}

#[rstest]
fn anchors_and_aliases_are_detected(
    #[values(
        "- &a name: b\n",
        "- &a\n  name: b\n",
        "- name: &a b\n  home: *a\n",
        "- &a b\n",
        "- a: &a b\n  c: [\n"
    )]
    slice: &str,
) {
    assert!(
        matches!(item(slice.as_bytes(), &limits()), Err(ItemError::Anchored)),
        "{slice}"
    );
}

#[test]
fn an_alias_of_an_anchor_elsewhere_is_rejected() {
    let rejected = item(b"- name: *a\n", &limits()).unwrap_err();
    assert!(
        matches!(rejected, ItemError::ParserError(DecodeError::InvalidYaml { .. })),
        "{rejected:?}"
    );
}

/// Returns a version with nested maps.
fn nested(levels: usize) -> String {
    let maps: String = (0..levels)
        .map(|level| format!("{}a:\n", " ".repeat(level + 4)))
        .collect();
    format!("  - name: b\n    version: 1\n{maps}{}a: b\n", " ".repeat(levels + 4))
}

#[rstest]
#[case(32, true)]
#[case(33, false)]
#[case(300, false)]
fn depth_is_limited_as_in_an_index(#[case] levels: usize, #[case] allowed: bool) {
    let slice = nested(levels);
    assert_eq!(is_read_equally(slice.as_bytes(), &limits()), allowed);
    assert_eq!(item(slice.as_bytes(), &limits()).unwrap().is_ok(), allowed);
    let (_, summary) = decode_text(format!("entries:\n  a:\n{slice}")).unwrap();
    assert_eq!(summary.skipped.count == 0, allowed);
}

#[test]
fn the_parser_handles_exceeded_limits() {
    let slice = described(" abc\n    urls:\n    - d");
    let bytes = slice.len() as u64;
    for limits in [
        DecodeLimits {
            scalar_bytes: bytes - 1,
            ..limits()
        },
        DecodeLimits {
            chart_bytes: 100,
            ..limits()
        },
        DecodeLimits { nodes: 10, ..limits() },
        DecodeLimits { depth: 0, ..limits() },
    ] {
        assert!(fast_path::read(slice.as_bytes(), 2, &limits).is_none(), "{limits:?}");
    }
    assert_eq!(fast_path::read(slice.as_bytes(), 2, &limits()).unwrap().nodes, 10);
    let enough = DecodeLimits {
        scalar_bytes: bytes,
        nodes: 11,
        depth: 1,
        ..limits()
    };
    assert!(is_read_equally(slice.as_bytes(), &enough));
}

/// Both readers reject a version that exceeds its byte limit by one.
#[test]
fn the_memory_of_a_version_is_counted_like_in_the_parser() {
    for seed in 0..300 {
        let slice = slices::made(&mut Random(seed));
        let within = |chart_bytes| DecodeLimits {
            chart_bytes,
            ..limits()
        };
        let is_read = |bytes| fast_path::read(&slice, column_of(&slice), &within(bytes)).is_some();
        let (mut least, mut enough) = (0, 1 << 20);
        if !is_read(enough) {
            continue;
        }
        while least < enough {
            let middle = u64::midpoint(least, enough);
            if is_read(middle) {
                enough = middle;
            } else {
                least = middle + 1;
            }
        }
        assert!(item(&slice, &within(least)).is_ok());
        assert!(least == 0 || item(&slice, &within(least - 1)).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn generated_versions_are_read_like_the_parser_or_left_to_it(seed in any::<u64>()) {
        is_read_equally(&slices::made(&mut Random(seed)), &limits());
    }
}

#[test]
fn the_fast_path_reads_enough_generated_versions() {
    let read = (0..2_000).filter(|seed| is_read_equally(&slices::made(&mut Random(*seed)), &limits()));
    let share = read.count();
    assert!((400..1_900).contains(&share), "{share}");
}

fn indexes() -> Vec<(String, String)> {
    let Some(corpus) = corpus::corpus() else {
        return (0..4)
            .map(|seed| (format!("seed {seed}"), generator::generate(seed, 20, 20)))
            .collect();
    };
    let paths = real::files_below(corpus, "yaml").into_iter();
    let newest = paths.filter(|path| path.ends_with("index.yaml") || path.to_string_lossy().contains("edge-cases"));
    newest
        .map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn real_and_mutated_versions_are_read_like_the_parser_or_left_to_it() {
    let mut random = Random(1);
    let (mut read, mut versions) = (0, 0);
    for (name, index) in indexes() {
        let slices = slices::extract(&index);
        // The most distant versions differ most.
        for (_, slice) in slices.iter().step_by(1 + slices.len() / 500) {
            versions += 1;
            read += usize::from(is_read_equally(slice.as_bytes(), &limits()));
            let mut mutant = slice.as_bytes().to_vec();
            slices::mutate(&mut random, &mut mutant);
            is_read_equally(&mutant, &limits());
        }
        println!("{name}: {} versions", slices.len());
    }
    assert!(read * 10 >= versions * 9, "{read} of {versions}");
}
