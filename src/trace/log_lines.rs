//! The log of a test.

use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};

/// The lines that this thread logs. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct LogLines(Arc<Mutex<Vec<u8>>>);

/// Ends the log when it is dropped.
pub(crate) struct Logging {
    _current: DefaultGuard,
    _second: Dispatch,
}

impl LogLines {
    pub(crate) fn start(level: Level) -> (Self, Logging) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = || {
            let writer = writer.clone();
            let builder = tracing_subscriber::fmt().with_ansi(false).with_max_level(level);
            Dispatch::new(builder.with_writer(move || writer.clone()).finish())
        };
        // With a single subscriber, tracing caches the interest of the first thread that logs, which may belong to another
        // test without a subscriber. With two, it asks both.
        let logging = Logging {
            _second: subscriber(),
            _current: tracing::dispatcher::set_default(&subscriber()),
        };
        (log, logging)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }
}

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
