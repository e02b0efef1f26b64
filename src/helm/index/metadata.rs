//! Metadata of a single chart version, as in the config of an OCI artifact (Chart.yaml, usually as JSON).

use std::cmp::Ordering;
use std::io::Cursor;

use serde_json::value::RawValue;

use super::chart::ChartBuilder;
use super::entry::{self, IndexEntry};
use super::node::{Field, Fields};
use super::{Chart, DecodeError, DecodeLimits, IndexStart, Version, json, yaml};
use crate::helm::semver::Rank;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartMetadata {
    version: Version,
    deprecated: bool,
    /// Without versions.
    chart: Chart,
}

impl ChartMetadata {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.chart.name
    }

    #[must_use]
    pub const fn version(&self) -> &Version {
        &self.version
    }

    /// [`metadata`] parses it back to an equal value. A full Chart.yaml can be a hundred times larger.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Self {
            version,
            deprecated,
            chart,
        } = self;
        let maintainers = chart.maintainers.iter();
        serde_json::json!({
            "version": version.version,
            "appVersion": version.app_version,
            "name": chart.name,
            "deprecated": deprecated,
            "description": chart.description,
            "home": chart.home,
            "icon": chart.icon,
            "annotations": { "category": chart.category },
            "keywords": chart.keywords,
            "maintainers": maintainers
                .map(|maintainer| {
                    serde_json::json!({ "name": maintainer.name, "email": maintainer.email, "url": maintainer.url })
                })
                .collect::<Vec<_>>(),
            "sources": chart.sources,
        })
        .to_string()
    }

    /// Replaces the version, for example by the tag, which may be written differently in Chart.yaml.
    pub fn with_version(mut self, version: &str) -> Result<Self, String> {
        entry::check_version(version)?;
        version.clone_into(&mut self.version.version);
        Ok(self)
    }

    #[must_use]
    pub fn with_digest(mut self, digest: String) -> Self {
        self.version.digest = digest;
        self
    }

    #[must_use]
    pub fn with_urls(mut self, urls: Vec<String>) -> Self {
        self.version.urls = entry::urls(urls);
        self
    }
}

/// Parses a Chart.yaml in YAML or JSON by the rules for index entries. Ignores `created`, `digest` and `urls`, which
/// only an index has. Errors are sentences about the Chart.yaml.
pub fn metadata(json_or_yaml: &[u8], limits: &DecodeLimits) -> Result<ChartMetadata, String> {
    let mut fields = fields(json_or_yaml, limits)?;
    for field in [Field::Created, Field::Digest, Field::Urls] {
        let _ = fields.take(field);
    }
    let entry = entry::read(fields).map_err(|invalid| invalid.reason)?;
    Ok(ChartMetadata {
        version: entry.version,
        deprecated: entry.deprecated,
        chart: entry.chart,
    })
}

fn fields(bytes: &[u8], limits: &DecodeLimits) -> Result<Fields, String> {
    let start = IndexStart::read(&mut Cursor::new(bytes)).map_err(|error| error.to_string())?;
    let offset = usize::try_from(start.offset).unwrap_or_default();
    let bytes = bytes.get(offset..).unwrap_or_default();
    match start.first[0] {
        None => return Err("it is empty".to_owned()),
        Some(b'{') => {
            if let Ok(raw) = serde_json::from_slice::<&RawValue>(bytes) {
                return json::entry(raw, limits).map_err(str::to_owned);
            }
            // YAML's flow notation starts with the same byte.
        }
        Some(_) => {}
    }
    match yaml::entry(bytes, limits) {
        Ok(fields) => fields.map_err(str::to_owned),
        Err(DecodeError::InvalidYaml { message, position }) => Err(format!("invalid YAML at {position}: {message}")),
        Err(DecodeError::TooComplex { limit, position }) => Err(format!("it exceeds a limit near {position}: {limit}")),
        Err(other) => Err(other.to_string()),
    }
}

/// Versions may have any order; equal and invalid versions keep it. None without versions, or for a deprecated newest.
#[must_use]
pub fn chart(versions: Vec<ChartMetadata>) -> Option<Chart> {
    let mut builder = Versions::default();
    for version in versions {
        builder.push(version);
    }
    if builder.is_deprecated() { None } else { builder.chart() }
}

#[derive(Debug, Default)]
pub struct Versions(ChartBuilder);

impl Versions {
    pub fn push(&mut self, metadata: ChartMetadata) {
        self.0.push(IndexEntry {
            rank: Rank::of(&metadata.version.version),
            version: metadata.version,
            deprecated: metadata.deprecated,
            chart: metadata.chart,
        });
    }

    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Returns true if the newest version is deprecated.
    #[must_use]
    pub const fn is_deprecated(&self) -> bool {
        self.0.is_deprecated()
    }

    /// Returns `None` without versions.
    #[must_use]
    pub fn chart(self) -> Option<Chart> {
        Some(self.0.complete()?.chart)
    }
}

/// As Helm's `SortEntries`: lenient parsing, prereleases included, build metadata ignored, invalid versions last.
#[must_use]
pub fn newest_first(a: &str, b: &str) -> Ordering {
    Rank::of(b).cmp(&Rank::of(a))
}
