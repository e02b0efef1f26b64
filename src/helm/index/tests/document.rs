//! Document-level behavior: encoding, notation, digest, anchors.

use super::*;

#[test]
fn invalid_utf_8_is_rejected() {
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
fn truncated_json_is_rejected_as_json() {
    let error = decode_text("{\"apiVersion\":\"v1\",\n\"entries\":{\"a\":[{\"name\":").unwrap_err();
    assert!(matches!(error.reason(), "InvalidJSON" | "InvalidYAML"), "{error}");
    assert!(error.to_string().contains("line 2"), "{error}");
    let trailing = decode_text("{\"apiVersion\":\"v1\",\"entries\":{}} x").unwrap_err();
    assert!(matches!(trailing.reason(), "InvalidJSON" | "InvalidYAML"), "{trailing}");
}

#[test]
fn yaml_may_start_like_json() {
    let (charts, _) =
        decode_text("{\"entries\": {\"a\": [{\"name\": \"a\", \"version\": \"1\"}], b: [{name: b, version: 1.10}]}}")
            .unwrap();
    assert_eq!(
        charts.iter().map(|chart| chart.name.as_str()).collect::<Vec<_>>(),
        ["a", "b"]
    );
}

#[test]
fn a_byte_order_mark_is_ignored() {
    for index in [
        "\u{feff}entries: {a: [{name: a, version: 1}]}",
        "\u{feff}{\"entries\": {\"a\": [{\"name\": \"a\", \"version\": 1}]}}",
    ] {
        assert_eq!(decode_text(index).unwrap().0.len(), 1);
    }
}

#[test]
fn the_digest_depends_on_names_versions_and_digests_only() {
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
    - name: author
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
        (Some(&["k".to_owned()][..]), "author")
    );
}

#[test]
fn a_quoted_key_is_not_a_merge_key() {
    let chart = chart_of("{name: a, version: 1, '<<': {home: lost}}");
    assert_eq!(chart.home, "");
}

#[test]
fn a_failing_sink_ends_the_decode() {
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
