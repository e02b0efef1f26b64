//! Bytes that are counted as they pass.

use std::cell::{Cell, RefCell};
use std::io::{self, Read};

/// What a [`Metered`] has seen, for whoever gets the errors that have passed through the readers above it.
#[derive(Debug, Default)]
pub(super) struct Meter {
    is_over: Cell<bool>,
    error: RefCell<Option<io::Error>>,
}

impl Meter {
    /// Whether there were more bytes than allowed.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Why the input could not be read, if that is what happened.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.error.borrow_mut().take()
    }
}

/// Hands on at most so many bytes, and fails when there are more.
pub(super) struct Metered<'m, R> {
    input: R,
    left: u64,
    meter: &'m Meter,
}

impl<'m, R: Read> Metered<'m, R> {
    pub(super) const fn new(input: R, limit: u64, meter: &'m Meter) -> Self {
        Self {
            input,
            left: limit,
            meter,
        }
    }

    fn fail(&self, error: io::Error) -> io::Error {
        let kind = error.kind();
        let text = error.to_string();
        *self.meter.error.borrow_mut() = Some(error);
        io::Error::new(kind, text)
    }
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = loop {
            match self.input.read(buffer) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.fail(error)),
            }
        };
        match self.left.checked_sub(count as u64) {
            Some(left) => {
                self.left = left;
                Ok(count)
            }
            None => {
                self.meter.is_over.set(true);
                Err(io::Error::other("it is larger than allowed"))
            }
        }
    }
}
