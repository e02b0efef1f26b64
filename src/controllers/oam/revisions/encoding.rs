//! Revisions as they are stored: plain, or compressed by setting or size.

use std::borrow::Cow;
use std::io;

use crate::api::oam::ApplicationRevisionSpec;
use crate::api::oam::compression::{Compressed, CompressionError, Format};

/// Size of JSON from which on it is compressed without a setting. The API server rejects requests above 1.5 MiB.
const PLAIN_BYTES: usize = 1 << 20;

/// Maximum size of compressed data.
const MAX_COMPRESSED_BYTES: usize = (14 << 20) / 10;

/// Maximum size of decompressed JSON. Parsed, it takes up to about 16 times as much memory.
pub(super) const MAX_EXPANDED_BYTES: usize = 8 << 20;

#[derive(Debug, thiserror::Error)]
pub enum RevisionError {
    #[error(transparent)]
    Compression(#[from] CompressionError),
    #[error("contents are invalid: {0}")]
    Json(#[from] serde_json::Error),
    #[error("contents don't compress: {0}")]
    Compress(#[from] io::Error),
    #[error("contents take {0} bytes, more than a revision can hold; split the application or shorten its definitions")]
    TooLarge(usize),
}

/// Decompresses the contents if necessary.
pub fn expand(spec: &ApplicationRevisionSpec) -> Result<Cow<'_, ApplicationRevisionSpec>, RevisionError> {
    if spec.compression.is_empty() {
        return Ok(Cow::Borrowed(spec));
    }
    let json = spec.compression.decode(MAX_EXPANDED_BYTES)?;
    let mut expanded: ApplicationRevisionSpec = serde_json::from_slice(&json)?;
    // Compressed contents never contain compressed contents.
    expanded.compression = Compressed::default();
    Ok(Cow::Owned(expanded))
}

/// Uses `format`, or decides by size if it is `None`.
pub fn compress(
    spec: ApplicationRevisionSpec,
    format: Option<Format>,
) -> Result<ApplicationRevisionSpec, RevisionError> {
    let json = serde_json::to_vec(&spec)?;
    if format.is_none() && json.len() < PLAIN_BYTES {
        return Ok(spec);
    }
    if json.len() > MAX_EXPANDED_BYTES {
        return Err(RevisionError::TooLarge(json.len()));
    }
    let compression = Compressed::encode(format.unwrap_or(Format::Zstd), &json)?;
    if compression.data.len() > MAX_COMPRESSED_BYTES {
        return Err(RevisionError::TooLarge(compression.data.len()));
    }
    Ok(ApplicationRevisionSpec {
        compression,
        ..ApplicationRevisionSpec::default()
    })
}
