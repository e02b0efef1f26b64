//! Why an archive is refused.

use std::io;

use crate::text::{printable, truncate};

/// Why nothing is taken of an archive. The same bytes fail in the same way again, so none of these is worth a retry
/// before the archive changes; [`ArchiveError::Read`] alone says nothing about it.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is something else: nothing at all, an HTML page.
    #[error(
        "this is no chart archive: {0}; check that the chart's URL in the index leads to the packaged chart itself, without a login in between"
    )]
    NotAnArchive(&'static str),
    /// It breaks one of the limits of bytes.
    #[error("{what} has more than {limit} bytes; its publisher has to make it smaller, or the limit has to be raised")]
    TooLarge {
        /// The archive, what is in it, or a file.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// It holds too many files.
    #[error(
        "the archive holds more than {limit} files and folders; its publisher has to leave out what no chart needs, or the limit has to be raised"
    )]
    TooManyEntries {
        /// The limit.
        limit: u64,
    },
    /// It ends too early.
    #[error("the archive ends in the midst of its entry {entries}; its publisher has to upload it again")]
    CutShort {
        /// Entries up to there.
        entries: u64,
    },
    /// It breaks the rules of gzip or tar.
    #[error("the archive is damaged: {detail}; its publisher has to package it again")]
    Damaged {
        /// What is wrong.
        detail: String,
    },
    /// The bytes could not be read back.
    #[error("reading the downloaded archive failed: {0}; check the disk that holds the spool directory")]
    Read(#[source] io::Error),
}

impl ArchiveError {
    pub(super) fn too_large(what: &str, limit: u64) -> Self {
        Self::TooLarge {
            what: what.to_owned(),
            limit,
        }
    }

    /// The detail may quote the archive.
    pub(super) fn damaged(detail: &str) -> Self {
        const SHOWN_BYTES: usize = 256;
        Self::Damaged {
            detail: truncate(&printable(detail), SHOWN_BYTES),
        }
    }
}
