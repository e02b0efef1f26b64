//! A repository with default settings, and its record.

use jiff::Timestamp;

use crate::api::AppRepository;
use crate::catalog::{Handled, Record, RecordState};
use crate::controllers::apprepository::decision::handled;
use crate::controllers::apprepository::spec::{Defaults, RepositorySpec};

fn object(edit: impl FnOnce(&mut serde_json::Value)) -> AppRepository {
    let mut object = serde_json::json!({
        "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository",
        "metadata": { "namespace": "default", "name": "stable", "uid": "u1", "generation": 1 },
        "spec": { "type": "helm", "url": " https://example.com/charts " },
    });
    edit(&mut object);
    serde_json::from_value(object).unwrap()
}

pub fn spec_with(edit: impl FnOnce(&mut serde_json::Value)) -> RepositorySpec {
    RepositorySpec::of(&object(edit), &Defaults::usual(), false)
}

pub fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

pub const NOW: &str = "2026-01-01T10:05:00Z";

/// Returns the record of `spec` after a successful sync at 10:00:05.
pub fn synced(spec: &RepositorySpec) -> Record {
    Record {
        name: spec.name.clone(),
        uid: spec.uid.clone(),
        url: spec.url.clone(),
        kind: "helm".to_owned(),
        change_key: spec.change_key.as_str().to_owned(),
        spec_hash: Some(spec.spec_hash.clone()),
        handled: handled(spec, &Handled::default()),
        last_attempt: Some(at("2026-01-01T10:00:05Z")),
        last_success: Some(at("2026-01-01T10:00:06Z")),
        state: RecordState {
            ready: Some(true),
            ..RecordState::default()
        },
        trusted: true,
        ..Record::default()
    }
}
