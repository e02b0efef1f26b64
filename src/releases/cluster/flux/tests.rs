use serde_json::{Value, json};

use super::*;

fn flux(releases: &Value, helm_repositories: &Value, oci_repositories: &Value) -> FluxObjects {
    let sources = |list: &Value| serde_json::from_value(list.clone()).unwrap();
    let releases = serde_json::from_value(releases.clone()).unwrap();
    FluxObjects::new(releases, sources(helm_repositories), sources(oci_repositories))
}

fn stored(namespace: &str, name: &str, version: &str) -> Release {
    Release {
        kind: ReleaseKind::Helm,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        state: ReleaseState::Deployed,
        revision: Some(3),
        chart: InstalledChart {
            name: "web".to_owned(),
            version: version.to_owned(),
            home: Some("https://home.example".to_owned()),
            ..InstalledChart::default()
        },
    }
}

fn repository(name: &str, url: &str) -> Value {
    json!({ "metadata": { "namespace": "sources", "name": name }, "spec": { "url": url } })
}

fn chart_of(kind: &str, name: &str) -> Value {
    let source = json!({ "kind": kind, "name": name, "namespace": "sources" });
    json!({ "spec": { "chart": "web", "sourceRef": source } })
}

#[test]
fn a_helm_release_joins_the_record_of_helm_and_adds_the_url() {
    let object = json!({
        "metadata": { "namespace": "flux", "name": "site" },
        "spec": { "chart": chart_of("HelmRepository", "up"), "targetNamespace": "team", "storageNamespace": "kept",
            "values": { "any": ["thing"] } },
    });
    let url = repository("up", "https://me:hush@charts.example/stable?token=hush");
    let mut releases = vec![stored("kept", "team-site", "1.0.0"), stored("kept", "other", "1.0.0")];
    flux(&json!([object]), &json!([url]), &json!([])).add_to(&mut releases);
    assert_eq!(releases.len(), 2);
    let site = &releases[0];
    assert_eq!(
        (site.kind, site.namespace.as_str(), site.name.as_str()),
        (ReleaseKind::HelmRelease, "flux", "site")
    );
    assert_eq!(
        site.chart.url.as_deref(),
        Some("https://charts.example/stable"),
        "without credentials"
    );
    assert_eq!(site.chart.home.as_deref(), Some("https://home.example"));
    assert_eq!(releases[1], stored("kept", "other", "1.0.0"));
}

#[test]
fn a_helm_release_without_a_readable_record_is_what_its_history_says() {
    let history = json!([
        { "name": "web", "namespace": "team", "version": 2, "status": "failed", "chartName": "web", "chartVersion": "2.0.0" },
        { "name": "web", "namespace": "team", "version": 1, "status": "superseded", "chartName": "web", "chartVersion": "1.0.0" },
    ]);
    let object = json!({
        "metadata": { "namespace": "team", "name": "web" },
        "spec": { "chart": chart_of("GitRepository", "up") }, "status": { "history": history },
    });
    let new = json!({ "metadata": { "namespace": "team", "name": "new" } });
    let mut releases = Vec::new();
    flux(&json!([object, new]), &json!([]), &json!([])).add_to(&mut releases);
    assert_eq!(releases.len(), 1, "nothing is installed of the other one");
    assert_eq!(
        (releases[0].revision, &releases[0].state),
        (Some(2), &ReleaseState::Failed)
    );
    assert_eq!(
        (releases[0].chart.version.as_str(), &releases[0].chart.url),
        ("2.0.0", &None)
    );
}

#[test]
fn a_chart_from_a_registry_has_its_own_version_again() {
    let digest = format!("sha256:{}", "ab".repeat(32));
    let source = json!({
        "metadata": { "namespace": "team", "name": "web" }, "spec": { "url": "oci://registry.example/charts/web" },
        "status": { "artifact": { "revision": format!("1.2.0@{digest}") } },
    });
    let object = json!({
        "metadata": { "namespace": "team", "name": "web" },
        "spec": { "chartRef": { "kind": "OCIRepository", "name": "web" } },
        "status": { "history": [{ "name": "web", "ociDigest": digest }] },
    });
    let mut releases = vec![stored("team", "web", "1.2.0+abababababab")];
    flux(&json!([object]), &json!([]), &json!([source])).add_to(&mut releases);
    assert_eq!(releases.len(), 1);
    let chart = &releases[0].chart;
    assert_eq!(
        (chart.version.as_str(), chart.digest.as_ref()),
        ("1.2.0", Some(&digest))
    );
    assert_eq!(chart.url.as_deref(), Some("oci://registry.example/charts/web"));
}

#[test]
fn an_oci_repository_of_its_own_is_a_release_if_it_selects_a_chart() {
    let source = |name: &str, media_type: &str| {
        json!({
            "metadata": { "namespace": "team", "name": name },
            "spec": { "url": "oci://registry.example/charts/web", "layerSelector": { "mediaType": media_type } },
            "status": { "artifact": { "revision": "1.2.0_b1@sha256:ab" } },
        })
    };
    let sources = json!([source("chart", CHART_LAYER), source("manifests", "application/x-tar")]);
    let mut releases = Vec::new();
    flux(&json!([]), &json!([]), &sources).add_to(&mut releases);
    assert_eq!(releases.len(), 1);
    assert_eq!(
        (releases[0].kind, releases[0].name.as_str()),
        (ReleaseKind::OciRepository, "chart")
    );
    assert_eq!(
        (releases[0].chart.name.as_str(), releases[0].chart.version.as_str()),
        ("web", "1.2.0+b1")
    );
}
