//! Response bodies: spooled, counted and hashed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tempfile::{SpooledData, SpooledTempFile};

use super::error::FetchError;
use super::{FetchLimits, Validators};
use crate::budget::{Budget, Reservation, Transfer};
use crate::text::{printable, truncate};

/// Bytes of a body that stay in memory; larger bodies go to an unlinked temporary file. Hundreds of syncs may receive one.
const MAX_IN_MEMORY: usize = 64 * 1024;

/// A complete body. Clones share its bytes; the temporary file is deleted with the last clone or reader.
#[derive(Debug, Clone)]
pub struct Body {
    /// Length after decompression.
    pub bytes: u64,
    /// SHA-256 after decompression, in hexadecimal.
    pub sha256: String,
    pub validators: Validators,
    content: Content,
    spooled: Arc<Reservation>,
}

impl Body {
    #[must_use]
    pub const fn is_in_memory(&self) -> bool {
        matches!(self.content, Content::Memory(_))
    }

    /// Returns a reader with its own position.
    #[must_use]
    pub fn into_reader(self) -> impl Read + Seek + Send + 'static {
        BodyReader {
            content: self.content,
            length: self.bytes,
            position: 0,
            _spooled: self.spooled,
        }
    }
}

#[derive(Debug, Clone)]
enum Content {
    Memory(Arc<Vec<u8>>),
    File(Arc<File>),
}

struct BodyReader {
    content: Content,
    length: u64,
    position: u64,
    /// Returned with the content.
    _spooled: Arc<Reservation>,
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &self.content {
            Content::File(file) => file.read_at(buffer, self.position)?,
            Content::Memory(bytes) => {
                let start = usize::try_from(self.position).unwrap_or(usize::MAX);
                let remaining = bytes.get(start..).unwrap_or_default();
                let count = remaining.len().min(buffer.len());
                buffer[..count].copy_from_slice(&remaining[..count]);
                count
            }
        };
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for BodyReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
        };
        let negative = || io::Error::new(io::ErrorKind::InvalidInput, "invalid seek to a negative position");
        self.position = position.ok_or_else(negative)?;
        Ok(self.position)
    }
}

/// Hashes and stores a body chunk by chunk. It writes on the asynchronous thread: a chunk of a few hundred kilobytes
/// reaches the page cache faster than another thread.
pub(super) struct BodySpool {
    /// Name of the body in errors.
    name: String,
    file: SpooledTempFile,
    hash: Sha256,
    bytes: u64,
    limit: u64,
    transfer: Transfer,
}

#[derive(Debug, Clone)]
pub(super) struct SpoolSpace {
    pub(super) directory: Option<PathBuf>,
    pub(super) budget: Budget,
}

impl SpoolSpace {
    pub(super) fn open(&self, name: String, limit: u64, namespace: &str) -> BodySpool {
        BodySpool {
            name,
            file: match &self.directory {
                Some(directory) => SpooledTempFile::new_in(MAX_IN_MEMORY, directory),
                None => SpooledTempFile::new(MAX_IN_MEMORY),
            },
            hash: Sha256::new(),
            bytes: 0,
            limit,
            transfer: self.budget.transfer(namespace),
        }
    }
}

impl BodySpool {
    /// Returns when the download is aborted in favor of another namespace.
    pub(super) fn aborted(&self) -> impl Future<Output = FetchError> + use<> {
        let aborted = self.transfer.aborted();
        async move { FetchError::SpoolFull(aborted.await) }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) -> Result<(), FetchError> {
        self.bytes += chunk.len() as u64;
        if self.bytes > self.limit {
            return Err(FetchError::TooLarge {
                name: self.name.clone(),
                limit: self.limit,
                actual: self.bytes,
                validators: Validators::default(),
            });
        }
        self.transfer.grow(chunk.len() as u64).map_err(FetchError::SpoolFull)?;
        self.hash.update(chunk);
        self.file.write_all(chunk).map_err(FetchError::Spool)
    }

    pub(super) fn finish(self, validators: Validators) -> Result<Body, FetchError> {
        let spooled = self.transfer.finish().map_err(FetchError::SpoolFull)?;
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
            spooled: Arc::new(spooled),
        })
    }
}

/// Wraps each [`FetchError`] in an `io::Error`.
impl Write for BodySpool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.push(bytes).map(|()| bytes.len()).map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) async fn read_file(
    path: &Path,
    space: &SpoolSpace,
    namespace: &str,
    limits: &FetchLimits,
) -> Result<Body, FetchError> {
    let path_text = display_path(path);
    let spool = space.open(path_text.clone(), limits.max_bytes, namespace);
    let (path, limit) = (path.to_owned(), limits.max_bytes);
    // A network file system may hang; then the thread leaks but the caller still times out.
    let reading = tokio::task::spawn_blocking(move || read_blocking(&path, spool, limit));
    match tokio::time::timeout(limits.total, reading).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => Err(FetchError::FileUnreadable {
            path: path_text,
            detail: error.to_string(),
        }),
        Err(_) => Err(FetchError::Timeout {
            url: path_text,
            limit: limits.total,
        }),
    }
}

fn read_blocking(path: &Path, mut spool: BodySpool, limit: u64) -> Result<Body, FetchError> {
    let name = display_path(path);
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FetchError::FileNotFound(name.clone()),
        _ => FetchError::FileUnreadable {
            path: name.clone(),
            detail: error.to_string(),
        },
    };
    // Checked before opening, because opening a named pipe blocks until it has a writer.
    let metadata = path.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(unreadable(io::Error::other("not a regular file")));
    }
    if metadata.len() > limit {
        return Err(FetchError::TooLarge {
            name,
            limit,
            actual: metadata.len(),
            validators: Validators::default(),
        });
    }
    let mut file = File::open(path).map_err(unreadable)?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return spool.finish(Validators::default()),
            Ok(count) => spool.push(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
}

fn display_path(path: &Path) -> String {
    const MAX_BYTES: usize = 1024;
    truncate(&printable(&path.display().to_string()), MAX_BYTES)
}
