//! Decoders of registry documents.

use std::time::Duration;

use proptest::prelude::*;
use rstest::rstest;

use crate::oci::decode::{OciDecodeError, catalog_page, charts_index, hub_page, tag_list, token};
use crate::oci::manifest::{Manifest, manifest};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[rstest]
#[case(r#"{"name":"a","tags":["1.0.0","latest"]}"#, &["1.0.0", "latest"])]
#[case(r#"{"name":"a","tags":null}"#, &[])]
#[case(r#"{"tags":null}"#, &[])]
#[case(r#"{"name":"a"}"#, &[])]
#[case(r#"{"name":"a","tags":[]}"#, &[])]
#[case(r#"{"tags":["b","a","b",1,null,{},"","../x","a/b","a b","+"],"more":{"of":"this"}}"#, &["b", "a"])]
fn valid_tags_are_distinct_and_in_order(#[case] document: &str, #[case] tags: &[&str]) {
    assert_eq!(tag_list(document.as_bytes()).unwrap(), tags);
}

#[rstest]
fn an_unrelated_document_is_an_error(
    #[values(
        "",
        "{}",
        "null",
        "[]",
        "<html>",
        r#"{"errors":[]}"#,
        r#"{"tags":"1.0.0"}"#,
        r#"{"tags":["a""#
    )]
    document: &str,
) {
    assert!(tag_list(document.as_bytes()).is_err());
    assert!(catalog_page(document.as_bytes()).is_err());
    assert!(charts_index(document.as_bytes()).is_err());
    assert!(hub_page(document.as_bytes()).is_err());
    assert!(manifest(document.as_bytes()).is_err());
    assert!(token(document.as_bytes()).is_err());
}

#[test]
fn valid_names_of_a_catalog_page_are_returned() {
    let page = br#"{"repositories":["a/b","c","c","../d","e?f",7]}"#;
    assert_eq!(catalog_page(page).unwrap(), ["a/b", "c"]);
    assert!(catalog_page(br#"{"repositories":null}"#).unwrap().is_empty());
}

#[test]
fn keys_of_a_charts_index_are_sorted() {
    let index =
        br#"{"apiVersion":"v1","entries":{"nginx":{"versions":[{"version":"1.0.0"}]},"common":null,"../x":{}}}"#;
    assert_eq!(charts_index(index).unwrap(), ["common", "nginx"]);
}

#[test]
fn a_docker_hub_page_has_names_and_a_next_page() {
    let page = br#"{"count":3,"next":"https://hub.docker.com/v2/x?page=2","previous":null,"results":[{"name":"a","namespace":"n"},{"name":"b"},{"user":"x"}]}"#;
    let page = hub_page(page).unwrap();
    assert_eq!(
        (page.names, page.next.as_deref()),
        (
            vec!["a".to_owned(), "b".to_owned()],
            Some("https://hub.docker.com/v2/x?page=2")
        )
    );
    assert_eq!(hub_page(br#"{"next":null,"results":[]}"#).unwrap().next, None);
}

#[rstest]
#[case(r#"{"token":"a.b-c_d~+/=","expires_in":300}"#, "a.b-c_d~+/=", 300)]
#[case(r#"{"access_token":"t"}"#, "t", 60)]
#[case(r#"{"token":"","access_token":"t","expires_in":0}"#, "t", 60)]
#[case(r#"{"token":"t","access_token":"u","expires_in":-5}"#, "t", 60)]
#[case(r#"{"token":"t","expires_in":1e300}"#, "t", 86_400)]
#[case(r#"{"token":"t","expires_in":"300"}"#, "t", 60)]
fn a_token_has_a_lifetime(#[case] document: &str, #[case] value: &str, #[case] seconds: u64) {
    let found = token(document.as_bytes()).unwrap();
    assert_eq!(
        (found.value.expose(), found.lifetime),
        (value, Duration::from_secs(seconds))
    );
    assert!(!format!("{found:?}").contains(value) || value.len() == 1);
}

#[rstest]
fn an_invalid_token_is_rejected_without_being_printed(
    #[values(
        r#"{"token":"secret\r\nX: y"}"#,
        r#"{"token":"secret é"}"#,
        r#"{"token":["secret"]}"#,
        r#"{"token":5,"x":"secret"}"#
    )]
    document: &str,
) {
    let error = token(document.as_bytes()).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("secret"), "{error}");
}

fn document(config: &str, layers: &[&str]) -> String {
    let part =
        |kind: &str| format!(r#"{{"mediaType":"{kind}","digest":"{DIGEST}","size":7,"annotations":{{"a":"b"}}}}"#);
    let layers: Vec<String> = layers.iter().map(|kind| part(kind)).collect();
    format!(
        r#"{{"schemaVersion":2,"config":{},"layers":[{}]}}"#,
        part(config),
        layers.join(",")
    )
}

const HELM: &str = "application/vnd.cncf.helm.config.v1+json";
const CHART: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

#[rstest]
#[case(&[CHART], CHART)]
#[case(&["application/vnd.cncf.helm.chart.provenance.v1.prov", CHART], CHART)]
#[case(&["application/tar+gzip"], "application/tar+gzip")]
#[case(&["application/tar+gzip", CHART], CHART)]
fn a_chart_is_recognized_by_its_media_types(#[case] layers: &[&str], #[case] expected: &str) {
    match manifest(document(HELM, layers).as_bytes()).unwrap() {
        Manifest::Chart { config, layer } => {
            assert_eq!(
                (config.media_type.as_str(), config.digest.as_str(), config.size),
                (HELM, DIGEST, 7)
            );
            assert_eq!(
                (layer.media_type.as_str(), layer.digest.as_str(), layer.size),
                (expected, DIGEST, 7)
            );
        }
        other => panic!("{other:?}"),
    }
}

const IMAGE: &str = "application/vnd.oci.image.config.v1+json";

#[rstest]
#[case(&document(IMAGE, &["application/vnd.oci.image.layer.v1.tar+gzip"]), "a container image")]
#[case(&document("application/vnd.docker.container.image.v1+json", &[]), "a container image")]
#[case(&document(IMAGE, &["application/vnd.dev.cosign.simplesigning.v1+json"]), "a signature")]
#[case(&document("application/vnd.cncf.notary.signature", &["application/jose+json"]), "a signature")]
#[case(&document(IMAGE, &["application/vnd.dsse.envelope.v1+json"]), "an attestation")]
#[case(&document(IMAGE, &["application/vnd.in-toto+json"]), "an attestation")]
#[case(&document(HELM, &["application/octet-stream"]), "a Helm chart without an archive")]
#[case(&document("application/vnd.wasm.config.v1+json", &[]), "an artifact of type application/vnd.wasm.config.v1+json")]
#[case(r#"{"schemaVersion":2,"manifests":[]}"#, "an image index")]
#[case(
    r#"{"schemaVersion":1,"fsLayers":[],"history":[]}"#,
    "a container image with schema 1"
)]
#[case(r#"{"artifactType":"x\u001b[31m","layers":null}"#, "an artifact of type x [31m")]
#[case(r#"{"config":{"mediaType":5},"layers":[null,{"size":"x"}]}"#, "an artifact of type ")]
fn other_artifacts_are_described(#[case] document: &str, #[case] description: &str) {
    assert_eq!(
        manifest(document.as_bytes()).unwrap(),
        Manifest::Other(description.to_owned())
    );
}

#[test]
fn a_charts_index_has_exactly_one_layer() {
    const CONFIG: &str = "application/vnd.vmware.charts.index.config.v1+json";
    const LAYER: &str = "application/vnd.vmware.charts.index.layer.v1+json";
    let kind = |layers: &[&str]| manifest(document(CONFIG, layers).as_bytes()).unwrap();
    assert!(matches!(kind(&[LAYER]), Manifest::ChartsIndex(layer) if layer.digest == DIGEST));
    for layers in [&[][..], &[LAYER, LAYER], &["application/tar+gzip"]] {
        assert!(matches!(kind(layers), Manifest::Other(_)));
    }
}

#[rstest]
#[case(DIGEST, "sha512:00")]
#[case(DIGEST, "../../blobs")]
#[case("7,", "-7,")]
#[case("\"size\":7", "\"bytes\":7")]
#[case("digest", "digset")]
fn a_chart_with_invalid_descriptors_is_rejected(#[case] from: &str, #[case] to: &str) {
    let invalid = document(HELM, &[CHART]).replace(from, to);
    assert!(
        matches!(
            manifest(invalid.as_bytes()),
            Err(OciDecodeError::Digest(_) | OciDecodeError::Missing(_))
        ),
        "{invalid}"
    );
}

/// JSON tokens and field names of registry documents.
const PIECES: [&str; 30] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "7",
    "-1",
    "1e999",
    "\"tags\":",
    "\"name\":",
    "\"a\"",
    "\"repositories\":",
    "\"entries\":",
    "\"results\":",
    "\"next\":",
    "\"token\":",
    "\"expires_in\":",
    "\"config\":",
    "\"layers\":",
    "\"mediaType\":",
    "\"application/vnd.cncf.helm.config.v1+json\"",
    "\"digest\":",
    "\"size\":",
    "\"manifests\":",
    "\\ud800",
    "\u{0}",
    "\u{feff}",
];

fn decode_all(bytes: &[u8]) {
    let _ = (tag_list(bytes), catalog_page(bytes), charts_index(bytes));
    let _ = (hub_page(bytes), token(bytes), manifest(bytes));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn arbitrary_documents_never_panic(pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..20), bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        decode_all(pieces.concat().as_bytes());
        decode_all(&bytes);
    }

    #[test]
    fn damaged_manifests_never_panic(position in 0_usize..600, byte in any::<u8>(), length in 0_usize..600) {
        let mut bytes = document(HELM, &[CHART, "application/tar+gzip"]).into_bytes();
        let (position, length) = (position % bytes.len(), length % bytes.len());
        bytes[position] = byte;
        decode_all(&bytes);
        decode_all(&bytes[..length]);
    }
}

#[test]
fn documents_that_exceed_a_limit_are_rejected() {
    let tags = |count: usize| format!(r#"{{"tags":[{}0]}}"#, "0,".repeat(count - 1));
    assert!(tag_list(tags(100_000).as_bytes()).is_ok());
    assert!(matches!(
        tag_list(tags(100_001).as_bytes()),
        Err(OciDecodeError::Invalid(_))
    ));
    let entries: String = (0..100_001).map(|number| format!(r#""{number}":0,"#)).collect();
    assert!(charts_index(format!(r#"{{"entries":{{{entries}"x":0}}}}"#).as_bytes()).is_err());
    assert!(manifest(document(HELM, &[CHART; 1_001]).as_bytes()).is_err());
    assert!(token(format!(r#"{{"token":"{}"}}"#, "x".repeat(16 * 1024 + 1)).as_bytes()).is_err());
}

#[rstest]
fn deep_nesting_never_overflows_the_stack(#[values(100, 128, 129, 1_000, 100_000)] depth: usize) {
    for field in ["tags", "config", "entries", "token"] {
        decode_all([format!("{{\"{field}\":"), "[".repeat(depth)].concat().as_bytes());
        decode_all([format!("{{\"{field}\":"), "{\"a\":".repeat(depth)].concat().as_bytes());
    }
}
