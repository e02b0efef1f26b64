use serde::Deserialize;

use super::decode::{self, OciDecodeError};
use super::lenient::{LenientList, LenientScalar};
use super::{name, sanitized};

/// Accepted media types. They include images, which a registry would otherwise report as 404.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// Media type of Chart.yaml as JSON.
const HELM_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";

/// Media types of archives: the current type, and the type of Helm before 3.7.
const HELM_LAYERS: [&str; 2] = [
    "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
    "application/tar+gzip",
];

const CHARTS_INDEX_CONFIG: &str = "application/vnd.vmware.charts.index.config.v1+json";
const CHARTS_INDEX_LAYER: &str = "application/vnd.vmware.charts.index.layer.v1+json";

/// Images have up to 127 layers.
const MAX_LAYERS: usize = 1_000;

/// A content descriptor with a SHA-256 digest (OCI image specification, section "Content Descriptors").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentDescriptor {
    pub media_type: String,
    /// With `sha256:` prefix.
    pub digest: String,
    pub size: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manifest {
    Chart {
        /// Chart.yaml as JSON.
        config: ContentDescriptor,
        layer: ContentDescriptor,
    },
    /// Blob of a `charts-index`.
    ChartsIndex(ContentDescriptor),
    /// Description of another artifact, such as an image or a signature.
    Other(String),
}

#[derive(Deserialize)]
struct RawOciManifest {
    #[serde(rename = "mediaType")]
    media_type: Option<LenientScalar>,
    #[serde(rename = "artifactType")]
    artifact_type: Option<LenientScalar>,
    config: Option<RawDescriptor>,
    #[serde(default)]
    layers: LenientList<Option<RawDescriptor>, MAX_LAYERS>,
    manifests: Option<serde::de::IgnoredAny>,
    #[serde(rename = "fsLayers")]
    fs_layers: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct RawDescriptor {
    #[serde(rename = "mediaType", default)]
    media_type: LenientScalar,
    #[serde(default)]
    digest: LenientScalar,
    #[serde(default)]
    size: LenientScalar,
}

impl RawDescriptor {
    fn media_type(&self) -> &str {
        self.media_type.text().unwrap_or_default()
    }

    fn descriptor(&self) -> Result<ContentDescriptor, OciDecodeError> {
        let digest = self
            .digest
            .text()
            .ok_or(OciDecodeError::Missing("digest of a descriptor"))?;
        if !name::is_digest(digest) {
            return Err(OciDecodeError::Digest(sanitized(digest)));
        }
        Ok(ContentDescriptor {
            media_type: self.media_type().to_owned(),
            digest: digest.to_owned(),
            size: self
                .size
                .number()
                .ok_or(OciDecodeError::Missing("size of a descriptor"))?,
        })
    }
}

pub fn manifest(bytes: &[u8]) -> Result<Manifest, OciDecodeError> {
    let document: RawOciManifest = decode::json(bytes)?;
    if document.manifests.is_some() {
        return Ok(Manifest::Other("an image index".to_owned()));
    }
    if document.fs_layers.is_some() {
        return Ok(Manifest::Other("a container image with schema 1".to_owned()));
    }
    let Some(config) = &document.config else {
        return match text(document.artifact_type.as_ref()).or(text(document.media_type.as_ref())) {
            Some(kind) => Ok(Manifest::Other(format!("an artifact of type {}", sanitized(kind)))),
            None => Err(OciDecodeError::Missing("config")),
        };
    };
    let layers: Vec<&RawDescriptor> = document.layers.0.iter().flatten().collect();
    match config.media_type() {
        HELM_CONFIG => {
            let with_type = |kind: &str| layers.iter().find(|layer| layer.media_type() == kind);
            match HELM_LAYERS.iter().find_map(|kind| with_type(kind)) {
                None => Ok(Manifest::Other("a Helm chart without an archive".to_owned())),
                Some(layer) => Ok(Manifest::Chart {
                    config: config.descriptor()?,
                    layer: layer.descriptor()?,
                }),
            }
        }
        CHARTS_INDEX_CONFIG => match layers.as_slice() {
            [layer] if layer.media_type() == CHARTS_INDEX_LAYER => Ok(Manifest::ChartsIndex(layer.descriptor()?)),
            _ => Ok(Manifest::Other("a charts index without exactly one layer".to_owned())),
        },
        kind => Ok(Manifest::Other(describe(kind, &document, &layers))),
    }
}

/// Describes a manifest that is not a chart. Cosign's signatures differ from images only in their layers.
fn describe(config: &str, document: &RawOciManifest, layers: &[&RawDescriptor]) -> String {
    let has_layer = |part: &str| layers.iter().any(|layer| layer.media_type().contains(part));
    let artifact = text(document.artifact_type.as_ref()).filter(|kind| !kind.is_empty());
    if has_layer("cosign.simplesigning") || config.contains("notary.signature") {
        "a signature".to_owned()
    } else if has_layer("dsse.envelope") || has_layer("in-toto") {
        "an attestation".to_owned()
    } else if let Some(kind) = artifact {
        format!("an artifact of type {}", sanitized(kind))
    } else if config.starts_with("application/vnd.oci.image.config") || config.starts_with("application/vnd.docker.") {
        "a container image".to_owned()
    } else {
        format!("an artifact of type {}", sanitized(config))
    }
}

fn text(value: Option<&LenientScalar>) -> Option<&str> {
    value.and_then(LenientScalar::text)
}
