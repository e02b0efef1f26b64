//! Reads the entries of a tar stream as Go's reader does, which Helm and Kubeapps use.
//!
//! Headers are parsed by the `tar` crate, but its iterator is not used: it buffers long names and extended headers of
//! any size, skips content that Go ignores, and mishandles newlines in extended attributes. The same archive could
//! contain different files for Helm and for Portolan.

use std::io::{self, Read};

use tar::{EntryType, Header};

use super::pax::Extended;

pub(super) const BLOCK: usize = 512;

pub(super) const EXTENSION_BYTES: u64 = 1024 * 1024;

#[derive(Debug)]
pub(super) struct TarEntry {
    pub(super) name: Vec<u8>,
    pub(super) size: u64,
    /// Not a directory, link, device, fifo or sparse file.
    pub(super) is_regular_file: bool,
}

pub(super) struct TarReader<R> {
    input: R,
    content: u64,
    padding: u64,
}

impl<R: Read> TarReader<R> {
    pub(super) const fn new(input: R) -> Self {
        Self {
            input,
            content: 0,
            padding: 0,
        }
    }

    /// Returns the next entry after applying its extension headers, or None at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<TarEntry>> {
        let mut long_name = None;
        let mut extended = Extended::default();
        while let Some(header) = self.read_header()? {
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
            // Link targets and global extended headers (git stores its commit there) are ignored.
        }
        Ok(None)
    }

    pub(super) fn read_content(&mut self) -> io::Result<Vec<u8>> {
        // The caller has checked the size. Reserving it exactly avoids growth to twice the size.
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
        self.read_content()
    }

    fn entry(&mut self, header: &Header, long_name: Option<Vec<u8>>, extended: Extended) -> io::Result<TarEntry> {
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
        Ok(TarEntry {
            name,
            size,
            is_regular_file: kind.is_file() && !extended.is_sparse,
        })
    }

    /// Skips the rest of the current entry and reads the next header. The end-of-archive mark may be missing.
    fn read_header(&mut self) -> io::Result<Option<Header>> {
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
        if !has_valid_checksum(&header) {
            return Err(io::Error::other("a tar header has an invalid checksum"));
        }
        Ok(Some(header))
    }

    fn begin_content(&mut self, size: u64) -> io::Result<()> {
        let padded = size
            .checked_next_multiple_of(BLOCK as u64)
            .filter(|padded| i64::try_from(*padded).is_ok())
            .ok_or_else(|| io::Error::other("an entry has an impossible size"))?;
        (self.content, self.padding) = (size, padded - size);
        Ok(())
    }

    /// Skips the blocks of the old GNU sparse format, which are not part of the entry's size.
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
        let skipped = io::copy(&mut (&mut self.input).take(bytes), &mut io::sink())?;
        if skipped < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

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

pub(super) fn is_header_or_end(block: &[u8]) -> bool {
    let mut header = Header::new_old();
    header.as_mut_bytes().copy_from_slice(block);
    is_zero(block) || has_valid_checksum(&header)
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

/// Verifies the header checksum. As in Go, the sum of signed bytes is accepted too.
fn has_valid_checksum(header: &Header) -> bool {
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
