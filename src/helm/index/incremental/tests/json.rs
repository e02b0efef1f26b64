//! The same in JSON.

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
fn times_order_and_what_stands_around_are_no_change() {
    let later = INDEX
        .replace("\"created\":\"2020-01-01", "\"created\":\"2026-11-21")
        .replace(
            "\"created\": \"2020-01-01T00:00:00Z",
            "\"created\": \"2026-11-21T00:00:00.5+01:00",
        )
        .replace("\"generated\":\"2020", "\"generated\":\"2026");
    // An annotation of that name is no time of a version.
    assert_eq!(read_after(INDEX, &later), ["tempo"]);
    let later = later.replace(
        "\"annotations\":{\"created\":\"2026-11-21",
        "\"annotations\":{\"created\":\"2020-01-01",
    );
    assert_eq!(read_after(INDEX, &later), Vec::<String>::new());
}

#[rstest]
#[case::a_version("\"1.0.0\"", "\"1.0.1\"", "alloy")]
#[case::a_space("\"0.9.0\"}", "\"0.9.0\" }", "alloy")]
#[case::an_escape("\"name\":\"tempo\"", "\"name\":\"t\\u0065mpo\"", "tempo")]
#[case::what_is_no_time("\"created\": \"2020-01-01T00:00:00Z\"", "\"created\": \"then\"", "loki")]
fn one_changed_chart_is_read(#[case] from: &str, #[case] to: &str, #[case] key: &str) {
    let later = INDEX.replacen(from, to, 1);
    assert_ne!(later, INDEX);
    assert_eq!(read_after(INDEX, &later), [key]);
}

#[rstest]
#[case::a_chart_twice("\"tempo\":[", "\"alloy\":[")]
#[case::an_escaped_key("\"tempo\":[", "\"t\\u0065mpo\":[")]
#[case::no_list("\"tempo\":[", "\"x\":{\"a\":1},\"tempo\":[")]
#[case::null("\"tempo\":[", "\"x\":null,\"tempo\":[")]
#[case::entries_twice("\"generated\"", "\"entries\":{\"z\":[]},\"generated\"")]
#[case::entries_of_no_charts("\"generated\"", "\"entries\":null,\"generated\"")]
#[case::a_comma_too_many("],\n\"tempo\"", "],,\n\"tempo\"")]
#[case::no_colon("\"tempo\":[", "\"tempo\" [")]
#[case::the_wrong_bracket("0.9.0\"}]", "0.9.0\"]}")]
#[case::no_end("}}}}", "}}}")]
#[case::more_behind_it("}}}}\n", "}}}} {}")]
fn what_is_in_doubt_is_decoded_as_a_whole(#[case] from: &str, #[case] to: &str) {
    let later = INDEX.replacen(from, to, 1);
    assert_not_cut(INDEX, &later);
}

#[rstest]
#[case::in_a_key_deep_down(b"{\"a\":{\"b\":{\"\xff\":1}}}")]
#[case::in_a_list_deep_down(b"[[[\"\xff\"]]]")]
#[case::in_a_value(b"\"\xff\"")]
fn what_is_no_utf_8_around_the_charts_is_refused_as_the_whole_does(#[case] value: &[u8]) {
    let memory = follow(&Memory::empty(), INDEX).memory;
    let (start, end) = INDEX.split_once("\"v1\"").unwrap();
    let index = [start.as_bytes(), value, end.as_bytes()].concat();
    for memory in [&Memory::empty(), &memory] {
        let delta = compare(memory, &index, &DecodeLimits::default(), usize::MAX);
        assert!(delta.unwrap().is_none(), "both refuse it");
    }
}

#[test]
fn a_time_is_left_out_wherever_the_end_of_what_is_read_at_once_falls() {
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
        let memory = follow(&Memory::empty(), &with(padding, "2020-01-01T00:00:00Z")).memory;
        let delta = follow(&memory, &with(padding, "2026-11-21T00:00:00Z"));
        assert_eq!(delta.read, Vec::<String>::new(), "{before}");
    }
}

#[test]
fn it_does_not_matter_how_the_bytes_come() {
    let memory = follow(&Memory::empty(), INDEX).memory;
    assert_eq!(memory.charts.len(), 3);
    for at_once in [1, 2, 3, 7, 64] {
        let delta = compare(&memory, INDEX.as_bytes(), &DecodeLimits::default(), at_once);
        assert!(delta.unwrap().unwrap().read.is_empty());
        let delta = compare(&Memory::empty(), INDEX.as_bytes(), &DecodeLimits::default(), at_once);
        assert_eq!(delta.unwrap().unwrap().memory.known.charts, memory.known.charts);
    }
}

#[test]
fn an_index_that_turns_from_yaml_to_json_and_back_is_read_anew() {
    let yaml = generator::generate(3, 4, 3);
    let json = serde_json::to_string(&serde_yaml::from_str::<serde_json::Value>(&yaml).unwrap()).unwrap();
    let memory = follow(&Memory::empty(), &yaml).memory;
    let delta = follow(&memory, &json);
    assert_eq!(delta.read.len(), 4);
    assert_eq!(follow(&delta.memory, &yaml).read.len(), 4);
}

#[test]
fn mutated_indexes_give_what_the_whole_gives() {
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
    let (mut accepted, mut known) = (0, 0);
    for seed in 0..400 {
        let yaml = generator::generate(seed % 20, 2, 2);
        let sound = serde_json::to_string(&serde_yaml::from_str::<serde_json::Value>(&yaml).unwrap()).unwrap();
        let mut memory = follow(&Memory::empty(), &sound).memory;
        let mut bytes = sound.clone().into_bytes();
        for _ in 0..5 {
            let start = random.below(bytes.len() + 1);
            let end = (start + random.below(4)).min(bytes.len());
            let piece = if random.below(3) > 0 { random.pick(&PIECES) } else { b"" };
            bytes.splice(start..end, piece.iter().copied());
            let at_once = random.pick(&[1, 50, usize::MAX]);
            match compare(&memory, &bytes, &DecodeLimits::default(), at_once) {
                Ok(Some(delta)) => {
                    accepted += 1;
                    known += delta.memory.charts.len() - delta.read.len();
                    memory = delta.memory;
                }
                Ok(None) => bytes = sound.clone().into_bytes(),
                Err(difference) => panic!("{difference}\n{}", String::from_utf8_lossy(&bytes)),
            }
        }
    }
    assert!(accepted > 200 && known > 100, "{accepted} {known}");
}
