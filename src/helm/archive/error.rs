use std::io;

use crate::text::{printable, truncate};

/// Reasons to reject an archive. Only [`ArchiveError::Read`] is worth a retry before the archive changes.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error(
        "not a chart archive: {0}; check that the chart URL in the index serves the packaged chart without a login"
    )]
    NotAnArchive(&'static str),
    #[error("{what} is larger than {limit} bytes; reduce its size or raise the limit")]
    TooLarge { what: String, limit: u64 },
    #[error(
        "the archive contains more than {limit} files and directories; remove files that the chart does not need or raise the limit"
    )]
    TooManyEntries { limit: u64 },
    #[error("the archive is truncated in entry {entries}; upload it again")]
    Truncated { entries: u64 },
    #[error("the archive is corrupt: {detail}; package it again")]
    Corrupt { detail: String },
    #[error("failed to read the downloaded archive: {0}; check the disk of the spool directory")]
    Read(#[source] io::Error),
}

impl ArchiveError {
    pub(super) fn too_large(what: &str, limit: u64) -> Self {
        Self::TooLarge {
            what: what.to_owned(),
            limit,
        }
    }

    /// The detail may quote the archive, so it is sanitized and truncated.
    pub(super) fn corrupt(detail: &str) -> Self {
        const SHOWN_BYTES: usize = 256;
        Self::Corrupt {
            detail: truncate(&printable(detail), SHOWN_BYTES),
        }
    }
}
