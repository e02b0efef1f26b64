use rstest::rstest;
use serde_json::json;

use super::*;
use crate::api::oam::compression::{Compressed, Format};

#[rstest]
#[case::plain(None, "")]
#[case::gzip(Some(Format::Gzip), "gzip")]
#[case::zstd(Some(Format::Zstd), "zstd")]
fn contents_survive_a_round_trip(#[case] format: Option<Format>, #[case] type_: &str) {
    let original = plain("nginx");
    let compressed = compress(original.clone(), format).unwrap();
    assert_eq!(compressed.compression.type_, type_);
    let stored: ApplicationRevisionSpec = serde_json::from_str(&serde_json::to_string(&compressed).unwrap()).unwrap();
    assert_eq!(stored.component_definitions.is_empty(), !type_.is_empty());
    assert_eq!(*expand(&stored).unwrap(), original);
}

#[test]
fn large_contents_are_compressed_without_a_setting() {
    let compressed = compress(contents("nginx", &"a".repeat(1 << 20), ""), None).unwrap();
    assert_eq!(compressed.compression.type_, "zstd");
    let error = compress(contents("nginx", &"a".repeat(8 << 20), ""), None).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("more than a revision can hold; split the application"),
        "{error}"
    );
}

#[test]
fn a_compressed_revision_of_kubevela_is_read_and_a_bomb_is_not() {
    let json = serde_json::to_vec(&plain("nginx")).unwrap();
    let compression = Compressed::encode(Format::Zstd, &json).unwrap();
    let stored = json!({
        "application": { "metadata": { "creationTimestamp": null }, "spec": { "components": [] }, "status": {} },
        "compression": compression,
    });
    let stored: ApplicationRevisionSpec = serde_json::from_value(stored).unwrap();
    assert_eq!(*expand(&stored).unwrap(), plain("nginx"));
    let bomb = ApplicationRevisionSpec {
        compression: Compressed::encode(Format::Zstd, &vec![b' '; 16 << 20]).unwrap(),
        ..ApplicationRevisionSpec::default()
    };
    assert_eq!(
        expand(&bomb).unwrap_err().to_string(),
        "decompressed data exceeds 8 MiB"
    );
}

#[test]
fn a_packed_revision_has_the_contents_and_metadata_of_the_original_and_little_of_its_size() {
    let mut object = json!({
        "metadata": {
            "name": "shop-v1", "namespace": "team", "resourceVersion": "7", "labels": { "a": "b" },
            "managedFields": [{ "time": "10000-01-01T00:00:00Z" }],
        },
        "spec": plain("nginx"),
        "status": { "succeeded": true },
    });
    let text = "x: 1\n".repeat(10_000);
    object["spec"]["componentDefinitions"]["large"] =
        json!({ "metadata": { "name": "large" }, "spec": { "schematic": { "cue": { "template": text } } } });
    let packed = Packed::of_text(&object.to_string()).unwrap();
    assert_eq!((packed.name.as_str(), packed.version.as_str()), ("shop-v1", "7"));
    assert!(packed.packed_bytes() < 10_000 && packed.unpacked_bytes() > 50_000);
    let (revision, contents) = packed.unpack().unwrap();
    assert_eq!(contents, serde_json::from_value(object["spec"].clone()).unwrap());
    assert_eq!(
        revision.metadata.labels,
        Some([("a".to_owned(), "b".to_owned())].into())
    );
    assert_eq!(
        (revision.metadata.managed_fields, revision.spec),
        (None, ApplicationRevisionSpec::default())
    );
    assert!(revision.status.unwrap().succeeded);
}

#[test]
fn the_size_of_compressed_contents_counts_before_they_are_expanded() {
    let contents = ApplicationRevisionSpec {
        referred_objects: vec![json!("x".repeat(1 << 20))],
        ..plain("nginx")
    };
    let spec = compress(contents.clone(), Some(Format::Gzip)).unwrap();
    let revision = ApplicationRevision {
        spec,
        ..ApplicationRevision::default()
    };
    let packed = Packed::of(&revision).unwrap();
    assert!(packed.packed_bytes() < 64 << 10 && packed.unpacked_bytes() > 1 << 20);
    assert_eq!(packed.unpack().unwrap().1, contents);
}
