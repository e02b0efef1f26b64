//! Watches the objects of Flux and Argo CD that declare releases, as soon as their kinds are installed.

use std::collections::BTreeSet;
use std::convert::identity;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::POLL;
use crate::runtime::watch::{
    FieldSet, GroupKind, KindFilter, MAX_WATCHES, Project, WatchManager, WatchSettings, events,
};

const KINDS: [(&str, &str); 4] = [
    ("helm.toolkit.fluxcd.io", "HelmRelease"),
    ("source.toolkit.fluxcd.io", "HelmRepository"),
    ("source.toolkit.fluxcd.io", "OCIRepository"),
    ("argoproj.io", "Application"),
];
/// A namespace of each cluster: a watch of a whole cluster is for at least one.
const ANY_NAMESPACE: &str = "default";

/// A digest of what decides chart and version. Controllers write times into the status all the time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fingerprint(u64);

#[derive(Default, Deserialize, Hash)]
#[serde(rename_all = "camelCase")]
struct Installed {
    history: Option<Vec<Installation>>,
    /// Of a HelmRelease.
    storage_namespace: Option<String>,
    /// Of an Application.
    sync: Option<Revisions>,
    /// Of an OCIRepository.
    artifact: Option<Revisions>,
}

#[derive(Deserialize, Hash)]
#[serde(rename_all = "camelCase")]
struct Installation {
    name: Option<String>,
    chart_name: Option<String>,
    chart_version: Option<String>,
    oci_digest: Option<String>,
    version: Option<u64>,
    #[serde(flatten)]
    revisions: Revisions,
}

#[derive(Deserialize, Hash)]
struct Revisions {
    status: Option<String>,
    revision: Option<String>,
    revisions: Option<Vec<String>>,
}

impl Project for Fingerprint {
    const FIELDS: FieldSet = FieldSet::SpecAndStatus;

    fn project(_: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Self {
        let installed = status.and_then(|status| serde_json::from_str::<Installed>(status.get()).ok());
        let mut hasher = DefaultHasher::new();
        (spec.map(RawValue::get), installed.unwrap_or_default()).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// Reports each change. Never returns. `namespace` is the only one, all if `None`.
pub(super) async fn watch_declared(
    client: Client,
    namespace: Option<String>,
    on_change: impl Fn() + Send + Sync + 'static,
) {
    let kinds: BTreeSet<GroupKind> = KINDS
        .iter()
        .map(|(group, kind)| GroupKind::new(*group, *kind))
        .collect();
    let settings = WatchSettings {
        sync_period: POLL,
        relist_period: None,
        linger: Duration::ZERO,
        kinds: KindFilter {
            named: kinds.clone(),
            ..KindFilter::default()
        },
        prefers_cluster_wide: namespace.is_none(),
        max_watches: MAX_WATCHES,
    };
    let watches = WatchManager::new(
        client,
        settings,
        |client, _, resource, scope| events::<Fingerprint, _>(client, resource, scope, identity),
        move |_, _| on_change(),
    );
    watches.subscribe((), namespace.as_deref().unwrap_or(ANY_NAMESPACE), kinds);
    watches.run().await;
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fingerprint(spec: &Value, status: &Value) -> Fingerprint {
        let [spec, status] = [spec, status].map(|value| serde_json::value::to_raw_value(value).unwrap());
        Fingerprint::project(1, Some(&spec), Some(&status))
    }

    #[test]
    fn a_fingerprint_changes_with_chart_and_version_and_not_with_times() {
        let spec = json!({ "chart": { "spec": { "chart": "web" } } });
        let history =
            |version: &str, time: &str| json!({ "history": [{ "chartVersion": version, "lastDeployed": time }] });
        let first = fingerprint(&spec, &history("1.0.0", "a"));
        assert_eq!(first, fingerprint(&spec, &history("1.0.0", "b")));
        assert_ne!(first, fingerprint(&spec, &history("1.0.1", "a")));
        assert_ne!(first, fingerprint(&json!({}), &history("1.0.0", "a")));
        let sync = |revision: &str, time: &str| json!({ "sync": { "revision": revision }, "reconciledAt": time });
        let second = fingerprint(&spec, &sync("1.0.0", "a"));
        assert_eq!(second, fingerprint(&spec, &sync("1.0.0", "b")));
        assert_ne!(second, fingerprint(&spec, &sync("1.0.1", "a")));
    }
}
