//! A chart version that stands by itself, as in the config of an OCI artifact: a Chart.yaml, mostly as JSON.

use std::cmp::Ordering;
use std::io::Cursor;

use serde_json::value::RawValue;

use super::chart::Gathered;
use super::entry::{self, Entry, Head};
use super::node::{Field, Fields};
use super::{Chart, DecodeError, DecodeLimits, Start, Version, json, yaml};
use crate::helm::semver::Rank;
use crate::text::{printable, truncate};

/// What a Chart.yaml says: a version of a chart that is in no index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    version: Version,
    head: Head,
}

impl Metadata {
    /// The chart's name, unchecked: [`chart`] looks at that of the newest version, as with an index.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.head.name
    }

    /// The version as it would stand in an index.
    #[must_use]
    pub const fn version(&self) -> &Version {
        &self.version
    }

    /// All of it that a catalogue needs, as JSON, which [`metadata`] reads to the same again: what else stands in a Chart.yaml may be
    /// a hundred times as much.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Self { version, head } = self;
        let maintainers = head.maintainers.iter();
        serde_json::json!({
            "version": version.version,
            "appVersion": version.app_version,
            "name": head.name,
            "deprecated": head.deprecated,
            "description": head.description,
            "home": head.home,
            "icon": head.icon,
            "annotations": { "category": head.category },
            "keywords": head.keywords,
            "maintainers": maintainers
                .map(|maintainer| {
                    serde_json::json!({ "name": maintainer.name, "email": maintainer.email, "url": maintainer.url })
                })
                .collect::<Vec<_>>(),
            "sources": head.sources,
        })
        .to_string()
    }

    /// The same under another version: the tag that it is pulled by, which Chart.yaml may write in another way.
    ///
    /// # Errors
    /// Why it can be no version in a catalogue.
    pub fn with_version(mut self, version: &str) -> Result<Self, String> {
        entry::check_version(version)?;
        version.clone_into(&mut self.version.version);
        Ok(self)
    }

    /// The same with a digest, by which readers know whether they have its files.
    #[must_use]
    pub fn with_digest(mut self, digest: String) -> Self {
        self.version.digest = digest;
        self
    }

    /// The same with the URLs of its archive. Empty ones are left out.
    #[must_use]
    pub fn with_urls(mut self, urls: Vec<String>) -> Self {
        self.version.urls = entry::urls(urls);
        self
    }
}

/// Reads a Chart.yaml, YAML or JSON, by the rules for the entries of an index. Its `created`, `digest` and `urls`, which
/// are no fields of a Chart.yaml but of an index, are not looked at; they are the caller's to set.
///
/// # Errors
/// Why it can't be used, as a sentence about it.
pub fn metadata(json_or_yaml: &[u8], limits: &DecodeLimits) -> Result<Metadata, String> {
    let mut fields = fields(json_or_yaml, limits)?;
    for field in [Field::Created, Field::Digest, Field::Urls] {
        let _ = fields.take(field);
    }
    let Entry { version, head, .. } = entry::read(fields).map_err(|unusable| unusable.reason)?;
    Ok(Metadata { version, head })
}

fn fields(bytes: &[u8], limits: &DecodeLimits) -> Result<Fields, String> {
    let start = Start::of(&mut Cursor::new(bytes)).map_err(|error| error.to_string())?;
    let offset = usize::try_from(start.offset).unwrap_or_default();
    let bytes = bytes.get(offset..).unwrap_or_default();
    match start.first[0] {
        None => return Err("it is empty".to_owned()),
        Some(b'{') => {
            if let Ok(raw) = serde_json::from_slice::<&RawValue>(bytes) {
                return json::entry(raw, limits).map_err(str::to_owned);
            }
            // YAML's flow notation begins alike.
        }
        Some(_) => {}
    }
    match yaml::entry(bytes, limits) {
        Ok(fields) => fields.map_err(str::to_owned),
        Err(DecodeError::InvalidYaml { message, position }) => {
            Err(format!("it is no valid YAML: {message} at {position}"))
        }
        Err(DecodeError::TooComplex { limit, position }) => Err(format!("it is too complex: {limit}, near {position}")),
        Err(other) => Err(other.to_string()),
    }
}

/// The chart that these versions are, given in any order: equal versions, and what is no version (behind all others),
/// keep it. None if its newest version is deprecated, or if there is none.
///
/// # Errors
/// Why the whole chart can't be used, as a sentence about it: its newest version has no name that a chart may have.
pub fn chart(versions: Vec<Metadata>) -> Result<Option<Chart>, String> {
    let mut gathered = Versions::default();
    for version in versions {
        gathered.push(version);
    }
    gathered.chart()
}

/// The versions of one chart while they come in, for [`chart`]. Of what they say of the chart only the newest's is kept.
#[derive(Debug, Default)]
pub struct Versions(Gathered);

impl Versions {
    /// Takes a version.
    pub fn push(&mut self, Metadata { version, head }: Metadata) {
        let rank = Rank::of(&version.version);
        self.0.push(Entry { rank, version, head });
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// About how many bytes of memory the versions take.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The chart that they are.
    ///
    /// # Errors
    /// The same as of [`chart`].
    pub fn chart(self) -> Result<Option<Chart>, String> {
        let complete = self
            .0
            .complete()
            .map_err(|reason| truncate(&printable(&reason), 1024))?;
        Ok(complete
            .filter(|complete| !complete.deprecated)
            .map(|complete| complete.chart))
    }
}

/// The order of versions in an index, newest first, as Helm's `SortEntries` has it: read leniently, prereleases take
/// part, build metadata has no say, and what is no version comes last.
#[must_use]
pub fn newest_first(a: &str, b: &str) -> Ordering {
    Rank::of(b).cmp(&Rank::of(a))
}
