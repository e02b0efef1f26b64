use std::cell::{Cell, RefCell};
use std::io::{self, Read};

/// Observations of a [`LimitedReader`], for callers that only see the errors of the readers above it.
#[derive(Debug, Default)]
pub(super) struct ReadStatus {
    is_limit_exceeded: Cell<bool>,
    error: RefCell<Option<io::Error>>,
}

impl ReadStatus {
    pub(super) fn is_limit_exceeded(&self) -> bool {
        self.is_limit_exceeded.get()
    }

    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.error.borrow_mut().take()
    }
}

pub(super) struct LimitedReader<'m, R> {
    input: R,
    left: u64,
    meter: &'m ReadStatus,
}

impl<'m, R: Read> LimitedReader<'m, R> {
    pub(super) const fn new(input: R, limit: u64, meter: &'m ReadStatus) -> Self {
        Self {
            input,
            left: limit,
            meter,
        }
    }

    fn fail(&self, error: io::Error) -> io::Error {
        let copy = io::Error::new(error.kind(), error.to_string());
        *self.meter.error.borrow_mut() = Some(error);
        copy
    }
}

impl<R: Read> Read for LimitedReader<'_, R> {
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
                self.meter.is_limit_exceeded.set(true);
                Err(io::Error::other("it is larger than allowed"))
            }
        }
    }
}
