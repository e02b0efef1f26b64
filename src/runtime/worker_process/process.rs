//! The parent's side of one child.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio_util::sync::CancellationToken;

use super::{Program, WorkerError, frame};
use crate::text::{printable, truncate};

/// Interval between checks for cancellation.
const POLL: Duration = Duration::from_millis(100);
/// Maximum length of a response: the child may be under the control of its input.
const MAX_RESPONSE: usize = 1024 * 1024;
const MAX_LAST_WORDS: u64 = 4096;
const NAME: &str = "portolan-worker";

/// glibc would otherwise reserve address space for each thread, which counts against the limit of the child.
const ENVIRONMENT: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "1"), ("MALLOC_TRIM_THRESHOLD_", "131072")];

/// A running child, killed on drop.
pub(super) struct Process {
    child: Mutex<Child>,
    socket: UnixStream,
}

impl Process {
    pub(super) fn start(program: &Program) -> io::Result<Self> {
        let (socket, end) = UnixStream::pair()?;
        socket.set_read_timeout(Some(POLL))?;
        socket.set_write_timeout(Some(POLL))?;
        let child = Command::new(&program.path)
            .arg0(NAME)
            .args(&program.arguments)
            .env_clear()
            .envs(ENVIRONMENT)
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(end.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(end)))
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Self {
            child: Mutex::new(child),
            socket,
        })
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.child.lock().try_wait(), Ok(None))
    }

    #[cfg(test)]
    pub(super) fn id(&self) -> u32 {
        self.child.lock().id()
    }

    #[cfg(test)]
    pub(super) fn kill(&self) {
        let mut child = self.child.lock();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Returns the resident memory without the program's own pages, which all processes of the program share.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.lock().id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib * 1024)
    }

    pub(super) fn call(
        &mut self,
        request: &[u8],
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Result<Vec<u8>, WorkerError> {
        let mut bounded = BoundedSocket {
            socket: &self.socket,
            deadline,
            cancel,
            stopped: None,
        };
        let response = frame::write(&mut bounded, request).and_then(|()| frame::read(&mut bounded, MAX_RESPONSE));
        match (response, bounded.stopped) {
            (Ok(response), _) => Ok(response),
            (Err(_), Some(stopped)) => Err(stopped),
            (Err(error), None) => Err(self.cause(&error)),
        }
    }

    /// Returns the reason why a child ended or broke the protocol.
    fn cause(&mut self, error: &io::Error) -> WorkerError {
        let mut child = self.child.lock();
        if error.kind() == io::ErrorKind::InvalidData {
            return WorkerError::Failed(error.to_string());
        }
        // The child has closed the socket, so it has ended or is about to.
        let _ = child.kill();
        let Ok(status) = child.wait() else {
            return WorkerError::Failed(error.to_string());
        };
        let mut last_words = Vec::new();
        if let Some(stderr) = child.stderr.take() {
            let _ = stderr.take(MAX_LAST_WORDS).read_to_end(&mut last_words);
        }
        classify(status, &String::from_utf8_lossy(&last_words))
    }
}

/// Distinguishes limits from faults by the messages of Rust's runtime, since both end with SIGABRT.
fn classify(status: ExitStatus, last_words: &str) -> WorkerError {
    const SHOWN_BYTES: usize = 200;
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return WorkerError::Cpu;
    }
    if last_words.contains("memory allocation of") {
        return WorkerError::Memory;
    }
    if last_words.contains("has overflowed its stack") {
        return WorkerError::Stack;
    }
    let last_words = truncate(&printable(last_words.trim()), SHOWN_BYTES);
    WorkerError::Failed(if last_words.is_empty() {
        status.to_string()
    } else {
        format!("{status}: {last_words}")
    })
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut child = self.child.lock();
        // Fails only if it has already ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The socket, until the deadline or cancellation.
struct BoundedSocket<'a> {
    socket: &'a UnixStream,
    deadline: Instant,
    cancel: &'a CancellationToken,
    stopped: Option<WorkerError>,
}

impl BoundedSocket<'_> {
    fn repeat(&mut self, mut operation: impl FnMut(&UnixStream) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            let stopped = if self.cancel.is_cancelled() {
                Some(WorkerError::Canceled)
            } else if Instant::now() >= self.deadline {
                Some(WorkerError::Deadline)
            } else {
                None
            };
            if stopped.is_some() {
                self.stopped = stopped;
                return Err(io::ErrorKind::TimedOut.into());
            }
            match operation(self.socket) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                result => return result,
            }
        }
    }
}

impl Read for BoundedSocket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.repeat(|mut socket| socket.read(buffer))
    }
}

impl Write for BoundedSocket<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.repeat(|mut socket| socket.write(buffer))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
