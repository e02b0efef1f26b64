//! A body that has come: spooled, measured, hashed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tempfile::{SpooledData, SpooledTempFile};

use super::error::FetchError;
use super::spool::spool;
use super::{Limits, Validators};
use crate::text::{printable, truncate};

/// A whole body. Clones share its bytes. Its temporary file, if it has one, is gone when the last of them and of their readers is
/// dropped, and when the process ends.
#[derive(Debug, Clone)]
pub struct Body {
    /// Length, after decompression.
    pub bytes: u64,
    /// Hex SHA-256, after decompression.
    pub sha256: String,
    /// What to send next time, so that only a change is answered with a body.
    pub validators: Validators,
    content: Content,
}

impl Body {
    /// Whether the bytes are in memory, and not in a file.
    #[must_use]
    pub const fn is_in_memory(&self) -> bool {
        matches!(self.content, Content::Memory(_))
    }

    /// The bytes, from their beginning. Readers do not disturb each other.
    #[must_use]
    pub fn into_reader(self) -> impl Read + Seek + Send + 'static {
        Reader {
            content: self.content,
            length: self.bytes,
            position: 0,
        }
    }
}

/// Where the bytes are.
#[derive(Debug, Clone)]
enum Content {
    Memory(Arc<Vec<u8>>),
    File(Arc<File>),
}

/// Reads a body at a place of its own.
struct Reader {
    content: Content,
    length: u64,
    position: u64,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &self.content {
            Content::File(file) => file.read_at(buffer, self.position)?,
            Content::Memory(bytes) => {
                let start = usize::try_from(self.position).unwrap_or(usize::MAX);
                let rest = bytes.get(start..).unwrap_or_default();
                let count = rest.len().min(buffer.len());
                buffer[..count].copy_from_slice(&rest[..count]);
                count
            }
        };
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Reader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "a place before the beginning");
        self.position = position.ok_or_else(before)?;
        Ok(self.position)
    }
}

/// A body while it comes.
///
/// It is written where the request runs, on an asynchronous thread: a chunk is a few hundred kilobytes at most and goes to
/// the page cache, which takes less time than handing it to another thread; hashing it takes about as long.
pub(super) struct Spool {
    file: SpooledTempFile,
    hash: Sha256,
    bytes: u64,
    limit: u64,
}

impl Spool {
    pub(super) fn new(directory: Option<&Path>, limit: u64) -> Self {
        Self {
            file: spool(directory),
            hash: Sha256::new(),
            bytes: 0,
            limit,
        }
    }

    /// Takes a chunk. `what` names the whole in errors.
    pub(super) fn push(&mut self, chunk: &[u8], what: impl FnOnce() -> String) -> Result<(), FetchError> {
        self.bytes += chunk.len() as u64;
        if self.bytes > self.limit {
            return Err(FetchError::TooLarge {
                what: what(),
                limit: self.limit,
                seen: self.bytes,
                validators: Validators::default(),
            });
        }
        self.hash.update(chunk);
        self.file.write_all(chunk).map_err(FetchError::Spool)
    }

    pub(super) fn finish(self, validators: Validators) -> Result<Body, FetchError> {
        let content = match self.file.into_inner() {
            SpooledData::InMemory(bytes) => Content::Memory(Arc::new(bytes.into_inner())),
            SpooledData::OnDisk(file) => Content::File(Arc::new(file)),
        };
        let sha256 = crate::text::hex(&self.hash.finalize());
        Ok(Body {
            bytes: self.bytes,
            sha256,
            validators,
            content,
        })
    }
}

/// Reads a file under the limits of size and total time. It is spooled like a download, so that nobody changes it between
/// its being hashed and its being decoded. Whether this path may be read is the caller's to decide.
///
/// # Errors
/// [`FetchError`]: there is no such file, it can't be read or is no regular file, it is too large, or takes too long.
pub async fn read_file(path: &Path, spool_dir: Option<&Path>, limits: &Limits) -> Result<Body, FetchError> {
    let shown = shown(path);
    let (path, spool_dir, limit) = (path.to_owned(), spool_dir.map(Path::to_owned), limits.max_bytes);
    // A network file system may hang; its thread is then lost, the caller is not.
    let reading = tokio::task::spawn_blocking(move || read_blocking(path, spool_dir.as_deref(), limit));
    match tokio::time::timeout(limits.total, reading).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => Err(FetchError::FileUnreadable {
            path: shown,
            detail: error.to_string(),
        }),
        Err(_) => Err(FetchError::Timeout {
            url: shown,
            limit: limits.total,
        }),
    }
}

fn read_blocking(path: PathBuf, spool_dir: Option<&Path>, limit: u64) -> Result<Body, FetchError> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FetchError::FileNotFound(shown(&path)),
        _ => FetchError::FileUnreadable {
            path: shown(&path),
            detail: error.to_string(),
        },
    };
    // Looked at before it is opened: opening a named pipe would wait for its writer.
    let metadata = path.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        let detail = "it is no regular file".to_owned();
        return Err(FetchError::FileUnreadable {
            path: shown(&path),
            detail,
        });
    }
    if metadata.len() > limit {
        return Err(FetchError::TooLarge {
            what: shown(&path),
            limit,
            seen: metadata.len(),
            validators: Validators::default(),
        });
    }
    let mut file = File::open(&path).map_err(unreadable)?;
    let mut spool = Spool::new(spool_dir, limit);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return spool.finish(Validators::default()),
            Ok(count) => spool.push(&buffer[..count], || shown(&path))?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
}

fn shown(path: &Path) -> String {
    const SHOWN_BYTES: usize = 1024;
    truncate(&printable(&path.display().to_string()), SHOWN_BYTES)
}
