//! Manifests: whether one is a chart, and of which parts.

use serde::Deserialize;

use super::decode::{self, DecodeError};
use super::lenient::{List, Scalar};
use super::{name, shown};

/// Media types of the manifests that a tag may stand for. Images are asked for too, so that they answer and can be told
/// apart; a registry would say 404 otherwise.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

/// The media type of a chart's Chart.yaml, which Helm pushes as JSON.
const HELM_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";

/// The media types of a chart's archive: today's, and that of Helm before 3.7.
const HELM_LAYERS: [&str; 2] = [
    "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
    "application/tar+gzip",
];

/// The media types of the listing that VMware's and Bitnami's registries keep as an artifact.
const CHARTS_INDEX_CONFIG: &str = "application/vnd.vmware.charts.index.config.v1+json";
const CHARTS_INDEX_LAYER: &str = "application/vnd.vmware.charts.index.layer.v1+json";

/// Layers that a manifest may have. Images have up to 127.
const LAYERS: usize = 1_000;

/// A part of a manifest, as the OCI image specification, section "Content Descriptors", has it. Its digest is a SHA-256
/// digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// What kind of thing it is.
    pub media_type: String,
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// Bytes.
    pub size: u64,
}

/// What a manifest is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manifest {
    /// A chart: its Chart.yaml as JSON, and its archive.
    Chart {
        /// Chart.yaml as JSON.
        config: Descriptor,
        /// The archive.
        layer: Descriptor,
    },
    /// A `charts-index`, by the blob that holds it.
    ChartsIndex(Descriptor),
    /// Anything else, named for people: an image, a signature.
    Other(String),
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "mediaType")]
    media_type: Option<Scalar>,
    #[serde(rename = "artifactType")]
    artifact_type: Option<Scalar>,
    config: Option<Part>,
    #[serde(default)]
    layers: List<Option<Part>, LAYERS>,
    manifests: Option<serde::de::IgnoredAny>,
    #[serde(rename = "fsLayers")]
    fs_layers: Option<serde::de::IgnoredAny>,
}

/// A descriptor before anything is wanted of it: what is no chart's may be as it likes.
#[derive(Deserialize)]
struct Part {
    #[serde(rename = "mediaType", default)]
    media_type: Scalar,
    #[serde(default)]
    digest: Scalar,
    #[serde(default)]
    size: Scalar,
}

impl Part {
    fn media_type(&self) -> &str {
        self.media_type.text().unwrap_or_default()
    }

    fn descriptor(&self) -> Result<Descriptor, DecodeError> {
        let digest = self.digest.text().ok_or(DecodeError::Lacks("the digest of a part"))?;
        if !name::is_digest(digest) {
            return Err(DecodeError::Digest(shown(digest)));
        }
        Ok(Descriptor {
            media_type: self.media_type().to_owned(),
            digest: digest.to_owned(),
            size: self.size.number().ok_or(DecodeError::Lacks("the size of a part"))?,
        })
    }
}

/// Reads a manifest, of whatever kind.
///
/// # Errors
/// [`DecodeError`] when it is none, or when it is a chart's whose parts can't be fetched or checked.
pub fn manifest(bytes: &[u8]) -> Result<Manifest, DecodeError> {
    let document: Document = decode::json(bytes)?;
    if document.manifests.is_some() {
        return Ok(Manifest::Other("an index of images".to_owned()));
    }
    if document.fs_layers.is_some() {
        return Ok(Manifest::Other("a container image in the old format".to_owned()));
    }
    let Some(config) = &document.config else {
        return match text(document.artifact_type.as_ref()).or(text(document.media_type.as_ref())) {
            Some(kind) => Ok(Manifest::Other(format!("an artifact of type {}", shown(kind)))),
            None => Err(DecodeError::Lacks("config")),
        };
    };
    let layers: Vec<&Part> = document.layers.0.iter().flatten().collect();
    match config.media_type() {
        HELM_CONFIG => {
            let of_kind = |kind: &str| layers.iter().find(|layer| layer.media_type() == kind);
            match HELM_LAYERS.iter().find_map(|kind| of_kind(kind)) {
                None => Ok(Manifest::Other("a Helm chart without an archive".to_owned())),
                Some(layer) => Ok(Manifest::Chart {
                    config: config.descriptor()?,
                    layer: layer.descriptor()?,
                }),
            }
        }
        CHARTS_INDEX_CONFIG => match layers.as_slice() {
            [layer] if layer.media_type() == CHARTS_INDEX_LAYER => Ok(Manifest::ChartsIndex(layer.descriptor()?)),
            _ => Ok(Manifest::Other(
                "an index of charts without exactly one layer".to_owned(),
            )),
        },
        kind => Ok(Manifest::Other(kind_of(kind, &document, &layers))),
    }
}

/// What a manifest is that is no chart's, for people. Cosign's signatures look like images but for their layers.
fn kind_of(config: &str, document: &Document, layers: &[&Part]) -> String {
    let has_layer = |part: &str| layers.iter().any(|layer| layer.media_type().contains(part));
    let artifact = text(document.artifact_type.as_ref()).filter(|kind| !kind.is_empty());
    if has_layer("cosign.simplesigning") || config.contains("notary.signature") {
        "a signature".to_owned()
    } else if has_layer("dsse.envelope") || has_layer("in-toto") {
        "an attestation".to_owned()
    } else if let Some(kind) = artifact {
        format!("an artifact of type {}", shown(kind))
    } else if config.starts_with("application/vnd.oci.image.config") || config.starts_with("application/vnd.docker.") {
        "a container image".to_owned()
    } else {
        format!("an artifact of type {}", shown(config))
    }
}

fn text(value: Option<&Scalar>) -> Option<&str> {
    value.and_then(Scalar::text)
}
