//! Releases of Flux. A `HelmRelease` joins Helm's own record of the release, which has the metadata of the chart.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::declared_url;
use super::reader::{Collection, Reader};
use crate::api::NamespacedName;
use crate::releases::{InstalledChart, Release, ReleaseKind, ReleaseState};

const HELM_RELEASES: Collection = Collection {
    group: "helm.toolkit.fluxcd.io",
    versions: &["v2", "v2beta2", "v2beta1"],
    plural: "helmreleases",
};
const HELM_REPOSITORIES: Collection = Collection {
    group: "source.toolkit.fluxcd.io",
    versions: &["v1", "v1beta2", "v1beta1"],
    plural: "helmrepositories",
};
const OCI_REPOSITORIES: Collection = Collection {
    group: "source.toolkit.fluxcd.io",
    versions: &["v1", "v1beta2"],
    plural: "ocirepositories",
};
/// Charts have it; other artifacts are manifests.
const CHART_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// Digits of the digest that Flux appends to the version of a chart from an `OCIRepository`.
const SHORT_DIGEST: usize = 12;

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Deserialize)]
struct HelmRelease {
    metadata: Metadata,
    #[serde(default)]
    spec: HelmReleaseSpec,
    #[serde(default)]
    status: HelmReleaseStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HelmReleaseSpec {
    chart: Option<ChartTemplate>,
    chart_ref: Option<Reference>,
    release_name: Option<String>,
    storage_namespace: Option<String>,
    target_namespace: Option<String>,
}

#[derive(Deserialize)]
struct ChartTemplate {
    spec: ChartTemplateSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ChartTemplateSpec {
    source_ref: Reference,
}

#[derive(Deserialize)]
struct Reference {
    kind: String,
    name: String,
    namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HelmReleaseStatus {
    storage_namespace: Option<String>,
    history: Option<Vec<Snapshot>>,
}

/// A revision of the release, the newest one first.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Snapshot {
    name: String,
    version: u64,
    status: String,
    chart_name: String,
    chart_version: String,
    oci_digest: Option<String>,
}

#[derive(Deserialize)]
struct Source {
    metadata: Metadata,
    #[serde(default)]
    spec: SourceSpec,
    #[serde(default)]
    status: SourceStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SourceSpec {
    url: Option<String>,
    layer_selector: Option<LayerSelector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayerSelector {
    media_type: Option<String>,
}

#[derive(Default, Deserialize)]
struct SourceStatus {
    artifact: Option<Artifact>,
}

#[derive(Deserialize)]
struct Artifact {
    revision: Option<String>,
}

pub(super) struct FluxObjects {
    releases: Vec<HelmRelease>,
    helm_repositories: Vec<Source>,
    oci_repositories: Vec<Source>,
}

impl FluxObjects {
    pub(super) async fn list(reader: &Reader<'_>) -> Self {
        let (releases, helm_repositories, oci_repositories) = tokio::join!(
            reader.list(&HELM_RELEASES, None),
            reader.list(&HELM_REPOSITORIES, None),
            reader.list(&OCI_REPOSITORIES, None),
        );
        Self {
            releases,
            helm_repositories,
            oci_repositories,
        }
    }

    /// Joins the releases of Helm, and adds those whose record can't be read.
    pub(super) fn add_to(&self, releases: &mut Vec<Release>) {
        self.join(releases, |_, _| true);
    }

    /// Same for many callers: the author of a HelmRelease may name records that only others may read.
    pub(super) fn add_within_namespaces(&self, releases: &mut Vec<Release>) {
        self.join(releases, |namespace, of_record| namespace == of_record);
    }

    fn join(&self, releases: &mut Vec<Release>, may_join: fn(&str, &str) -> bool) {
        let urls = self.urls();
        let key = |release: &Release| (release.namespace.clone(), release.name.clone());
        let mut stored: BTreeMap<_, usize> = releases
            .iter()
            .enumerate()
            .map(|(index, release)| (key(release), index))
            .collect();
        let mut referenced = BTreeSet::new();
        for object in &self.releases {
            let reference = object.reference();
            let url = reference.as_ref().and_then(|reference| urls.get(reference).cloned());
            let is_oci = reference.as_ref().is_some_and(|(kind, _)| kind == "OCIRepository");
            referenced.extend(reference);
            let record = Some(object.stored_release());
            let record = record.filter(|(namespace, _)| may_join(&object.metadata.namespace, namespace));
            let joined = record
                .and_then(|record| stored.remove(&record))
                .and_then(|index| releases.get_mut(index));
            match joined {
                Some(release) => object.join(release, url, is_oci),
                None => releases.extend(object.last_release(url, is_oci)),
            }
        }
        let is_free = |source: &&Source| !referenced.contains(&source_key("OCIRepository", &source.metadata));
        releases.extend(self.oci_repositories.iter().filter(is_free).filter_map(Source::release));
    }

    fn urls(&self) -> BTreeMap<SourceKey, String> {
        let of = |kind: &'static str, sources: &[Source]| {
            let url = |source: &Source| Some((source_key(kind, &source.metadata), source.url()?));
            sources.iter().filter_map(url).collect::<Vec<_>>()
        };
        let mut urls: BTreeMap<_, _> = of("HelmRepository", &self.helm_repositories).into_iter().collect();
        urls.extend(of("OCIRepository", &self.oci_repositories));
        urls
    }
}

type SourceKey = (String, NamespacedName);

fn source_key(kind: &str, metadata: &Metadata) -> SourceKey {
    (
        kind.to_owned(),
        NamespacedName::new(metadata.namespace.as_str(), metadata.name.as_str()),
    )
}

impl HelmRelease {
    fn reference(&self) -> Option<SourceKey> {
        let of_template = self.spec.chart.as_ref().map(|chart| &chart.spec.source_ref);
        let reference = self.spec.chart_ref.as_ref().or(of_template)?;
        let namespace = reference.namespace.as_ref().unwrap_or(&self.metadata.namespace);
        Some((
            reference.kind.clone(),
            NamespacedName::new(namespace.as_str(), reference.name.as_str()),
        ))
    }

    fn last_snapshot(&self) -> Option<&Snapshot> {
        self.status.history.as_ref()?.first()
    }

    /// Returns namespace and name of Helm's record.
    fn stored_release(&self) -> (String, String) {
        let namespace = self
            .status
            .storage_namespace
            .as_ref()
            .or(self.spec.storage_namespace.as_ref());
        let namespace = namespace.unwrap_or(&self.metadata.namespace).clone();
        let name = match (
            self.last_snapshot(),
            &self.spec.release_name,
            &self.spec.target_namespace,
        ) {
            (Some(snapshot), _, _) if !snapshot.name.is_empty() => snapshot.name.clone(),
            (_, Some(name), _) => name.clone(),
            (_, None, Some(target)) => format!("{target}-{}", self.metadata.name),
            (_, None, None) => self.metadata.name.clone(),
        };
        (namespace, name)
    }

    fn join(&self, release: &mut Release, url: Option<String>, is_oci: bool) {
        release.kind = ReleaseKind::HelmRelease;
        release.namespace.clone_from(&self.metadata.namespace);
        release.name.clone_from(&self.metadata.name);
        release.chart.url = url;
        release.chart.digest = self.last_snapshot().and_then(|snapshot| snapshot.oci_digest.clone());
        if is_oci {
            strip_short_digest(&mut release.chart.version);
        }
    }

    fn last_release(&self, url: Option<String>, is_oci: bool) -> Option<Release> {
        let snapshot = self
            .last_snapshot()
            .filter(|snapshot| !snapshot.chart_name.is_empty())?;
        let mut release = Release {
            kind: ReleaseKind::HelmRelease,
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            state: ReleaseState::from(snapshot.status.clone()),
            revision: Some(snapshot.version),
            chart: InstalledChart {
                name: snapshot.chart_name.clone(),
                version: snapshot.chart_version.clone(),
                ..InstalledChart::default()
            },
        };
        self.join(&mut release, url, is_oci);
        Some(release)
    }
}

/// Flux deploys `1.2.0` of an `OCIRepository` as `1.2.0+0123456789ab`.
fn strip_short_digest(version: &mut String) {
    let is_digest = |text: &str| text.len() == SHORT_DIGEST && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some((stripped, build)) = version.split_once('+')
        && is_digest(build)
    {
        *version = stripped.to_owned();
    }
}

impl Source {
    fn url(&self) -> Option<String> {
        declared_url(self.spec.url.as_deref()?)
    }

    /// Returns the chart of an `OCIRepository` that no `HelmRelease` refers to.
    fn release(&self) -> Option<Release> {
        let layer = self.spec.layer_selector.as_ref()?.media_type.as_deref()?;
        let revision = self.status.artifact.as_ref()?.revision.as_deref()?;
        let (tag, digest) = revision.split_once('@').filter(|_| layer == CHART_LAYER)?;
        let url = self.url()?;
        let (_, name) = url.rsplit_once('/')?;
        Some(Release {
            kind: ReleaseKind::OciRepository,
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            state: ReleaseState::Deployed,
            revision: None,
            chart: InstalledChart {
                name: name.to_owned(),
                version: tag.replace('_', "+"),
                digest: Some(digest.to_owned()),
                url: Some(url),
                ..InstalledChart::default()
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn flux(releases: &Value, helm_repositories: &Value, oci_repositories: &Value) -> FluxObjects {
        FluxObjects {
            releases: serde_json::from_value(releases.clone()).unwrap(),
            helm_repositories: serde_json::from_value(helm_repositories.clone()).unwrap(),
            oci_repositories: serde_json::from_value(oci_repositories.clone()).unwrap(),
        }
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
    fn a_helm_release_joins_no_record_of_another_namespace_where_many_see_it() {
        let object = json!({
            "metadata": { "namespace": "team", "name": "web" },
            "spec": { "chart": chart_of("HelmRepository", "up"), "storageNamespace": "others", "releaseName": "web" },
        });
        let own = json!({
            "metadata": { "namespace": "team", "name": "own" }, "spec": { "chart": chart_of("HelmRepository", "up") },
        });
        let url = repository("up", "https://charts.example");
        let mut releases = vec![stored("others", "web", "1.0.0"), stored("team", "own", "1.0.0")];
        flux(&json!([object, own]), &json!([url]), &json!([])).add_within_namespaces(&mut releases);
        assert_eq!(releases.len(), 2);
        assert_eq!(releases[0], stored("others", "web", "1.0.0"));
        assert_eq!(releases[1].kind, ReleaseKind::HelmRelease);
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
}
