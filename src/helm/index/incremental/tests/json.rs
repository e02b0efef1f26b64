use rstest::rstest;

use super::*;
use generator::Random;

const INDEX: &str = r#"{"apiVersion":"v1","entries":{
"alloy":[{"name":"alloy","version":"1.0.0","created":"2020-01-01T00:00:00Z","urls":["a\"]}.tgz"]},{"name":"alloy","version":"0.9.0"}],
"loki": [ {"name":"loki","version":"3.0.0","created": "2020-01-01T00:00:00Z","deprecated":true} ],
"tempo":[{"name":"tempo","version":"2.0.0","home":"2020-01-01T00:00:00Z","annotations":{"created":"2020-01-01T00:00:00Z","category":"x"}}]
},"generated":"2020-01-01T00:00:00Z","serverInfo":{"a":{"b":{"created":"2020-01-01T00:00:00Z"}}}}
"#;

#[test]
fn timestamps_order_and_envelope_do_not_count_as_changes() {
    let later = INDEX
        .replace("\"created\":\"2020-01-01", "\"created\":\"2026-11-21")
        .replace(
            "\"created\": \"2020-01-01T00:00:00Z",
            "\"created\": \"2026-11-21T00:00:00.5+01:00",
        )
        .replace("\"generated\":\"2020", "\"generated\":\"2026");
    // An annotation of that name is not a timestamp of a version.
    assert_eq!(parsed_after(INDEX, &later), ["tempo"]);
    let later = later.replace(
        "\"annotations\":{\"created\":\"2026-11-21",
        "\"annotations\":{\"created\":\"2020-01-01",
    );
    assert_eq!(parsed_after(INDEX, &later), Vec::<String>::new());
}

#[rstest]
#[case::a_version("\"1.0.0\"", "\"1.0.1\"", "alloy")]
#[case::a_space("\"0.9.0\"}", "\"0.9.0\" }", "alloy")]
#[case::an_escape("\"name\":\"tempo\"", "\"name\":\"t\\u0065mpo\"", "tempo")]
#[case::not_a_timestamp("\"created\": \"2020-01-01T00:00:00Z\"", "\"created\": \"then\"", "loki")]
fn only_the_changed_chart_is_parsed(#[case] from: &str, #[case] to: &str, #[case] key: &str) {
    let later = INDEX.replacen(from, to, 1);
    assert_ne!(later, INDEX);
    assert_eq!(parsed_after(INDEX, &later), [key]);
}

#[rstest]
#[case::a_chart_twice("\"tempo\":[", "\"alloy\":[")]
#[case::an_escaped_key("\"tempo\":[", "\"t\\u0065mpo\":[")]
#[case::not_a_list("\"tempo\":[", "\"x\":{\"a\":1},\"tempo\":[")]
#[case::null("\"tempo\":[", "\"x\":null,\"tempo\":[")]
#[case::entries_twice("\"generated\"", "\"entries\":{\"z\":[]},\"generated\"")]
#[case::entries_without_charts("\"generated\"", "\"entries\":null,\"generated\"")]
#[case::an_extra_comma("],\n\"tempo\"", "],,\n\"tempo\"")]
#[case::no_colon("\"tempo\":[", "\"tempo\" [")]
#[case::the_wrong_bracket("0.9.0\"}]", "0.9.0\"]}")]
#[case::no_end("}}}}", "}}}")]
#[case::more_text_after_it("}}}}\n", "}}}} {}")]
fn unsupported_layouts_are_fully_decoded(#[case] from: &str, #[case] to: &str) {
    let later = INDEX.replacen(from, to, 1);
    assert_needs_full_decode(INDEX, &later);
}

#[rstest]
#[case::in_a_key_deep_down(b"{\"a\":{\"b\":{\"\xff\":1}}}")]
#[case::in_a_list_deep_down(b"[[[\"\xff\"]]]")]
#[case::in_a_value(b"\"\xff\"")]
fn invalid_utf_8_in_the_envelope_is_rejected_as_by_the_full_decode(#[case] value: &[u8]) {
    let state = decode_next(&CatalogState::empty(), INDEX).state;
    let (start, end) = INDEX.split_once("\"v1\"").unwrap();
    let index = [start.as_bytes(), value, end.as_bytes()].concat();
    for state in [&CatalogState::empty(), &state] {
        let incremental = compare(state, &index, &DecodeLimits::default(), usize::MAX);
        assert!(incremental.unwrap().is_none(), "both reject it");
    }
}

#[test]
fn a_timestamp_is_masked_at_any_buffer_boundary() {
    let with = |padding: usize, time: &str| {
        let padding = "x".repeat(padding);
        let version = r#""name":"a","version":"1.0.0""#;
        format!(
            r#"{{"apiVersion":"v1","entries":{{"a":[{{{version},"description":"{padding}","created":"{time}","home":"h"}}]}}}}"#
        )
    };
    let at = with(0, "").find("\"created").unwrap();
    for before in 0..40 {
        let padding = 256 * 1024 - at - before;
        let state = decode_next(&CatalogState::empty(), &with(padding, "2020-01-01T00:00:00Z")).state;
        let incremental = decode_next(&state, &with(padding, "2026-11-21T00:00:00Z"));
        assert_eq!(incremental.parsed, Vec::<String>::new(), "{before}");
    }
}

#[test]
fn the_result_does_not_depend_on_the_read_size() {
    let state = decode_next(&CatalogState::empty(), INDEX).state;
    assert_eq!(state.charts.len(), 3);
    for at_once in [1, 2, 3, 7, 64] {
        let incremental = compare(&state, INDEX.as_bytes(), &DecodeLimits::default(), at_once);
        assert!(incremental.unwrap().unwrap().parsed.is_empty());
        let incremental = compare(
            &CatalogState::empty(),
            INDEX.as_bytes(),
            &DecodeLimits::default(),
            at_once,
        );
        assert_eq!(incremental.unwrap().unwrap().state.cache.charts, state.cache.charts);
    }
}

#[test]
fn an_index_that_changes_its_notation_is_parsed_again() {
    let yaml = generator::generate(3, 4, 3);
    let json = serde_json::to_string(&serde_yaml::from_str::<serde_json::Value>(&yaml).unwrap()).unwrap();
    let state = decode_next(&CatalogState::empty(), &yaml).state;
    let incremental = decode_next(&state, &json);
    assert_eq!(incremental.parsed.len(), 4);
    assert_eq!(decode_next(&incremental.state, &yaml).parsed.len(), 4);
}

#[test]
fn mutated_json_indexes_decode_as_in_the_full_decode() {
    const PIECES: [&[u8]; 25] = [
        b"\"",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\\",
        b"\\\"",
        b"0",
        b"null",
        b" ",
        b"\n",
        b"\"created\":\"2020-01-01T00:00:00Z\",",
        b"\"entries\":{",
        b"\"name\":\"a\",",
        b"\"version\":1,",
        b"\0",
        "é".as_bytes(),
        b"\\ud800",
        b"[{},",
        b"\"x\":[],",
        b"\xff",
        b"\"y\":[[[\"",
        b"\"]]],",
    ];
    let mut random = Random(8);
    let (mut accepted, mut cache) = (0, 0);
    for seed in 0..400 {
        let yaml = generator::generate(seed % 20, 2, 2);
        let sound = serde_json::to_string(&serde_yaml::from_str::<serde_json::Value>(&yaml).unwrap()).unwrap();
        let mut state = decode_next(&CatalogState::empty(), &sound).state;
        let mut bytes = sound.clone().into_bytes();
        for _ in 0..5 {
            let start = random.below(bytes.len() + 1);
            let end = (start + random.below(4)).min(bytes.len());
            let piece = if random.below(3) > 0 { random.pick(&PIECES) } else { b"" };
            bytes.splice(start..end, piece.iter().copied());
            let at_once = random.pick(&[1, 50, usize::MAX]);
            match compare(&state, &bytes, &DecodeLimits::default(), at_once) {
                Ok(Some(incremental)) => {
                    accepted += 1;
                    cache += incremental.state.charts.len() - incremental.parsed.len();
                    state = incremental.state;
                }
                Ok(None) => bytes = sound.clone().into_bytes(),
                Err(difference) => panic!("{difference}\n{}", String::from_utf8_lossy(&bytes)),
            }
        }
    }
    assert!(accepted > 200 && cache > 100, "{accepted} {cache}");
}
