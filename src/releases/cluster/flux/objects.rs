//! The fields of Flux's objects that are read.

use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
}

#[derive(Deserialize)]
pub(super) struct HelmRelease {
    pub(super) metadata: Metadata,
    #[serde(default)]
    pub(super) spec: HelmReleaseSpec,
    #[serde(default)]
    pub(super) status: HelmReleaseStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HelmReleaseSpec {
    pub(super) chart: Option<ChartTemplate>,
    pub(super) chart_ref: Option<Reference>,
    pub(super) release_name: Option<String>,
    pub(super) storage_namespace: Option<String>,
    pub(super) target_namespace: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ChartTemplate {
    pub(super) spec: ChartTemplateSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChartTemplateSpec {
    pub(super) source_ref: Reference,
}

#[derive(Deserialize)]
pub(super) struct Reference {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) namespace: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HelmReleaseStatus {
    pub(super) storage_namespace: Option<String>,
    pub(super) history: Option<Vec<Snapshot>>,
}

/// A revision of the release, the newest one first.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Snapshot {
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) status: String,
    pub(super) chart_name: String,
    pub(super) chart_version: String,
    pub(super) oci_digest: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Source {
    pub(super) metadata: Metadata,
    #[serde(default)]
    pub(super) spec: SourceSpec,
    #[serde(default)]
    pub(super) status: SourceStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SourceSpec {
    pub(super) url: Option<String>,
    pub(super) layer_selector: Option<LayerSelector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LayerSelector {
    pub(super) media_type: Option<String>,
}

#[derive(Default, Deserialize)]
pub(super) struct SourceStatus {
    pub(super) artifact: Option<Artifact>,
}

#[derive(Deserialize)]
pub(super) struct Artifact {
    pub(super) revision: Option<String>,
}
