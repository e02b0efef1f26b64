use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::rc::Rc;

/// State shared by the reader below a parser and the consumer above it.
#[derive(Debug, Default)]
pub(super) struct Meter {
    since_progress: Cell<u64>,
    fault: RefCell<Option<ReadFault>>,
}

#[derive(Debug)]
pub(super) enum ReadFault {
    Read(io::Error),
    NotUtf8,
    NulByte,
    /// The parser read more than [`super::DecodeLimits::max_bytes_without_progress`] without an event.
    NoProgress,
}

impl Meter {
    pub(super) fn reset(&self) {
        self.since_progress.set(0);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.fault.borrow().is_some()
    }

    pub(super) fn take_fault(&self) -> Option<ReadFault> {
        self.fault.borrow_mut().take()
    }

    fn fail(&self, fault: ReadFault) {
        *self.fault.borrow_mut() = Some(fault);
    }
}

/// A reader that stops at the limit on bytes without progress.
pub(super) struct Metered<R> {
    input: R,
    limit: u64,
    meter: Rc<Meter>,
}

impl<R: Read> Metered<R> {
    pub(super) const fn new(input: R, limit: u64, meter: Rc<Meter>) -> Self {
        Self { input, limit, meter }
    }
}

impl<R: Read> Read for Metered<R> {
    /// Never fails: a fault looks like the end of the input and is stored in the meter.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The limit bounds memory, so counting whole reads is precise enough.
        let since_progress = self.meter.since_progress.get();
        if self.meter.has_failed() {
            return Ok(0);
        }
        if since_progress > self.limit {
            self.meter.fail(ReadFault::NoProgress);
            return Ok(0);
        }
        loop {
            match self.input.read(buffer) {
                Ok(count) => {
                    self.meter.since_progress.set(since_progress + count as u64);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.meter.fail(ReadFault::Read(error));
                    return Ok(0);
                }
            }
        }
    }
}

/// Decodes UTF-8 for the YAML parser, one character at a time.
pub(super) struct Characters<R> {
    input: Metered<R>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl<R: Read> Characters<R> {
    pub(super) fn new(input: Metered<R>) -> Self {
        const BUFFER: usize = 64 * 1024;
        Self {
            input,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    fn refill(&mut self) -> bool {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let count = self.input.read(&mut self.buffer[self.end..]).unwrap_or(0);
        self.end += count;
        count > 0
    }

    fn fail(&mut self, fault: ReadFault) -> Option<char> {
        self.start = self.end;
        self.input.meter.fail(fault);
        None
    }

    #[cold]
    fn next_rare(&mut self) -> Option<char> {
        if self.start == self.end && (self.input.meter.has_failed() || !self.refill()) {
            return None;
        }
        let length = match self.buffer[self.start] {
            // YAML does not allow NUL, which the parser would take for the end.
            0 => return self.fail(ReadFault::NulByte),
            0x01..=0x7f => 1,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return self.fail(ReadFault::NotUtf8),
        };
        while self.end - self.start < length {
            if !self.refill() {
                return self.fail(ReadFault::NotUtf8);
            }
        }
        let bytes = &self.buffer[self.start..self.start + length];
        match std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next()) {
            Some(character) => {
                self.start += length;
                Some(character)
            }
            None => self.fail(ReadFault::NotUtf8),
        }
    }
}

impl<R: Read> Iterator for Characters<R> {
    type Item = char;

    #[inline]
    fn next(&mut self) -> Option<char> {
        if self.start < self.end {
            let byte = self.buffer[self.start];
            if byte.wrapping_sub(1) < 0x7f {
                self.start += 1;
                return Some(char::from(byte));
            }
        }
        self.next_rare()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct OneByOne<'a>(&'a [u8]);

    impl Read for OneByOne<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(1).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(bytes: &[u8]) -> (String, Option<ReadFault>) {
        let meter = Rc::new(Meter::default());
        let text = Characters::new(Metered::new(OneByOne(bytes), u64::MAX, Rc::clone(&meter))).collect();
        (text, meter.take_fault())
    }

    proptest! {
        #[test]
        fn valid_text_is_unchanged(text in "[^\\x00]*") {
            let (read, fault) = read(text.as_bytes());
            prop_assert_eq!(read, text);
            prop_assert!(fault.is_none());
        }

        #[test]
        fn invalid_utf_8_ends_in_a_fault(bytes in proptest::collection::vec(1u8.., 0..40)) {
            let (read, fault) = read(&bytes);
            match std::str::from_utf8(&bytes) {
                Ok(text) => prop_assert_eq!(read, text),
                Err(error) => {
                    prop_assert_eq!(read.as_bytes(), &bytes[..error.valid_up_to()]);
                    prop_assert!(matches!(fault, Some(ReadFault::NotUtf8)));
                }
            }
        }
    }

    #[test]
    fn reading_without_progress_ends_at_the_limit() {
        let meter = Rc::new(Meter::default());
        let mut characters = Characters::new(Metered::new(io::repeat(b'a'), 1 << 20, Rc::clone(&meter)));
        let count = characters.by_ref().count();
        assert!((1 << 20..2 << 20).contains(&count), "{count}");
        assert!(matches!(meter.take_fault(), Some(ReadFault::NoProgress)));
    }

    #[test]
    fn a_nul_byte_is_rejected() {
        assert!(matches!(read(b"a\0b"), (text, Some(ReadFault::NulByte)) if text == "a"));
    }
}
