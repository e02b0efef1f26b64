//! Extracts the files that the catalog stores from the archive of a chart version.
//!
//! Archives are untrusted. Nothing is unpacked to disk, links are not followed and schemas are not resolved.
//! [`ArchiveLimits`] bound the extracted files; all other content is skipped while streaming.

mod error;
mod files;
mod metadata;
mod metered;
mod pax;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeMap;
use std::io::{self, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

pub use error::ArchiveError;
use files::{FileCollector, FileRole};
pub use metadata::annotation_list;
use metadata::{METADATA_MEMORY, MetadataCollector};
use metered::{LimitedReader, ReadStatus};
use walk::{BLOCK, EXTENSION_BYTES, TarReader};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimits {
    pub packed_bytes: u64,
    pub unpacked_bytes: u64,
    pub file_bytes: u64,
    /// Size of all extracted files as JSON strings. Bounds the memory of one archive and the size of its row.
    pub kept_bytes: u64,
    pub entries: u64,
}

impl Default for ArchiveLimits {
    fn default() -> Self {
        const MIB: u64 = 1024 * 1024;
        Self {
            packed_bytes: 20 * MIB,
            unpacked_bytes: 200 * MIB,
            file_bytes: 5 * MIB,
            kept_bytes: 8 * MIB,
            entries: 10_000,
        }
    }
}

/// Memory for reading in addition to the extracted files: buffers, the gzip window and path names.
const BUFFERS: u64 = 512 * 1024;

/// Largest Chart.yaml, and its largest form as JSON.
pub const METADATA_BYTES: u64 = 64 * 1024;

/// Extracted files of several archives that are stored together; the last archive may exceed it.
pub const GROUP_BYTES: u64 = 1024 * 1024;

impl ArchiveLimits {
    /// Lowers the limits until one group of archives needs at most `memory` bytes.
    #[must_use]
    pub fn within(self, memory: u64) -> Self {
        let available = memory.saturating_sub(BUFFERS + 3 * (EXTENSION_BYTES + GROUP_BYTES));
        let kept_bytes = self.kept_bytes.min(available / 3);
        Self {
            kept_bytes,
            file_bytes: self.file_bytes.min(kept_bytes),
            ..self
        }
    }

    /// An upper bound in bytes for one group of archives, until its files are stored. Reading holds the extracted
    /// files, one more file, the parsed Chart.yaml and path names. Writing holds up to three copies: texts, JSON and the
    /// bound statement; Chart.yaml fits into the buffers of reading, which are free then.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        let reading = self.kept_bytes + self.file_bytes + METADATA_MEMORY + 3 * EXTENSION_BYTES + GROUP_BYTES;
        let writing = 3 * (self.kept_bytes + GROUP_BYTES);
        BUFFERS + if reading > writing { reading } else { writing }
    }
}

/// Without NUL, which Postgres rejects in JSON, and with U+FFFD for each invalid UTF-8 byte, as Go does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveFiles {
    pub readme: String,
    pub values: String,
    /// Empty if missing. References are not resolved.
    pub schema: String,
    /// Further values files such as `values-production.yaml`, keyed by `values-production`.
    pub additional_values: BTreeMap<String, String>,
    /// Chart.yaml as a JSON object of at most [`METADATA_BYTES`], with scalars as texts; `None` if there is none that is valid.
    pub metadata: Option<String>,
    /// The reason why the Chart.yaml is not valid.
    pub metadata_problem: Option<String>,
}

/// Extracts the files of a chart from a tar stream, with or without gzip. Blocking.
///
/// Only regular files at most one directory deep count, after a leading `./` is removed (Kubeapps counts the `./`).
/// Names match in any case, and the last match wins, as in Kubeapps. Chart.yaml, which Kubeapps does not read, matches
/// exactly, and its faults do not reject the archive.
/// Links, devices, absolute paths and paths with `..` are skipped: many published charts contain harmless links.
pub fn read(input: impl Read, limits: &ArchiveLimits) -> Result<ArchiveFiles, ArchiveError> {
    let (packed, unpacked) = (ReadStatus::default(), ReadStatus::default());
    let mut input = BufReader::with_capacity(64 * 1024, LimitedReader::new(input, limits.packed_bytes, &packed));
    let failed = |error: io::Error, entries| {
        if let Some(fault) = packed.take_error() {
            return ArchiveError::Read(fault);
        }
        if packed.is_limit_exceeded() {
            return ArchiveError::too_large("the archive", limits.packed_bytes);
        }
        if unpacked.is_limit_exceeded() {
            return ArchiveError::too_large("the content of the archive", limits.unpacked_bytes);
        }
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return ArchiveError::Truncated { entries };
        }
        ArchiveError::corrupt(&error.to_string())
    };

    let mut start = Vec::with_capacity(BLOCK);
    let read = (&mut input).take(BLOCK as u64).read_to_end(&mut start);
    read.map_err(|error| failed(error, 0))?;
    let is_gzipped = is_gzip(&start)?;
    let input = Cursor::new(start).chain(input);
    let stream: Box<dyn Read + '_> = if is_gzipped {
        Box::new(MultiGzDecoder::new(input))
    } else {
        Box::new(input)
    };
    let mut walk = TarReader::new(LimitedReader::new(stream, limits.unpacked_bytes, &unpacked));
    let (mut files, mut metadata) = (FileCollector::new(limits), MetadataCollector::default());
    let mut entries = 0;
    loop {
        let entry = match walk.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => {
                let mut files = files.finish();
                metadata.finish(&mut files);
                return Ok(files);
            }
            Err(error) => return Err(failed(error, entries)),
        };
        entries += 1;
        if entries > limits.entries {
            return Err(ArchiveError::TooManyEntries { limit: limits.entries });
        }
        if !entry.is_regular_file {
            continue;
        }
        if MetadataCollector::is_metadata(&entry.name) {
            if metadata.accepts(entry.size) {
                metadata.put(walk.read_content().map_err(|error| failed(error, entries))?);
            }
        } else if let Some(role) = FileRole::of(&entry.name) {
            files.check_size(&role, entry.size)?;
            let content = walk.read_content().map_err(|error| failed(error, entries))?;
            files.put(role, content)?;
        }
    }
}

/// Returns true for gzip and false for tar, which has no magic bytes but a checksum in its first header.
fn is_gzip(start: &[u8]) -> Result<bool, ArchiveError> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    if start.starts_with(&GZIP) {
        return Ok(true);
    }
    if start.len() == BLOCK && walk::is_header_or_end(start) {
        return Ok(false);
    }
    let first = start.trim_ascii_start().first();
    Err(ArchiveError::NotAnArchive(match first {
        None if start.is_empty() => "the response is empty",
        Some(b'<') => "the response is an HTML or XML page",
        Some(b'{') => "the response is JSON",
        _ => "the response is neither gzip nor tar",
    }))
}
