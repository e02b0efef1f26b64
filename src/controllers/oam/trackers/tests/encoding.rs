use std::sync::Arc;

use rstest::rstest;
use serde_json::json;

use super::*;
use crate::api::oam::compression::{Compressed, Format};
use crate::api::oam::{RawManifest, ResourceTracker, ResourceTrackerSpec};

fn spec_of(encoded: Encoded) -> ResourceTrackerSpec {
    let spec = ResourceTrackerSpec {
        managed_resources: encoded.managed_resources,
        compression: encoded.compression,
        ..ResourceTrackerSpec::default()
    };
    // As the API server stores and returns it.
    serde_json::from_str(&serde_json::to_string(&spec).unwrap()).unwrap()
}

#[rstest]
#[case::plain(None, "", 1)]
#[case::gzip(Some(Format::Gzip), "gzip", 1)]
#[case::zstd(Some(Format::Zstd), "zstd", 1)]
#[case::zstd_by_size(None, "zstd", 40)]
fn entries_survive_a_round_trip(#[case] format: Option<Format>, #[case] type_: &str, #[case] count: usize) {
    let entries: Vec<_> = (0..count)
        .map(|number| with_manifest(&format!("c{number}"), 8 << 10))
        .collect();
    let encoded = encode(entries.clone(), format).unwrap();
    assert_eq!(encoded.compression.type_, type_);
    assert_eq!(encoded.managed_resources.is_empty(), !type_.is_empty());
    assert!(encoded.omitted_manifests.is_empty());
    assert_eq!(decode(&spec_of(encoded)).unwrap(), entries);
}

#[test]
fn large_manifests_are_left_out_of_a_tracker_that_is_too_large() {
    let mut entries = vec![with_manifest("small", 1 << 10)];
    entries.extend((0..20).map(|number| with_manifest(&format!("large{number}"), 100 << 10)));
    let encoded = encode(entries, None).unwrap();
    assert_eq!(encoded.omitted_manifests.len(), 20);
    assert!(encoded.compression.data.len() < 1_400_000);
    let decoded = decode(&spec_of(encoded)).unwrap();
    let kept: Vec<_> = decoded.iter().filter(|entry| entry.raw.is_some()).collect();
    assert_eq!((decoded.len(), kept.len()), (21, 1));
    assert_eq!(kept[0].name, "small");
}

#[test]
fn all_manifests_are_left_out_if_many_small_ones_do_not_fit() {
    let entries: Vec<_> = (0..60)
        .map(|number| with_manifest(&format!("c{number}"), 50 << 10))
        .collect();
    let encoded = encode(entries, None).unwrap();
    assert_eq!(encoded.omitted_manifests.len(), 60);
    assert_eq!(decode(&spec_of(encoded)).unwrap().len(), 60);
}

#[test]
fn too_many_entries_are_neither_written_nor_read() {
    let entries = vec![entry("Pod", "p"); 20_001];
    let json = serde_json::to_vec(&entries).unwrap();
    let error = encode(entries, None).unwrap_err().to_string();
    assert!(error.starts_with("20001 objects exceed the limit of 20000"), "{error}");
    let spec = ResourceTrackerSpec {
        compression: Compressed::encode(Format::Zstd, &json).unwrap(),
        ..ResourceTrackerSpec::default()
    };
    let error = decode(&spec).unwrap_err().to_string();
    assert!(error.contains("a list of at most 20000 managed resources"), "{error}");
}

/// An entry with a manifest that hardly takes space when it is compressed.
fn with_compressible_manifest(number: usize, bytes: usize) -> ManagedResource {
    ManagedResource {
        raw: Some(RawManifest::of(&json!({ "text": "x".repeat(bytes) })).unwrap()),
        ..entry("ConfigMap", &number.to_string())
    }
}

#[rstest]
#[case::fits(31, 1 << 20, 0)]
#[case::large_manifests(33, 1 << 20, 33)]
#[case::many_small_manifests(700, 50 << 10, 700)]
fn a_list_is_encoded_only_if_it_can_be_decoded(#[case] count: usize, #[case] bytes: usize, #[case] omitted: usize) {
    let entries: Vec<_> = (0..count)
        .map(|number| with_compressible_manifest(number, bytes))
        .collect();
    let encoded = encode(entries, None).unwrap();
    assert_eq!(encoded.omitted_manifests.len(), omitted);
    assert_eq!(decode(&spec_of(encoded)).unwrap().len(), count);
}

#[test]
fn a_list_that_is_too_large_without_manifests_is_refused() {
    let large = ManagedResource {
        component: "x".repeat(1 << 20),
        ..with_compressible_manifest(0, 1)
    };
    let error = encode(vec![large; 33], None).unwrap_err().to_string();
    assert!(error.starts_with("33 objects take 346"), "{error}");
}

#[rstest]
#[case::of_go(b"null", Ok(0))]
#[case::empty(b"[]", Ok(0))]
#[case::null_entries(br#"[null, {"kind":"Pod","name":"p"}]"#, Ok(1))]
#[case::unknown_fields(br#"[{"kind":"Pod","name":"p","fieldPath":"x","resourceVersion":"7"}]"#, Ok(1))]
#[case::another_type(br#"{"kind":"Pod"}"#, Err("managed resources are invalid: "))]
#[case::broken(br#"[{"kind":"#, Err("managed resources are invalid: "))]
fn compressed_lists_of_kubevela_are_read(#[case] json: &[u8], #[case] expected: Result<usize, &str>) {
    for format in [Format::Gzip, Format::Zstd] {
        let spec = ResourceTrackerSpec {
            compression: Compressed::encode(format, json).unwrap(),
            ..ResourceTrackerSpec::default()
        };
        match (decode(&spec), expected) {
            (Ok(entries), Ok(count)) => assert_eq!(entries.len(), count),
            (Err(error), Err(text)) => assert!(error.to_string().starts_with(text), "{error}"),
            (decoded, _) => panic!("{decoded:?} instead of {expected:?}"),
        }
    }
}

/// Two Deployments with manifests, compressed by the packages that KubeVela uses: Go's gzip, and zstd of klauspost.
const OF_GO: [(&str, &str); 2] = [
    (
        "gzip",
        "H4sIAAAAAAAA/6yPwQrCMBBE/2XOAek1Z7/Bi3hY0xVjm+ySBIuU/LuE6kFU6KHX5c3MvuMMl5iKJFhMkobLKBMMBh97WOxZR3kEjgUGkQJnJcew\
         yFfR16kF+QwDUn/glL1EWJBq3t07GDgJKrFVvMFEE+z8j/81HbhQT4Va7GPz66dqkJVdAxPr6B1l2K7WajYxvclK0wXcxHSpWm96egYAAP//G+Go\
         IdUBAAA=",
    ),
    (
        "zstd",
        "KLUv/UQA1QCdBAAyiRsbgDFsAOTzv10Qkb1u7Ww6uUaLpseNU1n9eScCBU5ca63ApyTFtKIzPNFOv8bwqdJIpYfhVyK1utyHye8FQCB15/HLJSEd\
         lM7fDbqOb0ak45VkJz25v6vVE8CmVXC8seX4fbE5HIjX8YhVKiJnhAwAAYITBhCAgCkMgBIrbUPnYrO9Q3Y/0GEqUMKULmzZ3AO2Q3M4",
    ),
];

#[test]
fn trackers_that_go_compressed_are_read() {
    for (type_, data) in OF_GO {
        let spec =
            json!({ "type": "versioned", "applicationGeneration": 1, "compression": { "type": type_, "data": data } });
        let entries = decode(&serde_json::from_value(spec).unwrap()).unwrap();
        let names: Vec<_> = entries.iter().map(display_name).collect();
        assert_eq!(
            names,
            ["Deployment web (Namespace: shop)", "Deployment job (Namespace: shop)"]
        );
        let manifest = entries[1].raw.as_ref().unwrap().parse().unwrap();
        assert_eq!(manifest["metadata"], json!({ "name": "job", "namespace": "shop" }));
    }
}

#[test]
fn a_bomb_makes_its_tracker_undecodable_by_name() {
    let bomb = Compressed::encode(Format::Zstd, &vec![b' '; 64 << 20]).unwrap();
    assert!(bomb.data.len() < 1 << 20);
    let mut object = ResourceTracker::new("shop-v1-team", ResourceTrackerSpec::default());
    object.spec.compression = bomb;
    let error = Tracker::decode(Arc::new(object)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "resourcetracker shop-v1-team can't be decoded: decompressed data exceeds 32 MiB"
    );
}

#[test]
fn manifests_are_compared_by_content_and_never_printed() {
    let one: RawManifest = serde_json::from_str(r#"{"a": 1, "b": {"c": "secret"}}"#).unwrap();
    let two: RawManifest = serde_json::from_str(r#"{"b":{"c":"secret"},"a":1}"#).unwrap();
    let other: RawManifest = serde_json::from_str(r#"{"a":2}"#).unwrap();
    assert_eq!(one, two);
    assert_ne!(one, other);
    assert!(!format!("{one:?}").contains("secret"));
}
