//! The archive of a chart version: the few files that the catalogue keeps of it, picked from the stream.
//!
//! ```text
//!  bytes ─► metered (packed) ─► gunzip ─► metered (unpacked) ─► walk: entries ─► files: which, as text ─► ChartFiles
//! ```
//!
//! Anybody may publish a chart. Nothing is ever unpacked to disk, no link is followed, no schema is resolved; what is not
//! kept is passed over as it streams by, and what is kept has [`Limits`].

mod error;
mod files;
mod metered;
mod pax;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::BTreeMap;
use std::io::{self, BufReader, Cursor, Read};

use flate2::bufread::MultiGzDecoder;

pub use error::ArchiveError;
use files::{Files, Role};
use metered::{Meter, Metered};
use walk::{BLOCK, EXTENSION_BYTES, Walk};

/// What an archive may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes as they are downloaded.
    pub packed_bytes: u64,
    /// Bytes of all that is in it, counted as it streams by.
    pub unpacked_bytes: u64,
    /// Bytes of one file that is kept.
    pub file_bytes: u64,
    /// Bytes of all files that are kept, as they are in JSON, where a control character takes six and a line's end two:
    /// what bounds the memory that one archive takes, and its row.
    pub kept_bytes: u64,
    /// Files, folders, links and whatever else, those that are passed over included.
    pub entries: u64,
}

impl Default for Limits {
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

/// What reading takes beside what is kept: buffers, the window of gzip, and names as long as are known.
const BUFFERS: u64 = 512 * 1024;

impl Limits {
    /// Bytes of memory that are enough for any archive within these limits, until its files are in a database.
    ///
    /// Reading holds what is kept, one file more, and names. Later there are the texts and their JSON; then the JSON, as it is bound
    /// to the statement, and as it is sent. So three times what is kept.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        let (reading, writing) = (
            self.kept_bytes + self.file_bytes + 3 * EXTENSION_BYTES,
            3 * self.kept_bytes,
        );
        BUFFERS + if reading > writing { reading } else { writing }
    }
}

/// The files of a chart that the catalogue keeps, as texts: without NUL, which no database takes in JSON, and with
/// U+FFFD for each byte that is no UTF-8, as Go writes it. Byte order marks and line ends stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChartFiles {
    /// `README.md`. Empty if there is none.
    pub readme: String,
    /// `values.yaml`. Empty if there is none.
    pub values: String,
    /// `values.schema.json`, never resolved. Empty if there is none.
    pub schema: String,
    /// `values-production.yaml` and its like, by `values-production`.
    pub additional_values: BTreeMap<String, String>,
}

/// Reads the files of a chart from its archive, a tar stream with or without gzip, up to the mark at its end. Blocks
/// while it reads and unpacks, so it belongs on a thread that may.
///
/// Looked at are regular files at most one folder deep, after any `./` is taken off, as in Kubeapps (which counts the
/// `./` and so misses what tar writes for `tar -C .. ./chart`). Names count in any case; of two files that match, the
/// later in the archive wins, as in Kubeapps and as when unpacking.
///
/// A link, device or fifo in the place of such a file, and an absolute name or one with `..`, are refused by being no
/// such file: nothing of them is read, and the file counts as missing. They don't spoil the archive, since charts in
/// the wild hold links that do no harm here, where nothing is unpacked.
///
/// # Errors
/// [`ArchiveError`]; only [`ArchiveError::Read`] says nothing about the archive.
pub fn read(input: impl Read, limits: &Limits) -> Result<ChartFiles, ArchiveError> {
    let (packed, unpacked) = (Meter::default(), Meter::default());
    let mut input = BufReader::with_capacity(64 * 1024, Metered::new(input, limits.packed_bytes, &packed));
    let failed = |error: io::Error, entries| {
        if let Some(fault) = packed.take_error() {
            return ArchiveError::Read(fault);
        }
        if packed.is_over() {
            return ArchiveError::too_large("the archive", limits.packed_bytes);
        }
        if unpacked.is_over() {
            return ArchiveError::too_large("what is packed into the archive", limits.unpacked_bytes);
        }
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return ArchiveError::CutShort { entries };
        }
        ArchiveError::damaged(&error.to_string())
    };

    let mut start = Vec::with_capacity(BLOCK);
    (&mut input)
        .take(BLOCK as u64)
        .read_to_end(&mut start)
        .map_err(|error| failed(error, 0))?;
    let is_packed = looks_packed(&start)?;
    let input = Cursor::new(start).chain(input);
    let stream: Box<dyn Read + '_> = if is_packed {
        Box::new(MultiGzDecoder::new(input))
    } else {
        Box::new(input)
    };
    let mut walk = Walk::new(Metered::new(stream, limits.unpacked_bytes, &unpacked));
    let mut files = Files::new(limits);
    let mut entries = 0;
    loop {
        let entry = match walk.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(files.finish()),
            Err(error) => return Err(failed(error, entries)),
        };
        entries += 1;
        if entries > limits.entries {
            return Err(ArchiveError::TooManyEntries { limit: limits.entries });
        }
        let role = entry.is_plain_file.then(|| Role::of(&entry.name)).flatten();
        if let Some(role) = role {
            files.check_size(&role, entry.size)?;
            let content = walk.content().map_err(|error| failed(error, entries))?;
            files.put(role, content)?;
        }
    }
}

/// Whether it is gzip, judged by its first bytes; an error if it is neither that nor a tar stream. A tar stream has no
/// mark at its beginning, but the sum in its first header.
fn looks_packed(start: &[u8]) -> Result<bool, ArchiveError> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    if start.starts_with(&GZIP) {
        return Ok(true);
    }
    if start.len() == BLOCK && walk::is_header_or_end(start) {
        return Ok(false);
    }
    let first = start.trim_ascii_start().first();
    Err(ArchiveError::NotAnArchive(match first {
        None if start.is_empty() => "the answer is empty",
        Some(b'<') => "the answer is an HTML or XML page",
        Some(b'{') => "the answer is JSON",
        _ => "the answer is neither gzip nor tar",
    }))
}
