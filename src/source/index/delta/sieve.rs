//! An index is cut while it comes, and of its bytes only those are kept that are not known.
//!
//! ```text
//!  bytes, as they come ─► cutter ─► charts with digests ─┬─ known: nothing of them is kept
//!       │                                                └─ else: their text is kept ─► Sifted
//!       └─ in another style: the whole is needed, of which nothing is there
//! ```
//! A text is kept while its chart is open, since its digest is known only at its end; what comes after a known one takes its place.
//! So what is kept is what has changed and one chart, in memory up to 256 KiB and in a file without a name beyond that; beside it the
//! line or text that is not over, and what stands around the charts.

use std::io::{self, Cursor, Read, Seek, SeekFrom, Write as _};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memchr::memrchr;
use tempfile::SpooledTempFile;

use super::cut::{self, BUFFER, Cut, NotCut};
use super::{Known, Rules, json};
use crate::source::index::{DecodeLimits, Start};
use crate::source::spool::spool;

/// Bytes that are added to what could not be cut alone.
pub(super) const STEP: usize = 1024;
/// What nobody asks for but by a defect, which the whole does not have.
pub(super) const NOT_KEPT: io::ErrorKind = io::ErrorKind::InvalidInput;
/// Bytes that may stand before the index, which are all white.
const BLANK: usize = 4096;

/// Cuts an index that comes piece by piece.
pub struct Sieve {
    known: Arc<Known>,
    limits: DecodeLimits,
    rules: Rules,
    cutter: Cutter,
    /// What was not cut alone.
    pending: Vec<u8>,
    /// How much of that there was when it was tried last.
    tried: usize,
    /// How many bytes are added before it is tried again, at least.
    step: usize,
    /// Where that begins.
    base: u64,
    kept: Kept,
}

enum Cutter {
    /// The index has not begun.
    Start,
    Yaml(Box<cut::Cutter<Arc<Known>>>),
    Json(Box<json::Cutter<Arc<Known>>>),
    /// It is in another style.
    Style,
}

/// An index that was cut, and the text of what is not known of it.
pub struct Sifted {
    pub(super) cuts: Vec<Cut>,
    /// Whether it is written in JSON.
    pub is_json: bool,
    pub(super) texts: Texts,
}

impl Sieve {
    /// For an index of which this is known. Text goes into a file of `spool_dir`, or of the system's folder for such files.
    #[must_use]
    pub fn new(known: Arc<Known>, limits: &DecodeLimits, spool_dir: Option<&Path>) -> Self {
        Self::by(Rules::ALL, known, limits, spool_dir)
    }

    pub(super) fn by(rules: Rules, known: Arc<Known>, limits: &DecodeLimits, spool_dir: Option<&Path>) -> Self {
        Self {
            known,
            limits: *limits,
            rules,
            cutter: Cutter::Start,
            pending: Vec::new(),
            tried: 0,
            step: STEP,
            base: 0,
            kept: Kept::new(spool_dir),
        }
    }

    /// Tries again after so many bytes more what could not be cut alone, which fewer bytes make dearer: for tests, that see it cut
    /// everywhere.
    #[must_use]
    pub const fn in_steps_of(mut self, bytes: usize) -> Self {
        self.step = bytes;
        self
    }

    /// Whether the index is in another style, so that nothing comes of it and it may be dropped.
    #[must_use]
    pub const fn is_in_vain(&self) -> bool {
        matches!(self.cutter, Cutter::Style)
    }

    /// Takes the bytes that come next.
    ///
    /// # Errors
    /// What is to be kept can't be.
    pub fn take(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() && self.pending.len() <= BUFFER && !matches!(self.cutter, Cutter::Style) {
            if self.pending.is_empty() {
                let taken = self.cut(bytes)?;
                self.pending.extend_from_slice(&bytes[taken..]);
                self.tried = self.pending.len();
                break;
            }
            // No more of what comes is copied than it takes to get on; and what was tried is not tried again for a few bytes more.
            let wanted = (self.tried + self.step.max(self.tried / 4)).min(BUFFER + 1);
            let (step, rest) = bytes.split_at(bytes.len().min(wanted.saturating_sub(self.pending.len())));
            self.pending.extend_from_slice(step);
            if self.pending.len() < wanted {
                break;
            }
            let mut pending = std::mem::take(&mut self.pending);
            let before = pending.len() - step.len();
            let taken = self.cut(&pending)?;
            if taken >= before {
                bytes = &bytes[taken - before..];
            } else {
                // The byte order mark, blank lines in front, or nothing.
                pending.drain(..taken);
                (self.pending, bytes) = (pending, rest);
            }
            self.tried = self.pending.len();
        }
        if self.pending.len() > BUFFER {
            self.cutter = Cutter::Style;
        }
        if matches!(self.cutter, Cutter::Style) {
            self.pending = Vec::new();
        }
        Ok(())
    }

    /// What has come, which is all. Nothing: it has to be read as a whole.
    ///
    /// # Errors
    /// What is to be kept can't be.
    pub fn finish(mut self) -> io::Result<Option<Sifted>> {
        let mut rest = std::mem::take(&mut self.pending);
        let taken = self.cut(&rest)?;
        rest.drain(..taken);
        let (is_json, cuts) = match self.cutter {
            Cutter::Yaml(mut cutter) => {
                if cutter.take(&rest, self.base).is_err() {
                    return Ok(None);
                }
                self.kept
                    .follow(cutter.charts(), cutter.open(), &self.known, &rest, self.base)?;
                let end = self.base + rest.len() as u64;
                let cuts = cutter
                    .finish(end)
                    .and_then(|cuts| cuts.framed(&self.limits, self.rules));
                (false, cuts)
            }
            // A text that does not end is no JSON.
            Cutter::Json(cutter) if rest.is_empty() => (true, cutter.finish()),
            Cutter::Start | Cutter::Json(_) | Cutter::Style => return Ok(None),
        };
        let Ok(cuts) = cuts else { return Ok(None) };
        // The last chart of a YAML that has no foot ends only now.
        let end = cuts.last().map_or(0, |last| last.text.end);
        self.kept.follow(&cuts, None, &self.known, &[], end)?;
        Ok(Some(Sifted {
            cuts,
            is_json,
            texts: self.kept.into_texts(),
        }))
    }

    /// Cuts what stands at `base`; gives how many bytes of it need not come again.
    fn cut(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if matches!(self.cutter, Cutter::Start) {
            let offset = self.begin(bytes)?;
            if matches!(self.cutter, Cutter::Start | Cutter::Style) {
                return Ok(0);
            }
            if offset > 0 {
                self.base = offset as u64;
                return Ok(offset + self.cut(&bytes[offset..])?);
            }
        }
        let (taken, charts, open) = match &mut self.cutter {
            Cutter::Yaml(cutter) => {
                let whole = memrchr(b'\n', bytes).map_or(0, |end| end + 1);
                let taken = cutter.take(&bytes[..whole], self.base).map(|()| whole);
                (taken, cutter.charts(), cutter.open())
            }
            Cutter::Json(cutter) => {
                let taken = cutter.take(bytes, self.base);
                (taken, cutter.charts(), cutter.open())
            }
            Cutter::Start | Cutter::Style => return Ok(0),
        };
        match taken {
            Ok(taken) => {
                self.kept
                    .follow(charts, open, &self.known, &bytes[..taken], self.base)?;
                self.base += taken as u64;
                Ok(taken)
            }
            Err(NotCut::Style) => {
                self.cutter = Cutter::Style;
                Ok(0)
            }
            Err(NotCut::Read(error)) => Err(error),
        }
    }

    /// Finds out in which notation it is. Gives where the index begins.
    fn begin(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Start { offset, first } = Start::of(&mut Cursor::new(bytes))?;
        self.cutter = match first {
            // So many tell a byte order mark.
            _ if bytes.len() < 3 => Cutter::Start,
            // And two behind it an index from a page: what is shorter is no index.
            [_, None] if bytes.len() < BLANK => Cutter::Start,
            [None | Some(b'<'), _] | [_, None] => Cutter::Style,
            [Some(b'{'), _] => Cutter::Json(Box::new(json::Cutter::new(&self.limits, Arc::clone(&self.known)))),
            _ => Cutter::Yaml(Box::new(cut::Cutter::new(
                &self.limits,
                Arc::clone(&self.known),
                self.rules,
            ))),
        };
        Ok(usize::try_from(offset).unwrap_or_default())
    }
}

/// The text that is kept.
struct Kept {
    file: SpooledTempFile,
    /// Where the next text is to be put.
    end: u64,
    /// Where the texts are that are not known: of the index, and in the file.
    parts: Vec<(Range<u64>, u64)>,
    /// Charts that were looked at.
    seen: usize,
    /// Where the chart begins that is not over: of the index, and in the file.
    open: Option<(u64, u64)>,
}

impl Kept {
    fn new(spool_dir: Option<&Path>) -> Self {
        Self {
            file: spool(spool_dir),
            end: 0,
            parts: Vec::new(),
            seen: 0,
            open: None,
        }
    }

    /// Keeps what is needed of bytes that were cut, which stand at `base`.
    fn follow(&mut self, charts: &[Cut], open: Option<u64>, known: &Known, bytes: &[u8], base: u64) -> io::Result<()> {
        for cut in &charts[self.seen..] {
            let at = self.begin(cut.text.start);
            if known.has(cut) {
                self.end = at;
            } else {
                self.put(cut.text.clone(), bytes, base)?;
                self.parts.push((cut.text.clone(), at));
            }
            self.open = None;
        }
        self.seen = charts.len();
        if let Some(start) = open {
            let at = self.begin(start);
            self.put(start..base + bytes.len() as u64, bytes, base)?;
            self.open = Some((start, at));
        }
        Ok(())
    }

    /// Where the text of the chart is that begins there.
    fn begin(&self, start: u64) -> u64 {
        match self.open {
            Some((open, at)) if open == start => at,
            _ => self.end,
        }
    }

    /// Puts what there is of a text behind what was there of it before.
    fn put(&mut self, text: Range<u64>, bytes: &[u8], base: u64) -> io::Result<()> {
        let place = |at: u64| usize::try_from(at.saturating_sub(base)).map_or(bytes.len(), |at| at.min(bytes.len()));
        let piece = &bytes[place(text.start)..place(text.end)];
        if !piece.is_empty() {
            self.file.seek(SeekFrom::Start(self.end))?;
            self.file.write_all(piece)?;
            self.end += piece.len() as u64;
        }
        Ok(())
    }

    fn into_texts(self) -> Texts {
        Texts {
            file: self.file,
            parts: self.parts,
            position: 0,
        }
    }
}

/// The texts that were kept, each where it stands in the index.
pub(super) struct Texts {
    file: SpooledTempFile,
    parts: Vec<(Range<u64>, u64)>,
    position: u64,
}

impl Texts {
    /// Bytes of them.
    #[cfg(test)]
    pub(super) fn kept(&self) -> u64 {
        self.parts.iter().map(|(text, _)| text.end - text.start).sum()
    }

    #[cfg(test)]
    pub(super) fn is_in_a_file(&self) -> bool {
        self.file.is_rolled()
    }
}

impl Read for Texts {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let after = self.parts.partition_point(|(text, _)| text.start <= self.position);
        let part = after.checked_sub(1).map(|part| &self.parts[part]);
        let Some((text, at)) = part.filter(|(text, _)| text.contains(&self.position)) else {
            return Err(io::Error::new(NOT_KEPT, "a text is asked for that was not kept"));
        };
        self.file.seek(SeekFrom::Start(at + (self.position - text.start)))?;
        let count = (&mut self.file).take(text.end - self.position).read(buffer)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for Texts {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(_) => None,
        };
        self.position = position.ok_or(io::ErrorKind::Unsupported)?;
        Ok(self.position)
    }
}
