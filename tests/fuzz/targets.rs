//! What is fed with anything that anybody may publish, and what holds for whatever is accepted: a body for each fuzz target.
//!
//! `make fuzz` runs them under libFuzzer (the package in `fuzz/`), and `make test` over the seeds and their mutations.

use std::io::Cursor;
use std::time::Duration;

use portolan::filter::{Filter, Limits, Rule};
use portolan::source::index::{Chart, DecodeLimits, chart, decode, metadata, newest_first};
use portolan::source::{archive, credentials, oci};
use serde_json::json;

/// A fuzz target: its name, which is that of its folder of seeds, and its body.
#[allow(dead_code, reason = "the targets under libFuzzer call their bodies by name")]
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
#[allow(dead_code, reason = "the targets under libFuzzer call their bodies by name")]
pub const TARGETS: [Target; 9] = [
    ("index_yaml", index),
    ("index_json", index_json),
    ("chart_archive", chart_archive),
    ("chart_yaml", chart_yaml),
    ("oci_manifest", oci_manifest),
    ("tag_list", tag_list),
    ("www_authenticate", www_authenticate),
    ("dockerconfigjson", dockerconfigjson),
    ("filter_rule", filter_rule),
];

/// Small, so that a bomb is refused as it would be with the defaults, but sooner.
fn decode_limits() -> DecodeLimits {
    DecodeLimits {
        nodes: 100_000,
        chart_bytes: 1024 * 1024,
        aliased_nodes: 100_000,
        aliased_bytes: 1024 * 1024,
        ..DecodeLimits::default()
    }
}

/// An index, in whichever notation it turns out to be.
pub fn index(bytes: &[u8]) {
    let mut charts: Vec<Chart> = Vec::new();
    let Ok(summary) = decode(Cursor::new(bytes), &decode_limits(), &mut charts) else {
        return;
    };
    assert_eq!(summary.names, charts.len() as u64 + summary.deprecated);
    for chart in &charts {
        assert!(!chart.name.is_empty() && !chart.versions.is_empty());
        assert!(chart.maintainers.iter().all(|maintainer| !maintainer.name.is_empty()));
        for version in &chart.versions {
            assert!(!version.version.is_empty());
            assert!(version.urls.as_ref().is_none_or(|urls| !urls.is_empty()));
        }
    }
}

/// An index in JSON: what begins otherwise is made to begin as one.
pub fn index_json(bytes: &[u8]) {
    if bytes.trim_ascii_start().starts_with(b"{") {
        index(bytes);
    } else {
        index(&[b"{\"entries\":{\"a\":[", bytes].concat());
    }
}

/// An archive, packed or not.
pub fn chart_archive(bytes: &[u8]) {
    let limits = archive::Limits {
        packed_bytes: 1024 * 1024,
        unpacked_bytes: 4 * 1024 * 1024,
        file_bytes: 64 * 1024,
        kept_bytes: 256 * 1024,
        entries: 1_000,
    };
    let Ok(files) = archive::read(bytes, &limits) else {
        return;
    };
    let texts = [&files.readme, &files.values, &files.schema];
    let texts = texts.into_iter().chain(files.additional_values.values());
    for text in texts {
        assert!(!text.contains('\0'));
        // Three bytes stand for each that is no UTF-8.
        assert!(text.len() as u64 <= 3 * limits.file_bytes);
    }
}

/// A chart's own description, in YAML or JSON.
pub fn chart_yaml(bytes: &[u8]) {
    let Ok(read) = metadata(bytes, &decode_limits()) else {
        return;
    };
    if let Ok(Some(chart)) = chart(vec![read]) {
        assert!(!chart.name.is_empty() && chart.versions.len() == 1);
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        // An order, whatever they are.
        assert_eq!(newest_first(text, "1.0.0"), newest_first("1.0.0", text).reverse());
    }
}

/// A manifest of a registry.
pub fn oci_manifest(bytes: &[u8]) {
    let _ = oci::manifest(bytes);
}

/// A list of tags, and the other listings of a registry.
pub fn tag_list(bytes: &[u8]) {
    for tag in oci::decode::tag_list(bytes).unwrap_or_default() {
        assert!(oci::is_tag(&tag));
        if oci::is_version(&tag) {
            assert_eq!(oci::tag_of(&oci::version_of(&tag)), tag);
        }
    }
    for listed in [oci::decode::catalog_page(bytes), oci::decode::charts_index(bytes)] {
        assert!(
            listed
                .unwrap_or_default()
                .iter()
                .all(|name| oci::is_repository_name(name))
        );
    }
    let _ = oci::decode::hub_page(bytes);
}

/// What a registry wants to see before it answers.
pub fn www_authenticate(bytes: &[u8]) {
    for challenge in oci::challenges(bytes) {
        assert!(!challenge.scheme.is_empty());
    }
    let _ = oci::next_link(bytes);
}

/// Credentials of a Secret, which no error may show.
pub fn dockerconfigjson(bytes: &[u8]) {
    if let Ok(authorization) = credentials::from_docker_config(bytes) {
        assert!(authorization.expose().starts_with("Basic "));
        assert!(credentials::from_header(authorization.expose().as_bytes()).is_ok());
        assert_eq!(format!("{authorization:?}"), "[redacted]");
    }
    let _ = credentials::from_header(bytes);
}

/// A rule that decides about a chart.
pub fn filter_rule(bytes: &[u8]) {
    let Ok(jq) = std::str::from_utf8(bytes) else { return };
    let limits = Limits {
        steps: 20_000,
        time: Duration::from_secs(10),
        value_bytes: 256 * 1024,
        made_bytes: 4 * 1024 * 1024,
        ..Limits::default()
    };
    let rule = Rule {
        jq: jq.to_owned(),
        variables: [("$var0".to_owned(), "loki".to_owned())].into(),
    };
    let Ok(filter) = Filter::compile(&rule, limits) else {
        return;
    };
    let chart = json!({ "name": "loki", "keywords": ["logs"], "maintainers": [{ "name": "a" }], "sources": null });
    if let Err(error) = filter.keeps(&chart) {
        assert!(matches!(error.reason(), "FilterFailed" | "FilterTooCostly"), "{error}");
        assert!(!error.to_string().contains("please report it"), "{error}");
    }
}
