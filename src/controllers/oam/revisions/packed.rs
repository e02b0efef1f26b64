//! Revisions as compressed text, as passes remember them.

use kube::ResourceExt;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::encoding::{MAX_EXPANDED_BYTES, RevisionError, expand};
use crate::api::Metadata;
use crate::api::oam::compression::{Compressed, Format};
use crate::api::oam::{ApplicationRevision, ApplicationRevisionSpec};
use crate::budget::parsed_bytes;
use crate::controllers::oam::PASS_COPIES;

/// Maximum size of a revision as text. The API server stores objects of up to 1.5 MiB.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// A revision as compressed text. Parsed, it takes many times as much memory.
#[derive(Debug)]
pub struct Packed {
    pub name: String,
    pub version: String,
    text: Compressed,
    /// Memory of the text once it is parsed, and of its contents if they are compressed.
    parsed_bytes: u64,
}

#[derive(Deserialize)]
struct Outline<'a> {
    metadata: Metadata,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Contents {
    #[serde(default)]
    compression: Option<Compressed>,
}

impl Packed {
    pub fn of_text(text: &str) -> Result<Self, RevisionError> {
        let outline: Outline<'_> = serde_json::from_str(text)?;
        let contents = outline.spec.map(|spec| serde_json::from_str::<Contents>(spec.get()));
        let compression = contents.and_then(Result::ok).and_then(|contents| contents.compression);
        let meta = outline.metadata.into_meta(Some);
        let text = json!({ "metadata": meta, "spec": outline.spec, "status": outline.status }).to_string();
        Self::new(
            meta.name.unwrap_or_default(),
            meta.resource_version,
            &text,
            compression.as_ref(),
        )
    }

    pub fn of(revision: &ApplicationRevision) -> Result<Self, RevisionError> {
        let text = serde_json::to_string(revision)?;
        let version = revision.resource_version();
        Self::new(revision.name_any(), version, &text, Some(&revision.spec.compression))
    }

    fn new(
        name: String,
        version: Option<String>,
        text: &str,
        compression: Option<&Compressed>,
    ) -> Result<Self, RevisionError> {
        let compression = compression.filter(|compression| !compression.is_empty());
        // What can't be decompressed fails when it is expanded.
        let expanded = compression.map_or(0, |compression| {
            compression.parsed_bytes(MAX_EXPANDED_BYTES).unwrap_or_default()
        });
        Ok(Self {
            name,
            version: version.unwrap_or_default(),
            text: Compressed::encode(Format::Zstd, text.as_bytes())?,
            parsed_bytes: parsed_bytes(text) + expanded,
        })
    }

    #[must_use]
    pub fn packed_bytes(&self) -> u64 {
        (self.text.data.len() + self.name.len() + self.version.len() + size_of::<Self>()) as u64
    }

    #[must_use]
    pub fn unpacked_bytes(&self) -> u64 {
        PASS_COPIES * self.parsed_bytes
    }

    /// Returns the revision without its contents, and its expanded contents.
    pub fn unpack(&self) -> Result<(ApplicationRevision, ApplicationRevisionSpec), RevisionError> {
        let text = self.text.decode(MAX_TEXT_BYTES)?;
        let mut revision: ApplicationRevision = serde_json::from_slice(&text)?;
        let spec = std::mem::take(&mut revision.spec);
        let contents = if spec.compression.is_empty() {
            spec
        } else {
            expand(&spec)?.into_owned()
        };
        Ok((revision, contents))
    }
}
