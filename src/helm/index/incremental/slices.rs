//! The versions of one chart, text by text.

use std::io::{self, Read};

use memchr::memmem;

/// Bytes of one version, with the blank lines behind it. The largest known has 20 KB.
pub(super) const SLICE_BYTES: usize = 1024 * 1024;
const READ: usize = 64 * 1024;

/// Reads the versions of a chart one by one from its text.
pub(super) struct Slices<'b, R> {
    input: R,
    buffer: &'b mut Vec<u8>,
    /// Of the version that comes next.
    start: usize,
    /// What stands in front of each version but the first.
    border: memmem::Finder<'static>,
    is_at_end: bool,
}

/// Why there is no next one.
#[derive(Debug)]
pub(super) enum NoSlice {
    TooLarge,
    Read(io::Error),
}

impl<'b, R: Read> Slices<'b, R> {
    /// `input` gives the text of a chart whose versions begin at `column`, its key included. The buffer only saves allocations.
    pub(super) fn new(input: R, column: usize, buffer: &'b mut Vec<u8>) -> Self {
        buffer.clear();
        let border = format!("\n{}-", " ".repeat(column));
        Self {
            input,
            buffer,
            start: 0,
            border: memmem::Finder::new(border.as_bytes()).into_owned(),
            is_at_end: false,
        }
    }

    /// Passes over the line of the key.
    pub(super) fn begin(&mut self) -> Result<(), NoSlice> {
        self.start = match self.find(0)? {
            Some(end) => end,
            None => self.buffer.len(),
        };
        Ok(())
    }

    /// The next version.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, NoSlice> {
        let start = self.start;
        if start == self.buffer.len() && (self.is_at_end || self.read()? == 0) {
            return Ok(None);
        }
        let end = self.find(self.start)?.unwrap_or(self.buffer.len());
        // Reading on may have moved it to the front.
        let start = std::mem::replace(&mut self.start, end);
        Ok(Some(&self.buffer[start..end]))
    }

    /// Where the version behind this place begins.
    fn find(&mut self, from: usize) -> Result<Option<usize>, NoSlice> {
        let mut searched = from;
        loop {
            if let Some(place) = self.border.find(&self.buffer[searched..]) {
                return Ok(Some(searched + place + 1));
            }
            if self.is_at_end {
                return Ok(None);
            }
            if self.buffer.len() - self.start > SLICE_BYTES {
                return Err(NoSlice::TooLarge);
            }
            let had = self.buffer.len() - self.start;
            self.read()?;
            // A border may lie across the end of what was there.
            searched = had.saturating_sub(self.border.needle().len());
        }
    }

    /// Reads on, after what is not needed any more is gone. What is left begins at 0 then.
    fn read(&mut self) -> Result<usize, NoSlice> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let had = self.buffer.len();
        let mut part = (&mut self.input).take(READ as u64);
        let count = part.read_to_end(self.buffer).map_err(NoSlice::Read)?;
        self.is_at_end = self.buffer.len() == had;
        Ok(count)
    }
}
