//! The spool of rendered indexes: unlinked temporary files, charged to two budgets.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::indexes::RenderError;
use crate::budget::{self, Budget, Reservation};

/// Flux refuses a larger index.
const MAX_INDEX_BYTES: u64 = 50 << 20;
/// Bytes that are reserved at once.
const STEP: u64 = 256 << 10;

pub(super) struct IndexSpool {
    /// Of all temporary files of the process.
    spool: Budget,
    /// Half of it: downloads need the other half, and can't wait.
    indexes: Budget,
    directory: Option<PathBuf>,
}

/// Returned with the last reader of the file.
struct Charge {
    spool: Reservation,
    indexes: Reservation,
}

impl IndexSpool {
    pub(super) fn new(spool: Budget, directory: Option<PathBuf>, metrics: &budget::Metrics) -> Self {
        let limit = spool.limit() / 2;
        Self {
            indexes: Budget::with_metrics("helm_indexes", limit, metrics.of("helm_indexes", limit)),
            spool,
            directory,
        }
    }

    fn charge(&self, namespace: &str, bytes: u64) -> Option<Charge> {
        Some(Charge {
            indexes: self.indexes.try_share(namespace, bytes)?,
            spool: self.spool.try_reserve_more(namespace, bytes)?,
        })
    }

    fn create(&self) -> io::Result<File> {
        match &self.directory {
            Some(directory) => tempfile::tempfile_in(directory),
            None => tempfile::tempfile(),
        }
    }
}

/// Drops another index: of the namespace, or else of all if the second argument is true. Returns false if there is none.
pub(super) type MakeRoom<'a> = dyn Fn(&str, bool) -> bool + Send + Sync + 'a;

/// Writes an index, and its compressed form after it.
pub(super) struct SpoolWriter<'a> {
    spool: &'a IndexSpool,
    make_room: &'a MakeRoom<'a>,
    namespace: &'a str,
    file: Arc<File>,
    bytes: u64,
    max_bytes: u64,
    charge: Charge,
}

impl<'a> SpoolWriter<'a> {
    pub(super) fn new(
        spool: &'a IndexSpool,
        namespace: &'a str,
        make_room: &'a MakeRoom<'a>,
    ) -> Result<Self, RenderError> {
        let file = spool.create().map_err(|error| {
            tracing::warn!(%error, "failed to create a temporary file, see --spool-dir");
            RenderError::Spool
        })?;
        Ok(Self {
            spool,
            make_room,
            namespace,
            file: Arc::new(file),
            bytes: 0,
            max_bytes: MAX_INDEX_BYTES,
            charge: spool.charge(namespace, 0).ok_or(RenderError::SpoolFull)?,
        })
    }

    /// Compresses what was written.
    pub(super) fn finish(mut self) -> io::Result<RenderedIndex> {
        let plain = self.bytes;
        let mut source = FileRange {
            file: Arc::clone(&self.file),
            position: 0,
            end: plain,
        };
        // Content that can't be compressed grows by a few bytes for each block.
        self.max_bytes = 2 * MAX_INDEX_BYTES + STEP;
        let mut gzip = GzEncoder::new(&mut self, Compression::fast());
        io::copy(&mut source, &mut gzip)?;
        gzip.finish()?;
        let total = self.bytes;
        self.charge.spool.shrink(total);
        self.charge.indexes.shrink(total);
        Ok(RenderedIndex {
            file: self.file,
            plain,
            total,
            charge: Arc::new(self.charge),
        })
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), RenderError> {
        if bytes > self.max_bytes {
            return Err(RenderError::TooLarge);
        }
        while bytes > self.charge.spool.amount() {
            match self.spool.charge(self.namespace, STEP) {
                Some(Charge { spool, indexes }) => {
                    self.charge.spool.absorb(spool);
                    self.charge.indexes.absorb(indexes);
                }
                None => {
                    // Above the share of a namespace, it would not help to drop those of others.
                    let of_others = self.spool.indexes.can_share(self.namespace, STEP);
                    if !(self.make_room)(self.namespace, of_others) {
                        return Err(RenderError::SpoolFull);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Wraps each [`RenderError`] in an `io::Error`.
impl Write for SpoolWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.bytes + bytes.len() as u64;
        self.reserve(end).map_err(io::Error::other)?;
        self.file.write_all_at(bytes, self.bytes)?;
        self.bytes = end;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An index in the spool. Its file lives until the last reader has ended, also if it was replaced.
pub(super) struct RenderedIndex {
    file: Arc<File>,
    plain: u64,
    total: u64,
    charge: Arc<Charge>,
}

impl RenderedIndex {
    /// Returns a reader of the plain or of the compressed form, and its length.
    pub(super) fn reader(&self, is_compressed: bool) -> (impl Read + Send + use<>, u64) {
        let (start, end) = if is_compressed {
            (self.plain, self.total)
        } else {
            (0, self.plain)
        };
        let range = FileRange {
            file: Arc::clone(&self.file),
            position: start,
            end,
        };
        let reader = ChargedReader {
            range,
            _charge: Arc::clone(&self.charge),
        };
        (reader, end - start)
    }
}

struct ChargedReader {
    range: FileRange,
    _charge: Arc<Charge>,
}

impl Read for ChargedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.range.read(buffer)
    }
}

/// Reads a part of a file with a position of its own.
struct FileRange {
    file: Arc<File>,
    position: u64,
    end: u64,
}

impl Read for FileRange {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.position).unwrap_or(usize::MAX);
        let length = left.min(buffer.len());
        let part = buffer.get_mut(..length).unwrap_or_default();
        let count = self.file.read_at(part, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use flate2::read::GzDecoder;

    use super::*;

    fn spool(limit: u64) -> IndexSpool {
        IndexSpool::new(Budget::new("spool", limit), None, &budget::Metrics::default())
    }

    fn nothing_to_drop(_: &str, _: bool) -> bool {
        false
    }

    fn text(mut reader: impl Read) -> String {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn both_forms_are_read_from_one_file_and_give_their_bytes_back() {
        let spool = spool(1 << 30);
        let mut writer = SpoolWriter::new(&spool, "team-a", &nothing_to_drop).unwrap();
        let content = "an index ".repeat(10_000);
        writer.write_all(content.as_bytes()).unwrap();
        let index = writer.finish().unwrap();
        let (plain, bytes) = index.reader(false);
        assert_eq!(bytes, content.len() as u64);
        let (gzip, compressed) = index.reader(true);
        assert!(compressed < bytes / 10, "{compressed}");
        assert_eq!(spool.spool.used(), bytes + compressed);
        // A reader holds the file of an index that was dropped.
        drop(index);
        assert_eq!(text(plain), content);
        assert_eq!(text(GzDecoder::new(gzip)), content);
        assert_eq!((spool.spool.used(), spool.indexes.used()), (0, 0));
    }

    #[test]
    fn an_index_above_the_limit_is_refused() {
        let spool = spool(1 << 30);
        let mut writer = SpoolWriter::new(&spool, "team-a", &nothing_to_drop).unwrap();
        writer.max_bytes = 10;
        writer.write_all(b"0123456789").unwrap();
        let error = writer.write_all(b"0").unwrap_err();
        assert_eq!(error.downcast::<RenderError>().unwrap(), RenderError::TooLarge);
    }

    #[test]
    fn others_are_dropped_while_the_spool_is_short() {
        let spool = spool(8 * STEP);
        let held = std::sync::Mutex::new(vec![
            spool.charge("team-b", STEP).unwrap(),
            spool.charge("team-b", STEP).unwrap(),
        ]);
        let make_room = |_: &str, _: bool| held.lock().unwrap().pop().is_some();
        let mut writer = SpoolWriter::new(&spool, "team-a", &make_room).unwrap();
        writer.write_all(&vec![0; 512 << 10]).unwrap();
        assert!(held.lock().unwrap().len() < 2);
        let error = writer.write_all(&vec![0; 512 << 10]).unwrap_err();
        assert_eq!(error.downcast::<RenderError>().unwrap(), RenderError::SpoolFull);
    }

    #[test]
    fn others_are_not_dropped_for_an_index_above_the_share_of_a_namespace() {
        let spool = spool(8 * STEP);
        let make_room = |_: &str, of_others: bool| {
            assert!(!of_others);
            false
        };
        let mut writer = SpoolWriter::new(&spool, "team-a", &make_room).unwrap();
        let error = writer.write_all(&vec![0; 768 << 10]).unwrap_err();
        assert_eq!(error.downcast::<RenderError>().unwrap(), RenderError::SpoolFull);
    }
}
