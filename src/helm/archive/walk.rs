//! The entries of a tar stream, one after the other, as Go's reader (which Helm and Kubeapps use) takes them.
//!
//! Headers are read by the `tar` crate. Its iterator is not used, because it gathers long names and extended headers of
//! any size in memory; because it passes over content where Go knows that there is none, so that one archive would hold
//! other files for Helm than for us; and because newlines in an extended attribute break the records behind it.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::pax::Extended;

/// Bytes of a block: headers are one, and content is filled up to whole ones.
pub(super) const BLOCK: usize = 512;

/// Bytes of a long name or of an extended header; Go's reader refuses larger ones too.
pub(super) const EXTENSION_BYTES: u64 = 1024 * 1024;

/// One entry: what is known before its content is read.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) size: u64,
    /// No folder, link, device or fifo, and nothing sparse.
    pub(super) is_plain_file: bool,
}

/// Goes from entry to entry.
pub(super) struct Walk<R> {
    input: R,
    /// Bytes of the entry's content that have not been read.
    content: u64,
    /// Bytes that fill its last block.
    padding: u64,
}

impl<R: Read> Walk<R> {
    pub(super) const fn new(input: R) -> Self {
        Self {
            input,
            content: 0,
            padding: 0,
        }
    }

    /// The next entry, with what the extension headers before it say; none at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut long_name = None;
        let mut extended = Extended::default();
        while let Some(header) = self.header()? {
            let kind = header.entry_type();
            if !(kind.is_gnu_longname() || kind.is_gnu_longlink() || is_extended(kind)) {
                return self.entry(&header, long_name, extended).map(Some);
            }
            self.begin_content(header.entry_size()?)?;
            if kind.is_gnu_longname() {
                long_name = Some(self.extension()?);
            } else if kind.is_pax_local_extensions() {
                extended = Extended::read(&self.extension()?)?;
            }
            // Where a link leads to, and what is said for all entries at once (git names its commit there), is passed over.
        }
        Ok(None)
    }

    /// The content of the entry at hand.
    pub(super) fn content(&mut self) -> io::Result<Vec<u8>> {
        // Whoever asks for it has looked at the size. As much as that and no more is taken, where growing would take up to twice
        // as much; and none of it is there before it is written to.
        let mut bytes = Vec::with_capacity(usize::try_from(self.content).unwrap_or_default());
        (&mut self.input).take(self.content).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != self.content {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.content = 0;
        Ok(bytes)
    }

    fn extension(&mut self) -> io::Result<Vec<u8>> {
        if self.content > EXTENSION_BYTES {
            return Err(io::Error::other("a name or an extended header in it is too long"));
        }
        self.content()
    }

    fn entry(&mut self, header: &Header, long_name: Option<Vec<u8>>, extended: Extended) -> io::Result<Entry> {
        let kind = header.entry_type();
        let size = match extended.size {
            _ if has_no_content(kind) => 0,
            Some(size) => size,
            None => header.entry_size()?,
        };
        if kind.is_gnu_sparse() && header.as_gnu().is_some_and(tar::GnuHeader::is_extended) {
            self.skip_sparse_map()?;
        }
        self.begin_content(size)?;
        let name = match (long_name, extended.path) {
            (Some(name), _) => up_to_nul(name),
            (None, Some(path)) => path,
            (None, None) => header.path_bytes().into_owned(),
        };
        Ok(Entry {
            name,
            size,
            is_plain_file: kind.is_file() && !extended.is_sparse,
        })
    }

    /// Passes over what is left of the entry at hand and reads the next header; none at the end, be it marked or not.
    fn header(&mut self) -> io::Result<Option<Header>> {
        self.skip(self.content + self.padding)?;
        (self.content, self.padding) = (0, 0);
        let mut header = Header::new_old();
        match self.fill(header.as_mut_bytes())? {
            0 => return Ok(None),
            BLOCK => {}
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        if is_zero(header.as_bytes()) {
            return Ok(None);
        }
        if !has_right_sum(&header) {
            return Err(io::Error::other("what should be a header of tar is none"));
        }
        Ok(Some(header))
    }

    fn begin_content(&mut self, size: u64) -> io::Result<()> {
        let whole = size
            .checked_next_multiple_of(BLOCK as u64)
            .filter(|whole| i64::try_from(*whole).is_ok())
            .ok_or_else(|| io::Error::other("an entry has a size that nothing can have"))?;
        (self.content, self.padding) = (size, whole - size);
        Ok(())
    }

    /// Blocks of the old sparse format that its size leaves out.
    fn skip_sparse_map(&mut self) -> io::Result<()> {
        const CONTINUES: usize = 504;
        let mut block = [0; BLOCK];
        loop {
            self.input.read_exact(&mut block)?;
            if block[CONTINUES] == 0 {
                return Ok(());
            }
        }
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        let mut left = bytes;
        while left > 0 {
            let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            match self.input.read(&mut buffer[..wanted])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => left -= count as u64,
            }
        }
        Ok(())
    }

    /// As many bytes as there are, up to all.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut count = 0;
        while count < buffer.len() {
            match self.input.read(&mut buffer[count..])? {
                0 => break,
                more => count += more,
            }
        }
        Ok(count)
    }
}

/// Whether a stream that begins with this block may be tar: it has a header there, or its end already.
pub(super) fn is_header_or_end(block: &[u8]) -> bool {
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(block);
    is_zero(block) || has_right_sum(&header)
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

/// The sum over a header with its own place blank. Some writers of old took bytes for signed, which Go accepts too.
fn has_right_sum(header: &Header) -> bool {
    const PLACE: std::ops::Range<usize> = 148..156;
    let bytes = || {
        let bytes = header.as_bytes().iter().enumerate();
        bytes.map(|(index, byte)| if PLACE.contains(&index) { b' ' } else { *byte })
    };
    let unsigned: i64 = bytes().map(i64::from).sum();
    let signed: i64 = bytes().map(|byte| i64::from(byte.cast_signed())).sum();
    header
        .cksum()
        .is_ok_and(|sum| i64::from(sum) == unsigned || i64::from(sum) == signed)
}

fn is_extended(kind: EntryType) -> bool {
    kind.is_pax_local_extensions() || kind.is_pax_global_extensions()
}

/// Kinds that are headers only, whatever size these state.
fn has_no_content(kind: EntryType) -> bool {
    kind.is_hard_link()
        || kind.is_symlink()
        || kind.is_character_special()
        || kind.is_block_special()
        || kind.is_dir()
        || kind.is_fifo()
}

fn up_to_nul(mut name: Vec<u8>) -> Vec<u8> {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    name.truncate(end);
    name
}
