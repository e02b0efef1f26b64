use rstest::rstest;

use super::*;

#[test]
fn a_chart_has_the_fields_of_its_newest_version() {
    let (charts, summary) = decode_text(
        r#"
apiVersion: v1
entries:
  mysql:
  - name: mysql
    version: 1.0.0
    description: old
    keywords: [old]
  - name: mysql
    version: 1.1.0
    appVersion: 8.0.1
    created: 2020-12-15T06:16:10.500Z
    digest: abc
    description: new
    home: https://example.com
    icon: https://example.com/icon.png
    annotations: {category: Database, other: [1]}
    keywords: [sql, database]
    maintainers:
    - name: author
      email: author@example.com
    - email: team@example.com
    - name: else
      url: https://example.com/else
    sources: []
    urls: [charts/mysql-1.1.0.tgz]
    dependencies: [{name: common}]
generated: 2020-12-15T06:16:10.500Z
"#,
    )
    .unwrap();
    let maintainer = |name: &str, email: Option<&str>, url: Option<&str>| IndexMaintainer {
        name: name.to_owned(),
        email: email.map(str::to_owned),
        url: url.map(str::to_owned),
    };
    let expected = Chart {
        name: "mysql".to_owned(),
        description: "new".to_owned(),
        home: "https://example.com".to_owned(),
        icon: "https://example.com/icon.png".to_owned(),
        category: "Database".to_owned(),
        keywords: Some(vec!["sql".to_owned(), "database".to_owned()]),
        maintainers: vec![
            maintainer("author", Some("author@example.com"), None),
            maintainer("else", None, Some("https://example.com/else")),
        ],
        sources: Some(vec![]),
        versions: vec![
            Version {
                version: "1.1.0".to_owned(),
                app_version: "8.0.1".to_owned(),
                created: "2020-12-15T06:16:10.5Z".to_owned(),
                digest: "abc".to_owned(),
                urls: Some(vec!["charts/mysql-1.1.0.tgz".to_owned()]),
            },
            Version {
                version: "1.0.0".to_owned(),
                app_version: String::new(),
                created: "0001-01-01T00:00:00Z".to_owned(),
                digest: String::new(),
                urls: None,
            },
        ],
    };
    assert_eq!(charts, [expected]);
    assert_eq!(
        (summary.names, summary.versions, summary.deprecated, summary.duplicates),
        (1, 2, 0, 0)
    );
    assert_eq!(summary.skipped, Skipped::default());
}

#[test]
fn both_notations_give_the_same_charts() {
    let json = r#"{"apiVersion":"v1","entries":{"a":[
        {"name":"a","version":"1.0.0","appVersion":1.10,"deprecated":false,"urls":["u"],"keywords":["k",2,null],"home":null,
         "maintainers":[{"name":"m","email":"e","email":"f"},null,{"name":null}],"annotations":{"category":"c","x":{"y":[1]}}},
        {"name":"a","version":"1.2.0","created":"2020-01-01T00:00:00+00:00"}, null, 5, [1], {"version":[1]}],
        "b":null,"c":{"d":1},"d":"text","e":[]}}"#;
    let (from_json, json_summary) = decode_text(json).unwrap();
    // A leading comment makes it YAML.
    let (from_yaml, yaml_summary) = decode_text(format!("#\n{json}")).unwrap();
    assert_eq!(from_json, from_yaml);
    assert_eq!(json_summary, yaml_summary);
    assert_eq!(from_json.len(), 1);
    assert_eq!(from_json[0].versions[1].app_version, "1.10");
    assert_eq!(json_summary.skipped.count, 6);
}

#[rstest]
#[case("null", None, "it is null")]
#[case("~", None, "it is null")]
#[case("1.0.0", None, "it is a text, expected a map")]
#[case("[1]", None, "it is a list, expected a map")]
#[case("{name: a}", None, "it has no version")]
#[case("{name: a, version: null}", None, "it has no version")]
#[case("{name: a, version: ''}", None, "it has no version")]
#[case("{name: a, version: [1]}", None, "its version is a list, expected a text")]
#[case(
    "{name: a, version: \"1\\t\"}",
    Some("1 "),
    "its version contains control characters"
)]
#[case(
    "{name: {b: c}, version: 1.0.0}",
    Some("1.0.0"),
    "its name is a map, expected a text"
)]
#[case(
    "{name: a, version: 1.0.0, urls: u}",
    Some("1.0.0"),
    "its urls is a text, expected a list"
)]
#[case(
    "{name: a, version: 1.0.0, keywords: [[a]]}",
    Some("1.0.0"),
    "its entry in keywords is a list, expected a text"
)]
#[case(
    "{name: a, version: 1.0.0, maintainers: me}",
    Some("1.0.0"),
    "its maintainers are not a list"
)]
#[case(
    "{name: a, version: 1.0.0, maintainers: [me]}",
    Some("1.0.0"),
    "one of its maintainers is not a map"
)]
#[case(
    "{name: a, version: 1.0.0, annotations: [a]}",
    Some("1.0.0"),
    "its annotations are not a map"
)]
#[case(
    "{name: a, version: 1.0.0, deprecated: 'true'}",
    Some("1.0.0"),
    "its deprecated is neither true nor false"
)]
fn an_invalid_version_is_skipped_and_reported(
    #[case] entry: &str,
    #[case] version: Option<&str>,
    #[case] reason: &str,
) {
    let skip = skip_of(entry);
    assert_eq!((skip.chart.as_str(), skip.reason.as_str()), ("a", reason));
    let shown = version.filter(|version| !version.is_empty());
    assert_eq!(skip.version.as_deref().filter(|version| !version.is_empty()), shown);
}

#[test]
fn a_version_may_have_128_bytes() {
    let version = |bytes| format!("{{name: a, version: 1.0.0-{}}}", "x".repeat(bytes - "1.0.0-".len()));
    assert_eq!(chart_of(&version(128)).versions.len(), 1);
    assert_eq!(
        skip_of(&version(129)).reason,
        "its version has 129 bytes, more than 128"
    );
}

#[rstest]
#[case("''")]
#[case("null")]
#[case(".")]
#[case("'..'")]
#[case("\"a\\u001b[31m\"")]
#[case("\"a\\0\"")]
fn a_version_with_an_invalid_name_is_skipped(#[case] name: &str) {
    let invalid = format!("{{name: {name}, version: 2.0.0}}");
    let skip = skip_of(&invalid);
    assert_eq!((skip.chart.as_str(), skip.version.as_deref()), ("a", Some("2.0.0")));
    // The others keep the chart.
    for notation in ["", "#\n"] {
        let index = format!("{notation}{{\"entries\": {{\"a\": [{invalid}, {{name: web, version: 1.0.0}}]}}}}");
        let (charts, summary) = decode_text(index).unwrap();
        assert_eq!((charts[0].name.as_str(), versions(&charts[0])), ("web", vec!["1.0.0"]));
        assert_eq!((summary.versions, summary.skipped.count), (1, 1));
    }
}

#[test]
fn nameless_versions_are_counted_and_cost_the_index_nothing_else() {
    let nameless: String = (0..10_000)
        .map(|number| format!("  - version: 1.0.{number}\n"))
        .collect();
    let index = format!("entries:\n  a:\n{nameless}  - {{name: a, version: 0.9.0}}\n  b:\n{nameless}");
    let (charts, summary) = decode_text(index).unwrap();
    assert_eq!((charts.len(), versions(&charts[0])), (1, vec!["0.9.0"]));
    assert_eq!((summary.names, summary.versions, summary.skipped.count), (1, 1, 20_000));
    assert_eq!(summary.skipped.first.len(), Skipped::MAX_LISTED);
    assert_eq!(summary.skipped.first[0].reason, "it has no name");
}

#[rstest]
#[case("!!bool \"true\"", true)]
#[case("!!bool 'false'", false)]
#[case("!!bool yes", true)]
#[case("!!null 'null'", false)]
fn a_tagged_scalar_is_resolved_as_its_tag_says(#[case] deprecated: &str, #[case] expected: bool) {
    let index = format!("entries: {{a: [{{name: a, version: 1, deprecated: {deprecated}}}]}}");
    let (_, summary) = decode_text(index).unwrap();
    assert_eq!((summary.skipped.count, summary.deprecated == 1), (0, expected));
}

#[test]
fn a_name_may_have_250_bytes() {
    assert_eq!(
        chart_of(&format!("{{name: {}, version: 1}}", "n".repeat(250)))
            .name
            .len(),
        250
    );
    skip_of(&format!("{{name: {}, version: 1}}", "n".repeat(251)));
}

#[rstest]
#[case("\"x') OR true OR (info->>'name' = 'y\"", "x') OR true OR (info->>'name' = 'y")]
#[case("o'neill", "o'neill")]
#[case("project1/foo", "project1/foo")]
#[case("a b", "a b")]
#[case("1.10", "1.10")]
#[case("'null'", "null")]
#[case("!!str null", "null")]
#[case("true", "true")]
#[case("…", "…")]
fn a_name_may_contain_any_printable_character(#[case] written: &str, #[case] name: &str) {
    assert_eq!(chart_of(&format!("{{name: {written}, version: 1.0.0}}")).name, name);
}

#[rstest]
#[case("1.10")]
#[case("3")]
#[case("0x1F")]
#[case("1e3")]
#[case("0.10.0")]
#[case("true")]
#[case("2020-01-01")]
fn scalars_keep_their_written_text(#[case] text: &str) {
    let chart = chart_of(&format!(
        "{{name: a, version: {text}, appVersion: {text}, digest: {text}, keywords: [{text}]}}"
    ));
    assert_eq!(chart.versions[0].version, text);
    assert_eq!(chart.versions[0].app_version, text);
    assert_eq!(chart.versions[0].digest, text);
    assert_eq!(chart.keywords.unwrap(), [text]);
}

#[test]
fn numbers_in_json_keep_their_written_text_too() {
    let (charts, _) = decode_text(r#"{"entries":{"a":[{"name":1.50,"version":1.10,"appVersion":1e3}]}}"#).unwrap();
    assert_eq!(charts[0].name, "1.50");
    assert_eq!(
        (
            charts[0].versions[0].version.as_str(),
            charts[0].versions[0].app_version.as_str()
        ),
        ("1.10", "1e3")
    );
}

#[test]
fn nul_is_removed_from_texts() {
    let chart =
        chart_of(r#"{"name": "a", "version": "1", "description": "a\0b", "keywords": ["\0"], "digest": "\0d"}"#);
    assert_eq!(
        (chart.description.as_str(), chart.versions[0].digest.as_str()),
        ("ab", "d")
    );
    assert_eq!(chart.keywords.unwrap(), [""]);
}

#[rstest]
#[case("", None)]
#[case("urls: null,", None)]
#[case("urls: [],", None)]
#[case("urls: [''],", None)]
#[case("urls: [null, b],", Some(vec!["b".to_owned()]))]
fn urls_are_never_an_empty_list(#[case] urls: &str, #[case] expected: Option<Vec<String>>) {
    assert_eq!(
        chart_of(&format!("{{name: a, {urls} version: 1.0.0}}")).versions[0].urls,
        expected
    );
}

#[rstest]
#[case("created: 12,")]
#[case("created: [1],")]
#[case("created: {},")]
#[case("created: never,")]
#[case("created: null,")]
fn an_invalid_timestamp_becomes_the_zero_time(#[case] created: &str) {
    assert_eq!(
        chart_of(&format!("{{name: a, {created} version: 1.0.0}}")).versions[0].created,
        created::ZERO
    );
}

#[test]
fn the_last_of_two_equal_keys_wins_everywhere() {
    let chart =
        chart_of("{name: x, name: a, version: 1, version: 2, maintainers: [{name: m, name: n}], urls: [u], urls: []}");
    assert_eq!(
        (
            chart.name.as_str(),
            versions(&chart),
            chart.maintainers[0].name.as_str()
        ),
        ("a", vec!["2"], "n")
    );
    assert_eq!(chart.versions[0].urls, None);

    let twice = "{\"entries\": {\"a\": [{\"name\": \"a\", \"version\": \"1\"}], \"b\": [{\"name\": \"b\", \"version\": \"1\"}], \
                 \"a\": [{\"name\": \"a\", \"version\": \"2\"}], \"a\": [{\"name\": \"c\", \"version\": \"3\"}]}}";
    for index in [twice.to_owned(), format!("#\n{twice}")] {
        let (charts, summary) = decode_text(index).unwrap();
        assert_eq!(
            charts.iter().map(|chart| chart.name.as_str()).collect::<Vec<_>>(),
            ["b", "c"]
        );
        assert_eq!((summary.names, summary.versions), (2, 2));
    }

    let entries_twice = "entries: {a: [{name: a, version: 1}], b: [null]}\nentries: {a: [{name: a, version: 2}]}\n";
    let (charts, summary) = decode_text(entries_twice).unwrap();
    assert_eq!((charts.len(), versions(&charts[0]), summary.names), (1, vec!["2"], 1));
    assert_eq!(summary.skipped.count, 0);

    let entries_gone = "apiVersion: v1\nentries: {a: [{name: a, version: 1}]}\nentries: null\n";
    let (charts, summary) = decode_text(entries_gone).unwrap();
    assert_eq!((charts.len(), summary.names), (0, 0));
}

#[test]
fn duplicate_versions_both_stay_in_the_order_of_the_file() {
    let (charts, summary) = decode_text(
        "entries: {a: [{name: a, version: 1.0.0, digest: first}, {name: a, version: 2.0.0}, {name: a, version: 1.0.0, digest: second}]}",
    )
    .unwrap();
    let digests: Vec<_> = charts[0]
        .versions
        .iter()
        .map(|version| version.digest.as_str())
        .collect();
    assert_eq!(digests, ["", "first", "second"]);
    assert_eq!((summary.versions, summary.duplicates), (3, 1));
}

#[test]
fn a_chart_whose_newest_version_is_deprecated_is_left_out_and_counted() {
    let (charts, summary) = decode_text(
        "entries:\n  a: [{name: a, version: 1.0.0}, {name: a, version: 2.0.0, deprecated: true}]\n  \
         b: [{name: b, version: 1.0.0, deprecated: true}, {name: b, version: 2.0.0}]\n",
    )
    .unwrap();
    assert_eq!(
        (charts.len(), charts[0].name.as_str(), charts[0].versions.len()),
        (1, "b", 2)
    );
    assert_eq!((summary.names, summary.versions, summary.deprecated), (2, 4, 1));
}

#[test]
fn the_name_is_that_of_the_newest_version_and_not_the_key() {
    let (charts, _) = decode_text("entries: {key: [{name: old, version: 1}, {name: new, version: 2}]}").unwrap();
    assert_eq!(charts[0].name, "new");
}

#[test]
fn the_next_version_replaces_an_invalid_newest_one() {
    let (charts, summary) =
        decode_text("entries: {a: [{name: a, version: 2, icon: [x]}, {name: a, version: 1, icon: y}, null]}").unwrap();
    assert_eq!((charts[0].icon.as_str(), versions(&charts[0])), ("y", vec!["1"]));
    assert_eq!((summary.skipped.count, summary.versions), (2, 1));
}

#[test]
fn the_first_twenty_skips_are_listed_with_truncated_printable_texts() {
    let key = format!("\"\\e[31m{}\"", "k".repeat(1000));
    let index = format!(
        "entries:\n  {key}:\n{}  - {{name: a, version: {}}}\n",
        "  - null\n".repeat(30),
        "v".repeat(3000)
    );
    let (_, summary) = decode_text(index).unwrap();
    assert_eq!((summary.skipped.count, summary.skipped.first.len()), (31, 20));
    let long = skip_of(&format!("{{name: a, version: {}}}", "v".repeat(3000)));
    assert!(long.version.unwrap().len() <= Skip::TEXT_BYTES);
    assert!(
        summary
            .skipped
            .first
            .iter()
            .all(|skip| !skip.chart.chars().any(char::is_control))
    );
}

#[test]
fn a_chart_that_is_not_a_list_is_skipped_and_one_without_versions_is_ignored() {
    let (charts, summary) =
        decode_text("entries: {a: text, b: {c: d}, c: null, d: [], e: [{name: e, version: 1}]}").unwrap();
    assert_eq!((charts.len(), summary.names, summary.skipped.count), (1, 1, 2));
    let named: Vec<_> = summary.skipped.first.iter().map(|skip| skip.chart.as_str()).collect();
    assert_eq!(named, ["a", "b"]);
}

#[rstest]
#[case("apiVersion: v1\nentries: {}\n")]
#[case("apiVersion: v1\nentries: null\n")]
#[case("apiVersion: v1\nentries:\ngenerated: x\n")]
#[case("{\"apiVersion\":\"v1\",\"entries\":{}}")]
#[case("{\"apiVersion\":\"v1\",\"entries\":null}")]
fn an_index_may_be_empty(#[case] index: &str) {
    let (charts, summary) = decode_text(index).unwrap();
    assert_eq!((charts.len(), summary.names, summary.versions), (0, 0, 0));
    assert_eq!(summary.digest.len(), 64);
}

#[rstest]
#[case("")]
#[case("\n")]
#[case(" \n\t \r\n")]
#[case("\u{feff}")]
#[case("# nothing\n")]
#[case("<!DOCTYPE html><html><body>Not here</body></html>")]
#[case("\n  <html>")]
#[case("not found")]
#[case("404: Not Found\n")]
#[case("42")]
#[case("[]")]
#[case("- a\n- b\n")]
#[case("\"text\"")]
#[case("null")]
#[case("{}")]
#[case("{\"message\":\"not found\"}")]
#[case("apiVersion: v1\n")]
#[case("entries: {}\n")]
#[case("entries:\n")]
#[case("{\"entries\":{}}")]
#[case("{\"apiVersion\":null,\"entries\":{}}")]
#[case("apiVersion: v1\nentries: []\n")]
#[case("apiVersion: v1\nentries: text\n")]
#[case("{\"apiVersion\":\"v1\",\"entries\":[]}")]
#[case("{\"apiVersion\":\"v1\",\"entries\":5}")]
fn other_documents_are_not_an_index(#[case] index: &str) {
    let error = decode_text(index).unwrap_err();
    assert_eq!(error.reason(), "NotAnIndex", "{error}");
    assert!(error.to_string().contains("check that the repository URL"), "{error}");
}

#[rstest]
#[case("<<<<<<< HEAD\napiVersion: v1\n=======\napiVersion: v2\n>>>>>>> x\nentries: {}\n")]
#[case("apiVersion: v1\nentries:\n<<<<<<< HEAD\n  a: []\n=======\n  b: []\n>>>>>>> x\n")]
#[case("apiVersion: v1\nentries:\n  a:\n  - name: \"a\n")]
#[case("apiVersion: v1\nentries: {a: [\n")]
#[case("apiVersion: v1\nentries:\n  a:\n\t- name: a\n")]
#[case("apiVersion: v1\nentries: {}\n---\napiVersion: v1\nentries: {}\n")]
#[case("apiVersion: v1\nentries:\n  a: *unknown\n")]
#[case("apiVersion: v1\nentries: &a\n  a: *a\n")]
#[case("entries:\n  a:\n  - name: a\n   version: 1\n")]
fn invalid_yaml_is_rejected_with_its_position(#[case] index: &str) {
    let error = decode_text(index).unwrap_err();
    assert_eq!(error.reason(), "InvalidYAML", "{error}");
    assert!(error.to_string().contains("at line "), "{error}");
}
