use std::io::{self, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio_util::sync::CancellationToken;

use super::{ProcessUsage, Program, RunningProcesses, WorkerError};
use crate::text::{printable, truncate};

/// Interval between checks for cancellation and of memory.
const POLL: Duration = Duration::from_millis(50);
const MAX_LAST_WORDS: u64 = 4096;

/// A running child, killed on drop.
pub(super) struct Process {
    child: Mutex<Child>,
    socket: UnixStream,
    running: Arc<RunningProcesses>,
    calls: u32,
}

impl Process {
    pub(super) fn start(program: &Program, running: &Arc<RunningProcesses>) -> io::Result<Self> {
        let path = program.paths.iter().find(|path| path.is_file());
        let path = path.ok_or(io::ErrorKind::NotFound)?;
        let (socket, end) = UnixStream::pair()?;
        socket.set_read_timeout(Some(POLL))?;
        socket.set_write_timeout(Some(POLL))?;
        let child = Command::new(path)
            .arg0(program.name)
            .args(&program.arguments)
            .env_clear()
            .envs(program.environment.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(end.try_clone()?)))
            .stdout(Stdio::from(OwnedFd::from(end)))
            .stderr(Stdio::piped())
            .spawn()?;
        running.lock().insert(child.id());
        Ok(Self {
            child: Mutex::new(child),
            socket,
            running: Arc::clone(running),
            calls: 0,
        })
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.child.lock().try_wait(), Ok(None))
    }

    pub(super) fn id(&self) -> u32 {
        self.child.lock().id()
    }

    #[cfg(test)]
    pub(super) fn kill(&self) {
        let mut child = self.child.lock();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(super) const fn is_new(&self) -> bool {
        self.calls == 0
    }

    pub(super) fn usage(&self) -> ProcessUsage {
        ProcessUsage {
            calls: self.calls,
            memory: resident_bytes(self.id()),
        }
    }

    pub(super) fn call(
        &mut self,
        program: &Program,
        request: &[u8],
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> Result<Vec<u8>, WorkerError> {
        self.calls = self.calls.saturating_add(1);
        let bounded = BoundedSocket {
            socket: &self.socket,
            deadline,
            cancel,
            memory: program.max_memory.map(|limit| (self.id(), limit)),
            next_check: Instant::now() + POLL,
            stopped: None,
        };
        let mut bounded = BufReader::new(bounded);
        let framing = program.framing;
        let response = (framing.write(bounded.get_mut(), request))
            .and_then(|()| framing.read(&mut bounded, program.max_response))
            .and_then(|response| match bounded.buffer() {
                [] => Ok(response),
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "more than one response")),
            });
        match (response, bounded.into_inner().stopped) {
            (Ok(response), _) => Ok(response),
            (Err(_), Some(stopped)) => Err(stopped),
            (Err(error), None) => Err(self.cause(&error)),
        }
    }

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

/// Returns the resident memory without the program's own pages, which all processes of the program share.
pub(super) fn resident_bytes(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Reads the messages of the runtimes of Rust and Go, which end by SIGABRT or with the same code at limits and faults.
fn classify(status: ExitStatus, last_words: &str) -> WorkerError {
    const SHOWN_BYTES: usize = 200;
    const OUT_OF_MEMORY: [&str; 4] = [
        "memory allocation of",
        "out of memory",
        "cannot allocate memory",
        "C malloc failed",
    ];
    const STACK_OVERFLOW: [&str; 2] = ["has overflowed its stack", "goroutine stack exceeds"];
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return WorkerError::Cpu;
    }
    if OUT_OF_MEMORY.iter().any(|words| last_words.contains(words)) {
        return WorkerError::Memory;
    }
    if STACK_OVERFLOW.iter().any(|words| last_words.contains(words)) {
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
        self.running.lock().remove(&child.id());
        // Fails only if it has already ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

struct BoundedSocket<'a> {
    socket: &'a UnixStream,
    deadline: Instant,
    cancel: &'a CancellationToken,
    /// The process and its limit.
    memory: Option<(u32, u64)>,
    next_check: Instant,
    stopped: Option<WorkerError>,
}

impl BoundedSocket<'_> {
    fn repeat(&mut self, mut operation: impl FnMut(&UnixStream) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            self.stopped = self.check_limits();
            if self.stopped.is_some() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match operation(self.socket) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                result => return result,
            }
        }
    }

    fn check_limits(&mut self) -> Option<WorkerError> {
        let now = Instant::now();
        if self.cancel.is_cancelled() {
            return Some(WorkerError::Canceled);
        }
        if now >= self.deadline {
            return Some(WorkerError::Deadline);
        }
        let (process, limit) = self.memory.filter(|_| now >= self.next_check)?;
        self.next_check = now + POLL;
        let is_exceeded = resident_bytes(process).is_some_and(|bytes| bytes > limit);
        is_exceeded.then_some(WorkerError::Memory)
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
