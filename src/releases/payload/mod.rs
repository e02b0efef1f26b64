//! Decoding of a stored release of Helm, as a stream that ends after the metadata of its chart.
//!
//! ```text
//!  base64 (of Secrets only) ─► base64 ─► gzip, or none ─► JSON: name, info.status, chart.metadata │ values, manifest …
//! ```
//! Helm writes the three first. The rest, which may be a MiB, is neither inflated nor parsed.

mod json;
#[cfg(test)]
mod tests;

use std::io::{BufRead, BufReader, Read};

use base64::engine::general_purpose::STANDARD;
use base64::read::DecoderReader;
use flate2::bufread::GzDecoder;

use super::{InstalledChart, Release, ReleaseKind, ReleaseState, is_link};
use crate::api::NamespacedName;
use json::{Allowance, Found, Metadata, find};

/// Inflated bytes before the metadata of the chart.
pub(super) const MAX_BEFORE_METADATA: u64 = 1 << 20;
pub(super) const MAX_METADATA: u64 = 64 << 10;
const MAX_SOURCES: usize = 8;

const GZIP: [u8; 3] = [0x1f, 0x8b, 0x08];
const BUFFER: usize = 4 << 10;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("its name is none of Helm's; Helm writes sh.helm.release.v1.NAME.vREVISION")]
    Name,
    #[error("it has no key `release`")]
    Missing,
    #[error("it is no valid base64 or gzip")]
    Encoding,
    // Without serde's error, which may quote the content.
    #[error("it is no release of Helm: invalid JSON")]
    Json,
    #[error("it has no metadata of a chart in its first {} KiB", MAX_BEFORE_METADATA >> 10)]
    NoMetadata,
    #[error("the metadata of its chart has more than {} KiB", MAX_METADATA >> 10)]
    LargeMetadata,
    #[error("its chart has no valid name and version")]
    Chart,
    #[error("it contains the release of another name")]
    OtherRelease,
}

/// Decodes the value of `release` of a ConfigMap, or of a Secret whose data is decoded. `object` is its name.
pub fn decode(value: &[u8], object: &NamespacedName) -> Result<Release, PayloadError> {
    decode_stream(value, object)
}

/// Decodes the value of `release` of a Secret as in the JSON of the API.
pub(super) fn decode_secret(value: &str, object: &NamespacedName) -> Result<Release, PayloadError> {
    decode_stream(DecoderReader::new(value.as_bytes(), &STANDARD), object)
}

fn decode_stream(value: impl Read, object: &NamespacedName) -> Result<Release, PayloadError> {
    let (name, revision) = name_and_revision(&object.name).ok_or(PayloadError::Name)?;
    let found = read(value)?;
    if found.name.is_some_and(|found| found != name) {
        return Err(PayloadError::OtherRelease);
    }
    Ok(Release {
        kind: ReleaseKind::Helm,
        namespace: object.namespace.clone(),
        name: name.to_owned(),
        state: ReleaseState::from(found.status.unwrap_or_else(|| "unknown".to_owned())),
        revision: Some(revision),
        chart: found
            .metadata
            .and_then(Metadata::into_chart)
            .ok_or(PayloadError::Chart)?,
    })
}

/// Returns release and revision of `sh.helm.release.v1.web.v3`.
pub(super) fn name_and_revision(object: &str) -> Option<(&str, u64)> {
    let (name, revision) = object.strip_prefix("sh.helm.release.v1.")?.rsplit_once(".v")?;
    Some((name, revision.parse().ok()?)).filter(|_| !name.is_empty())
}

fn read(value: impl Read) -> Result<Found, PayloadError> {
    let mut decoded = BufReader::with_capacity(BUFFER, DecoderReader::new(value, &STANDARD));
    let start = decoded.fill_buf().map_err(|_| PayloadError::Encoding)?;
    if start.starts_with(&GZIP) {
        find_metadata(BufReader::with_capacity(BUFFER, GzDecoder::new(decoded)))
    } else {
        find_metadata(decoded)
    }
}

fn find_metadata(json: impl Read) -> Result<Found, PayloadError> {
    let allowance = Allowance::new(MAX_BEFORE_METADATA);
    let (found, result) = find(json, &allowance);
    match result {
        // The search ends with an error once it has the metadata.
        _ if found.metadata.is_some() => Ok(found),
        Ok(()) => Err(PayloadError::NoMetadata),
        Err(_) if allowance.is_exhausted() && allowance.is_in_metadata() => Err(PayloadError::LargeMetadata),
        Err(_) if allowance.is_exhausted() => Err(PayloadError::NoMetadata),
        Err(error) if error.is_io() => Err(PayloadError::Encoding),
        Err(_) => Err(PayloadError::Json),
    }
}

impl Metadata {
    fn into_chart(self) -> Option<InstalledChart> {
        let is_link = |link: &String| is_link(link);
        Some(InstalledChart {
            home: self.home.filter(is_link),
            icon: self.icon.filter(is_link),
            sources: self
                .sources
                .into_iter()
                .flatten()
                .filter(is_link)
                .take(MAX_SOURCES)
                .collect(),
            ..InstalledChart::new(self.name.as_deref()?, self.version.as_deref()?)?
        })
    }
}
