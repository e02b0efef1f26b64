use std::io::{self, Read};

use memchr::memmem;

/// Maximum size of one version with the blank lines after it. The largest known version has 20 KB.
pub(super) const MAX_VERSION_BYTES: usize = 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;

pub(super) struct VersionSlices<'b, R> {
    input: R,
    buffer: &'b mut Vec<u8>,
    start: usize,
    boundary: memmem::Finder<'static>,
    is_at_end: bool,
}

#[derive(Debug)]
pub(super) enum SliceError {
    TooLarge,
    Read(io::Error),
}

impl<'b, R: Read> VersionSlices<'b, R> {
    /// `input` is the text of a chart including its key, with versions at `column`. Reusing `buffer` saves allocations.
    pub(super) fn new(input: R, column: usize, buffer: &'b mut Vec<u8>) -> Self {
        buffer.clear();
        let boundary = format!("\n{}-", " ".repeat(column));
        Self {
            input,
            buffer,
            start: 0,
            boundary: memmem::Finder::new(boundary.as_bytes()).into_owned(),
            is_at_end: false,
        }
    }

    pub(super) fn begin(&mut self) -> Result<(), SliceError> {
        self.start = match self.find(0)? {
            Some(end) => end,
            None => self.buffer.len(),
        };
        Ok(())
    }

    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, SliceError> {
        let start = self.start;
        if start == self.buffer.len() && (self.is_at_end || self.read()? == 0) {
            return Ok(None);
        }
        let end = self.find(self.start)?.unwrap_or(self.buffer.len());
        // A read may have moved the version to the front.
        let start = std::mem::replace(&mut self.start, end);
        Ok(Some(&self.buffer[start..end]))
    }

    fn find(&mut self, from: usize) -> Result<Option<usize>, SliceError> {
        let mut searched = from;
        loop {
            if let Some(place) = self.boundary.find(&self.buffer[searched..]) {
                return Ok(Some(searched + place + 1));
            }
            if self.is_at_end {
                return Ok(None);
            }
            if self.buffer.len() - self.start > MAX_VERSION_BYTES {
                return Err(SliceError::TooLarge);
            }
            let unread = self.buffer.len() - self.start;
            self.read()?;
            // A boundary may be split across two reads.
            searched = unread.saturating_sub(self.boundary.needle().len());
        }
    }

    /// Drops consumed bytes, so that the rest starts at 0, and reads more.
    fn read(&mut self) -> Result<usize, SliceError> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let length = self.buffer.len();
        let mut part = (&mut self.input).take(READ_BYTES as u64);
        let count = part.read_to_end(self.buffer).map_err(SliceError::Read)?;
        self.is_at_end = self.buffer.len() == length;
        Ok(count)
    }
}
