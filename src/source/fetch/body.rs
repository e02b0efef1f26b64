//! A body that has arrived whole, hashed on the way, in memory or in an unlinked temporary file.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use tempfile::SpooledTempFile;

use super::{FetchError, Limits, Validators};

/// Bodies up to this many bytes stay in memory.
const IN_MEMORY: usize = 1024 * 1024;

/// A body that has arrived whole.
#[derive(Debug)]
pub struct Body {
    /// How many bytes it has, after decompression.
    pub bytes: u64,
    /// SHA-256 of its bytes, in lower-case hex.
    pub sha256: String,
    /// What the server said of it.
    pub validators: Validators,
    file: SpooledTempFile,
}

impl Body {
    /// Its bytes from the start; they can be read again by seeking.
    pub fn into_reader(self) -> impl Read + Seek + Send + 'static {
        self.file
    }
}

/// Takes a body in, piece by piece.
pub(super) struct Spool {
    file: SpooledTempFile,
    hash: Sha256,
    bytes: u64,
    max_bytes: u64,
}

impl Spool {
    pub(super) fn new(folder: Option<&Path>, max_bytes: u64) -> Self {
        let file = match folder {
            Some(folder) => tempfile::spooled_tempfile_in(IN_MEMORY, folder),
            None => tempfile::spooled_tempfile(IN_MEMORY),
        };
        Self {
            file,
            hash: Sha256::new(),
            bytes: 0,
            max_bytes,
        }
    }

    /// Adds a piece. What goes to a file goes into the system's cache first, so this takes microseconds and needs no thread
    /// of its own.
    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), FetchError> {
        self.bytes += piece.len() as u64;
        if self.bytes > self.max_bytes {
            return Err(FetchError::TooLarge {
                limit: self.max_bytes,
                seen: self.bytes,
            });
        }
        self.hash.update(piece);
        self.file
            .write_all(piece)
            .map_err(|source| FetchError::Spool { source })
    }

    pub(super) fn finish(mut self, validators: Validators) -> Result<Body, FetchError> {
        self.file.rewind().map_err(|source| FetchError::Spool { source })?;
        let sha256 = crate::source::hex(&self.hash.finalize());
        Ok(Body {
            bytes: self.bytes,
            sha256,
            validators,
            file: self.file,
        })
    }
}

/// Reads a file as if it had been fetched. The bytes are copied, so that a file that is being edited is judged by one state of it.
///
/// # Errors
/// There is no such file, it can't be read, or it is over the limit.
pub async fn read_file(path: &Path, limits: &Limits) -> Result<Body, FetchError> {
    let (path, max_bytes) = (path.to_owned(), limits.max_bytes);
    let reading = tokio::task::spawn_blocking(move || {
        let unreadable = |source: io::Error| FetchError::File {
            path: path.display().to_string(),
            source,
        };
        let mut file = File::open(&path).map_err(unreadable)?;
        let mut spool = Spool::new(None, max_bytes);
        let mut piece = vec![0; 64 * 1024];
        loop {
            match file.read(&mut piece).map_err(unreadable)? {
                0 => return spool.finish(Validators::default()),
                count => spool.push(&piece[..count])?,
            }
        }
    });
    match reading.await {
        Ok(body) => body,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
