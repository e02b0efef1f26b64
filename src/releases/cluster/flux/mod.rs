//! Releases of Flux. A `HelmRelease` joins Helm's own record of the release, which has the metadata of the chart.

mod objects;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::declared_url;
use super::reader::{Collection, Reader};
use crate::api::NamespacedName;
use crate::releases::{InstalledChart, Release, ReleaseKind, ReleaseState};
use objects::{HelmRelease, Metadata, Snapshot, Source};

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
const OCI_REPOSITORY: &str = "OCIRepository";
/// Charts have it; other artifacts are manifests.
const CHART_LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
/// Digits of the digest that Flux appends to the version of a chart from an `OCIRepository`.
const SHORT_DIGEST: usize = 12;

/// Kind and name of a source of charts.
type SourceKey = (String, NamespacedName);

pub(super) struct FluxObjects {
    releases: Vec<HelmRelease>,
    sources: BTreeMap<SourceKey, Source>,
}

impl FluxObjects {
    pub(super) async fn list(reader: &Reader<'_>) -> Self {
        let (releases, helm_repositories, oci_repositories) = tokio::join!(
            reader.list(&HELM_RELEASES, None),
            reader.list(&HELM_REPOSITORIES, None),
            reader.list(&OCI_REPOSITORIES, None),
        );
        Self::new(releases, helm_repositories, oci_repositories)
    }

    fn new(releases: Vec<HelmRelease>, helm_repositories: Vec<Source>, oci_repositories: Vec<Source>) -> Self {
        let of = |kind: &'static str, sources: Vec<Source>| {
            let keyed = move |source: Source| ((kind.to_owned(), source.metadata.name()), source);
            sources.into_iter().map(keyed)
        };
        let helm_repositories = of("HelmRepository", helm_repositories);
        Self {
            releases,
            sources: helm_repositories.chain(of(OCI_REPOSITORY, oci_repositories)).collect(),
        }
    }

    /// Joins the releases of Helm, and adds those whose record can't be read.
    pub(super) fn add_to(&self, releases: &mut Vec<Release>) {
        let key = |release: &Release| NamespacedName::new(&*release.namespace, &*release.name);
        let records = releases.iter().enumerate();
        let mut records: BTreeMap<_, usize> = records.map(|(index, release)| (key(release), index)).collect();
        let mut referenced = BTreeSet::new();
        for object in &self.releases {
            let source = object.source();
            let record = records.remove(&object.record());
            match record.and_then(|index| releases.get_mut(index)) {
                Some(release) => self.join(object, source.as_ref(), release),
                None => releases.extend(object.last_release().map(|mut release| {
                    self.join(object, source.as_ref(), &mut release);
                    release
                })),
            }
            referenced.extend(source);
        }
        let free = self.sources.iter().filter(|(key, _)| !referenced.contains(*key));
        releases.extend(free.filter_map(|(_, source)| source.release()));
    }

    fn join(&self, object: &HelmRelease, source: Option<&SourceKey>, release: &mut Release) {
        release.kind = ReleaseKind::HelmRelease;
        release.namespace.clone_from(&object.metadata.namespace);
        release.name.clone_from(&object.metadata.name);
        let chart = &mut release.chart;
        chart.url = source.and_then(|source| self.sources.get(source)?.url());
        chart.digest = object.last_snapshot().and_then(|snapshot| snapshot.oci_digest.clone());
        if source.is_some_and(|(kind, _)| kind == OCI_REPOSITORY) {
            strip_short_digest(&mut chart.version);
        }
    }
}

impl Metadata {
    fn name(&self) -> NamespacedName {
        NamespacedName::new(&*self.namespace, &*self.name)
    }
}

impl HelmRelease {
    fn source(&self) -> Option<SourceKey> {
        let of_template = self.spec.chart.as_ref().map(|chart| &chart.spec.source_ref);
        let source = self.spec.chart_ref.as_ref().or(of_template)?;
        let namespace = source.namespace.as_ref().unwrap_or(&self.metadata.namespace);
        Some((source.kind.clone(), NamespacedName::new(&**namespace, &*source.name)))
    }

    fn last_snapshot(&self) -> Option<&Snapshot> {
        self.status.history.as_ref()?.first()
    }

    /// Returns namespace and name of Helm's record.
    fn record(&self) -> NamespacedName {
        let Self { metadata, spec, status } = self;
        let namespace = status.storage_namespace.as_ref().or(spec.storage_namespace.as_ref());
        let namespace = namespace.unwrap_or(&metadata.namespace);
        let name = match (self.last_snapshot(), &spec.release_name, &spec.target_namespace) {
            (Some(snapshot), _, _) if !snapshot.name.is_empty() => snapshot.name.clone(),
            (_, Some(name), _) => name.clone(),
            (_, None, Some(target)) => format!("{target}-{}", metadata.name),
            (_, None, None) => metadata.name.clone(),
        };
        NamespacedName::new(&**namespace, name)
    }

    fn last_release(&self) -> Option<Release> {
        let snapshot = self.last_snapshot()?;
        Some(Release {
            kind: ReleaseKind::HelmRelease,
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            state: ReleaseState::from(snapshot.status.clone()),
            revision: Some(snapshot.version),
            chart: InstalledChart::new(&snapshot.chart_name, &snapshot.chart_version)?,
        })
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

    /// Returns the chart of an `OCIRepository` that selects one.
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
                digest: Some(digest.to_owned()),
                url: Some(url.clone()),
                ..InstalledChart::new(name, &tag.replace('_', "+"))?
            },
        })
    }
}
