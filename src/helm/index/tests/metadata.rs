use proptest::prelude::*;
use rstest::rstest;

use super::*;

const CHART_YAML: &str = r#"
apiVersion: v2
name: mysql
version: 1.10
appVersion: 8.0
description: a database
home: https://example.com
icon: https://example.com/icon.png
annotations: {category: Database, other: [1]}
keywords: [sql]
maintainers:
- name: author
- email: team@example.com
sources: []
dependencies: [{name: common}]
created: 2020-01-01T00:00:00Z
digest: evil
urls: [https://example.com/evil.tgz]
"#;

fn read(text: impl AsRef<[u8]>) -> Result<ChartMetadata, String> {
    metadata(text.as_ref(), &DecodeLimits::default())
}

fn version_of(version: &str) -> ChartMetadata {
    read(format!(
        "{{\"name\":\"a\",\"version\":\"{version}\",\"description\":\"{version}\"}}"
    ))
    .unwrap()
}

#[test]
fn a_chart_yaml_decodes_like_an_index_entry() {
    let published = |metadata: ChartMetadata| {
        metadata
            .with_version("1.10.0")
            .unwrap()
            .with_digest("sha256:1".to_owned())
            .with_urls(vec![String::new(), "oci://example.com/mysql:1.10.0".to_owned()])
    };
    let from_yaml = read(CHART_YAML).unwrap();
    assert_eq!(
        read(from_yaml.to_json()).as_ref(),
        Ok(&from_yaml),
        "as parsed from its JSON"
    );
    let from_yaml = published(from_yaml);
    let chart = chart(vec![from_yaml]).unwrap();
    let mut entry = CHART_YAML
        .replace("version: 1.10\n", "version: 1.10.0\n")
        // Ignored in a Chart.yaml.
        .replace("created: 2020-01-01T00:00:00Z\n", "")
        .replace('\n', "\n    ");
    for (key, value) in [("digest", "sha256:1"), ("urls", "[oci://example.com/mysql:1.10.0]")] {
        entry.push_str(&format!("{key}: {value}\n    "));
    }
    let (charts, _) = decode_text(format!("entries:\n  mysql:\n  -{}\n", &entry[4..])).unwrap();
    assert_eq!(charts, [chart]);
}

#[test]
fn both_notations_give_the_same_metadata() {
    let yaml = read(CHART_YAML).unwrap();
    // Numbers keep their text as written.
    let json = r#"{"apiVersion":"v2","name":"mysql","version":1.10,"appVersion":8.0,"description":"a database",
        "home":"https://example.com","icon":"https://example.com/icon.png","annotations":{"category":"Database","other":[1]},
        "keywords":["sql"],"maintainers":[{"name":"author"},{"email":"team@example.com"}],"sources":[],"digest":"evil"}"#;
    assert_eq!(read(json).unwrap(), yaml);
    assert_eq!(read(format!("\u{feff}\n {json}\n")).unwrap(), yaml);
    // The same in YAML's flow notation.
    assert_eq!(read(json.replace("\"name\":", "name: ")).unwrap(), yaml);
    assert_eq!((yaml.name(), yaml.version().version.as_str()), ("mysql", "1.10"));
    assert_eq!(yaml.version().created, "0001-01-01T00:00:00Z");
    assert_eq!((yaml.version().digest.as_str(), &yaml.version().urls), ("", &None));
}

#[rstest]
#[case("", "it is empty")]
#[case("# nothing\n", "it contains only comments")]
#[case("null", "it is not a map")]
#[case("[1, [2]]", "it is not a map")]
#[case("some text", "it is not a map")]
#[case("<html></html>", "it is not a map")]
#[case("name: a", "it has no version")]
#[case("{\"version\":\"1\\t\"}", "its version contains control characters")]
#[case("{\"version\":[1]}", "its version is a list, expected a text")]
#[case(
    "{\"version\":\"1\",\"name\":\"\\ud800\"}",
    "one of its texts contains an unpaired surrogate"
)]
#[case("name: a\nversion: 1\nkeywords: k", "its keywords is a text, expected a list")]
fn invalid_metadata_is_rejected_with_a_reason(#[case] text: &str, #[case] reason: &str) {
    assert_eq!(read(text).unwrap_err(), reason);
}

#[rstest]
#[case("a: [", "invalid YAML at line ")]
#[case("{\"name\": \"a\"", "invalid YAML at line ")]
#[case("version: 1\n---\nversion: 2", "invalid YAML at line ")]
fn invalid_yaml_is_rejected_with_its_position(#[case] text: &str, #[case] begin: &str) {
    let reason = read(text).unwrap_err();
    assert!(reason.starts_with(begin) && reason.contains("line"), "{reason}");
}

#[test]
fn invalid_utf_8_and_large_metadata_are_rejected() {
    assert!(read(b"version: \xff").is_err());
    assert!(read(b"{\"version\": \"\xff\"}").is_err());
    let limits = DecodeLimits {
        chart_bytes: 500,
        ..DecodeLimits::default()
    };
    let long = "k".repeat(600);
    for (text, expected) in [
        (
            format!("{{\"version\":\"1\",\"keywords\":[\"{long}\"]}}"),
            "it is too large",
        ),
        (
            format!("version: 1\nkeywords: [{long}]"),
            "it exceeds a limit near line",
        ),
    ] {
        let reason = metadata(text.as_bytes(), &limits).unwrap_err();
        assert!(reason.starts_with(expected), "{text}: {reason}");
    }
    let deep = format!(
        "{{\"version\":\"1\",\"keywords\":{}{}}}",
        "[".repeat(20_000),
        "]".repeat(20_000)
    );
    assert!(read(deep).is_err());
    let bomb = "a: &a [x, x]\nb: &b [*a, *a]\nversion: 1\nkeywords: [*b";
    assert!(read(bomb).is_err());
}

#[test]
fn an_invalid_version_cannot_be_set() {
    let metadata = version_of("1.0.0");
    assert_eq!(metadata.clone().with_version("").unwrap_err(), "it has no version");
    assert!(metadata.clone().with_version(&"1".repeat(129)).is_err());
    assert_eq!(metadata.with_version("1.0.0+a").unwrap().version().version, "1.0.0+a");
}

#[test]
fn a_chart_has_the_metadata_of_its_newest_version() {
    let made = ["1.0.0", "latest", "v1.10.0", "1.10.0", "1.9.0"].map(version_of);
    let chart = chart(made.to_vec()).unwrap();
    assert_eq!(versions(&chart), ["v1.10.0", "1.10.0", "1.9.0", "1.0.0", "latest"]);
    assert_eq!((chart.name.as_str(), chart.description.as_str()), ("a", "v1.10.0"));
}

#[test]
fn a_deprecated_chart_is_left_out() {
    let deprecated = |version: &str| read(format!("{{name: a, version: {version}, deprecated: true}}")).unwrap();
    assert_eq!(chart(vec![version_of("1.0.0"), deprecated("2.0.0")]), None);
    let made = chart(vec![version_of("1.0.0"), deprecated("0.9.0")]).unwrap();
    assert_eq!(versions(&made), ["1.0.0", "0.9.0"]);
    assert_eq!(chart(Vec::new()), None);
}

#[test]
fn a_chart_yaml_without_a_valid_name_is_an_error() {
    assert_eq!(read("version: 1.0.0").unwrap_err(), "it has no name");
    assert_eq!(
        read("{name: .., version: 1.0.0}").unwrap_err(),
        ".. is not a valid chart name"
    );
}

#[test]
fn newest_first_is_the_order_of_an_index() {
    let mut sorted = ["latest", "1.0.0-rc1", "1.0.0", "v2", "1.0.0+b"];
    sorted.sort_by(|a, b| newest_first(a, b));
    assert_eq!(sorted, ["v2", "1.0.0", "1.0.0+b", "1.0.0-rc1", "latest"]);
}

proptest! {
    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(bytes);
    }

    #[test]
    fn a_mutated_chart_yaml_does_not_panic(
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), 0..20_usize, "[\\PC\\n]{0,3}"), 1..6),
        json: bool,
    ) {
        let text = if json {
            serde_json::to_string(&serde_yaml::from_str::<serde_json::Value>(CHART_YAML).unwrap()).unwrap()
        } else {
            CHART_YAML.to_owned()
        };
        let mut bytes = text.into_bytes();
        for (place, length, piece) in edits {
            let start = place.index(bytes.len() + 1);
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, piece.bytes());
        }
        if let Ok(metadata) = read(&bytes) {
            prop_assert!(!metadata.version().version.is_empty());
            prop_assert_eq!(read(metadata.to_json()), Ok(metadata.clone()));
            let _ = chart(vec![metadata]);
        }
    }
}
