//! Charts that Argo CD has deployed. It renders them itself, so Helm has no record of them.

use serde::Deserialize;

use super::declared_url;
use super::reader::{Collection, Reader};
use crate::helm::semver::is_version;
use crate::releases::{InstalledChart, Release, ReleaseKind, ReleaseState};

const APPLICATIONS: Collection = Collection {
    group: "argoproj.io",
    versions: &["v1alpha1"],
    plural: "applications",
};

#[derive(Deserialize)]
pub(super) struct Application {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Default, Deserialize)]
struct Spec {
    source: Option<Source>,
    sources: Option<Vec<Source>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    #[serde(rename = "repoURL")]
    url: String,
    chart: Option<String>,
    target_revision: Option<String>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    sync: SyncStatus,
    /// The newest one last.
    history: Option<Vec<Deployment>>,
}

#[derive(Default, Deserialize)]
struct SyncStatus {
    status: Option<String>,
    #[serde(flatten)]
    resolved: Deployment,
}

/// Revisions by source: the versions of charts.
#[derive(Default, Deserialize)]
struct Deployment {
    revision: Option<String>,
    revisions: Option<Vec<String>>,
}

pub(super) async fn list(reader: &Reader<'_>) -> Vec<Application> {
    reader.list(&APPLICATIONS, None).await
}

pub(super) fn releases(applications: Vec<Application>) -> impl Iterator<Item = Release> {
    applications.into_iter().flat_map(Application::releases)
}

impl Application {
    /// Returns a release for each source that is a chart.
    fn releases(self) -> Vec<Release> {
        let Self { metadata, spec, status } = self;
        let deployment = status.deployment();
        let sources = spec.sources.filter(|sources| !sources.is_empty());
        let sources = sources.unwrap_or_else(|| spec.source.into_iter().collect());
        let release = |(index, source): (usize, &Source)| {
            let chart = source.chart.as_deref()?;
            let version = deployment.and_then(|deployment| deployment.version(index));
            Some(Release {
                kind: ReleaseKind::Application,
                namespace: metadata.namespace.clone(),
                name: metadata.name.clone(),
                state: version.map_or(ReleaseState::Pending, |_| ReleaseState::Deployed),
                revision: None,
                chart: InstalledChart {
                    url: source.declared_url(),
                    ..InstalledChart::new(chart, version.or(source.target_revision.as_deref()).unwrap_or("*"))?
                },
            })
        };
        sources.iter().enumerate().filter_map(release).collect()
    }
}

impl Source {
    /// Argo CD names registries without a scheme.
    fn declared_url(&self) -> Option<String> {
        if self.url.contains("://") {
            declared_url(&self.url)
        } else {
            declared_url(&format!("oci://{}", self.url.trim()))
        }
    }
}

impl Status {
    /// Returns the deployed revisions. Unless it is in sync, `sync` has those that would be deployed next.
    fn deployment(&self) -> Option<&Deployment> {
        let is_synced = self.sync.status.as_deref() == Some("Synced");
        let last = self.history.as_ref().and_then(|history| history.last());
        last.filter(|_| !is_synced)
            .or_else(|| is_synced.then_some(&self.sync.resolved))
    }
}

impl Deployment {
    fn version(&self, source: usize) -> Option<&str> {
        let listed = self.revisions.as_ref().and_then(|revisions| revisions.get(source));
        let version = listed.or_else(|| self.revision.as_ref().filter(|_| source == 0))?;
        is_version(version).then_some(version)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn releases_of(spec: Value, status: Value) -> Vec<Release> {
        let metadata = json!({ "namespace": "argocd", "name": "site" });
        let object = json!({ "metadata": metadata, "spec": spec, "status": status });
        releases(vec![serde_json::from_value(object).unwrap()]).collect()
    }

    fn source(url: &str) -> Value {
        json!({ "repoURL": url, "chart": "web", "targetRevision": "^1.0.0", "helm": { "values": "a: b" } })
    }

    #[test]
    fn a_synced_application_has_the_version_and_the_url_of_its_chart() {
        let found = releases_of(
            json!({ "source": source("https://charts.example/stable") }),
            json!({ "sync": { "status": "Synced", "revision": "1.4.0" } }),
        );
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].kind, &found[0].state),
            (ReleaseKind::Application, &ReleaseState::Deployed)
        );
        assert_eq!(
            (found[0].chart.name.as_str(), found[0].chart.version.as_str()),
            ("web", "1.4.0")
        );
        assert_eq!(found[0].chart.url.as_deref(), Some("https://charts.example/stable"));
    }

    #[test]
    fn of_several_sources_only_charts_are_releases() {
        let git = json!({ "repoURL": "https://git.example/team.git", "path": "deploy" });
        let found = releases_of(
            json!({ "sources": [git, source("me:hush@registry.example/charts")] }),
            json!({ "sync": { "status": "Synced", "revisions": ["0a1b2c", "1.4.0"] } }),
        );
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].chart.version, "1.4.0");
        assert_eq!(found[0].chart.url.as_deref(), Some("oci://registry.example/charts"));
    }

    #[test]
    fn an_application_out_of_sync_has_the_version_that_was_deployed_last() {
        let spec = json!({ "source": source("https://charts.example") });
        let history = json!([{ "revision": "1.0.0" }, { "revision": "1.3.0" }]);
        let sync = json!({ "status": "OutOfSync", "revision": "1.4.0" });
        let found = releases_of(spec.clone(), json!({ "sync": sync.clone(), "history": history }));
        assert_eq!(
            (found[0].chart.version.as_str(), &found[0].state),
            ("1.3.0", &ReleaseState::Deployed)
        );
        let found = releases_of(spec.clone(), json!({ "sync": sync }));
        assert_eq!(
            (found[0].chart.version.as_str(), &found[0].state),
            ("^1.0.0", &ReleaseState::Pending)
        );
        assert_eq!(releases_of(spec, json!({}))[0].state, ReleaseState::Pending);
    }
}
