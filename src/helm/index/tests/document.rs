//! What holds for the document as a whole: its bytes, its notation, its digest, its anchors.

use super::*;

#[test]
fn bytes_that_are_no_text_are_refused() {
    for index in [
        &b"entries:\n  a: \xff\n"[..],
        b"a\0b: c\n",
        b"\xff\xfee\0n\0",
        b"{\"entries\": {\"\xff\": []}}",
    ] {
        let error = decode_text(index).unwrap_err();
        assert!(matches!(error.reason(), "InvalidJSON" | "InvalidYAML"), "{error}");
    }
}

#[test]
fn json_that_is_broken_off_is_refused_as_json() {
    let error = decode_text("{\"apiVersion\":\"v1\",\n\"entries\":{\"a\":[{\"name\":").unwrap_err();
    assert!(matches!(error.reason(), "InvalidJSON" | "InvalidYAML"), "{error}");
    assert!(error.to_string().contains("line 2"), "{error}");
    let trailing = decode_text("{\"apiVersion\":\"v1\",\"entries\":{}} x").unwrap_err();
    assert!(matches!(trailing.reason(), "InvalidJSON" | "InvalidYAML"), "{trailing}");
}

#[test]
fn what_begins_like_json_may_be_yaml() {
    let (charts, _) =
        decode_text("{\"entries\": {\"a\": [{\"name\": \"a\", \"version\": \"1\"}], b: [{name: b, version: 1.10}]}}")
            .unwrap();
    assert_eq!(
        charts.iter().map(|chart| chart.name.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
}

#[test]
fn a_byte_order_mark_is_passed_over() {
    for index in [
        "\u{feff}entries: {a: [{name: a, version: 1}]}",
        "\u{feff}{\"entries\": {\"a\": [{\"name\": \"a\", \"version\": 1}]}}",
    ] {
        assert_eq!(decode_text(index).unwrap().0.len(), 1);
    }
}

#[test]
fn the_digest_is_moved_by_names_versions_and_digests_alone() {
    let index = |a: &str, b: &str| {
        decode_text(format!("apiVersion: v1\nentries:\n{a}{b}"))
            .unwrap()
            .1
            .digest
    };
    let a = "  a: [{name: a, version: 1, digest: x}, {name: a, version: 2, digest: y}]\n";
    let b = "  b: [{name: b, version: 1, digest: z, deprecated: true}]\n";
    let digest = index(a, b);
    assert_eq!(index(b, a), digest);
    assert_eq!(index(&a.replace("digest: y", "digest: y, created: now"), b), digest);
    assert_eq!(
        index(
            "  a: [{name: a, version: 2, digest: y}, {name: a, version: 1, digest: x}]\n",
            b
        ),
        digest
    );
    for changed in [
        a.replace("version: 2", "version: 3"),
        a.replace("digest: y", "digest: n"),
        a.replace("name: a", "name: n"),
    ] {
        assert_ne!(index(&changed, b), digest);
    }
    assert_ne!(index(a, ""), digest);
}

#[test]
fn aliases_and_merge_keys_work_across_entries() {
    let (charts, summary) = decode_text(
        "
apiVersion: v1
common: &common {home: https://example.com, keywords: [k], description: common}
entries:
  a:
  - &first
    name: a
    version: 1.0.0
    maintainers: &people
    - name: somebody
  b:
  - description: own
    <<: [*common, {home: lost, icon: kept}]
    name: b
    version: 1.0.0
    maintainers: *people
  c: [*first]
  <<: {a: [{name: lost, version: 9}], d: [{name: d, version: 1}]}
",
    )
    .unwrap();
    assert_eq!(summary.names, 4);
    let names: Vec<_> = charts.iter().map(|chart| chart.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "a", "d"]);
    let b = &charts[1];
    assert_eq!(
        (b.home.as_str(), b.description.as_str(), b.icon.as_str()),
        ("https://example.com", "own", "kept")
    );
    assert_eq!(
        (b.keywords.as_deref(), b.maintainers[0].name.as_str()),
        (Some(&["k".to_owned()][..]), "somebody")
    );
}

#[test]
fn a_key_that_is_quoted_is_no_merge_key() {
    let chart = chart_of("{name: a, version: 1, '<<': {home: lost}}");
    assert_eq!(chart.home, "");
}

#[test]
fn a_sink_that_fails_ends_the_decoding() {
    struct Full;
    impl Sink for Full {
        type Error = &'static str;
        fn chart(&mut self, _: Chart) -> Result<(), Self::Error> {
            Err("the disk is full")
        }
        fn start_over(&mut self) -> Result<(), Self::Error> {
            Ok(())
        }
    }
    for index in [
        "{\"entries\":{\"a\":[{\"name\":\"a\",\"version\":\"1\"}]}}",
        "entries: {a: [{name: a, version: 1}]}",
    ] {
        let error = decode(Cursor::new(index), &DecodeLimits::default(), &mut Full).unwrap_err();
        assert!(matches!(error, DecodeError::Sink("the disk is full")), "{error}");
    }
}
