//! The bytes of an index, metered, and as characters.

use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::rc::Rc;

/// What the reading end of a parser knows and its consuming end asks for. A parser stands between the two, so they share it.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Bytes read since the consumer last had something of them.
    unbroken: Cell<u64>,
    fault: RefCell<Option<Fault>>,
}

/// Why no more bytes come.
#[derive(Debug)]
pub(super) enum Fault {
    Read(io::Error),
    NotUtf8,
    NulByte,
    /// The parser took more than [`super::DecodeLimits::unbroken_bytes`] without anything coming of it.
    Unbroken,
}

impl Meter {
    /// Something came of the bytes so far.
    pub(super) fn reset(&self) {
        self.unbroken.set(0);
    }

    /// Whether reading has ended for a reason that is not the end of the index.
    pub(super) fn has_failed(&self) -> bool {
        self.fault.borrow().is_some()
    }

    pub(super) fn take_fault(&self) -> Option<Fault> {
        self.fault.borrow_mut().take()
    }

    fn fail(&self, fault: Fault) {
        *self.fault.borrow_mut() = Some(fault);
    }
}

/// Counts what is read, and ends it at a limit.
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
    /// Never fails: a fault ends the bytes and is kept in the meter, typed.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // Counted in whole reads: the limit is a bound on memory and need not be sharp.
        let unbroken = self.meter.unbroken.get();
        if self.meter.has_failed() {
            return Ok(0);
        }
        if unbroken > self.limit {
            self.meter.fail(Fault::Unbroken);
            return Ok(0);
        }
        loop {
            match self.input.read(buffer) {
                Ok(count) => {
                    self.meter.unbroken.set(unbroken + count as u64);
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.meter.fail(Fault::Read(error));
                    return Ok(0);
                }
            }
        }
    }
}

/// The characters of a metered input: what the YAML parser reads, one at a time. Nothing but the buffer is held.
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

    /// Moves what is left to the front and reads behind it. False at the end.
    fn refill(&mut self) -> bool {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let count = self.input.read(&mut self.buffer[self.end..]).unwrap_or(0);
        self.end += count;
        count > 0
    }

    fn fail(&mut self, fault: Fault) -> Option<char> {
        self.start = self.end;
        self.input.meter.fail(fault);
        None
    }

    /// A character of more than one byte, and all that is rare.
    #[cold]
    fn next_rare(&mut self) -> Option<char> {
        if self.start == self.end && (self.input.meter.has_failed() || !self.refill()) {
            return None;
        }
        let length = match self.buffer[self.start] {
            // YAML allows no NUL, and to the parser it would look like the end.
            0 => return self.fail(Fault::NulByte),
            0x01..=0x7f => 1,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return self.fail(Fault::NotUtf8),
        };
        while self.end - self.start < length {
            if !self.refill() {
                return self.fail(Fault::NotUtf8);
            }
        }
        let bytes = &self.buffer[self.start..self.start + length];
        match std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next()) {
            Some(character) => {
                self.start += length;
                Some(character)
            }
            None => self.fail(Fault::NotUtf8),
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

    /// Hands out one byte at a time, so that every character of more bytes stands across two reads.
    struct OneByOne<'a>(&'a [u8]);

    impl Read for OneByOne<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(1).min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn read(bytes: &[u8]) -> (String, Option<Fault>) {
        let meter = Rc::new(Meter::default());
        let text = Characters::new(Metered::new(OneByOne(bytes), u64::MAX, Rc::clone(&meter))).collect();
        (text, meter.take_fault())
    }

    proptest! {
        #[test]
        fn text_comes_out_as_it_went_in(text in "[^\\x00]*") {
            let (read, fault) = read(text.as_bytes());
            prop_assert_eq!(read, text);
            prop_assert!(fault.is_none());
        }

        #[test]
        fn bytes_that_are_no_text_end_in_a_fault(bytes in proptest::collection::vec(1u8.., 0..40)) {
            let (read, fault) = read(&bytes);
            match std::str::from_utf8(&bytes) {
                Ok(text) => prop_assert_eq!(read, text),
                Err(error) => {
                    prop_assert_eq!(read.as_bytes(), &bytes[..error.valid_up_to()]);
                    prop_assert!(matches!(fault, Some(Fault::NotUtf8)));
                }
            }
        }
    }

    #[test]
    fn reading_on_without_anything_coming_of_it_ends_at_the_limit() {
        let meter = Rc::new(Meter::default());
        let mut characters = Characters::new(Metered::new(io::repeat(b'a'), 1 << 20, Rc::clone(&meter)));
        let count = characters.by_ref().count();
        assert!((1 << 20..2 << 20).contains(&count), "{count}");
        assert!(matches!(meter.take_fault(), Some(Fault::Unbroken)));
    }

    #[test]
    fn a_nul_byte_is_refused() {
        assert!(matches!(read(b"a\0b"), (text, Some(Fault::NulByte)) if text == "a"));
    }
}
