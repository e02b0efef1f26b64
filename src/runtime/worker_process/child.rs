//! The child's side.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::frame::Framing;

/// Maximum length of a request, far above the memory that the child has for it.
const MAX_REQUEST: usize = 256 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory besides the program and the stack.
    pub memory: u64,
    pub stack: usize,
}

/// Answers requests on standard input until it closes, within limits that cannot be raised again.
pub fn serve(limits: Limits, handler: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static) -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    run_on_socket(
        &socket,
        limits.stack,
        move || limit_process(ADDRESS_SPACE, limits.memory, 0),
        handler,
    )
}

pub(super) fn run_on_socket(
    socket: &UnixStream,
    stack: usize,
    limit: impl FnOnce() -> io::Result<()> + Send + 'static,
    handler: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static,
) -> io::Result<()> {
    let streams = Streams {
        framing: Framing::LengthPrefix,
        max_request: MAX_REQUEST,
        input: BufReader::new(socket),
        output: ClosedOnDrop(socket.try_clone()?),
    };
    streams.run(stack, Duration::ZERO, limit, handler)
}

/// Answers lines on standard input until it closes, within limits that cannot be raised again.
///
/// For a program with another runtime, such as Go's, which reserves address space and may need a few descriptors. Work in
/// progress has `grace` to end, so that a user can pipe requests in.
pub fn serve_lines(
    limits: Limits,
    max_request: usize,
    grace: Duration,
    handler: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static,
) -> io::Result<()> {
    const OPEN_FILES: u64 = 16;
    let streams = Streams {
        framing: Framing::Lines,
        max_request,
        input: io::stdin().lock(),
        output: io::stdout(),
    };
    streams.run(
        limits.stack,
        grace,
        move || limit_process(DATA, limits.memory, OPEN_FILES),
        handler,
    )
}

struct Streams<I, O> {
    framing: Framing,
    max_request: usize,
    input: I,
    output: O,
}

impl<I: BufRead, O: Write + Send + 'static> Streams<I, O> {
    /// Reads on this thread and works on another, so that the end of the input ends the process whatever the work does.
    fn run(
        mut self,
        stack: usize,
        grace: Duration,
        limit: impl FnOnce() -> io::Result<()> + Send + 'static,
        mut handler: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static,
    ) -> io::Result<()> {
        let (requests, received) = mpsc::sync_channel::<Vec<u8>>(0);
        let (running, ended) = mpsc::channel::<()>();
        let worker = thread::Builder::new().name("worker".to_owned()).stack_size(stack);
        let (framing, mut output) = (self.framing, self.output);
        worker.spawn(move || {
            let _running = running;
            let answered = limit().and_then(|()| {
                let mut requests = received.into_iter();
                requests.try_for_each(|request| framing.write(&mut output, &handler(request)))
            });
            if let Err(error) = answered {
                eprintln!("{error}");
            }
        })?;
        loop {
            match framing.read(&mut self.input, self.max_request) {
                Ok(request) => requests.send(request).map_err(io::Error::other)?,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
                Err(error) => return Err(error),
            }
        }
        drop(requests);
        // Either the worker has ended or the grace has passed.
        let _ = ended.recv_timeout(grace);
        Ok(())
    }
}

/// Tells the parent, and the reader of this process, that the worker thread has ended.
struct ClosedOnDrop(UnixStream);

impl Write for ClosedOnDrop {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.0.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ClosedOnDrop {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A resource and its current use in `/proc/self/status`.
const ADDRESS_SPACE: (Resource, &str) = (Resource::As, "VmSize:");
/// Counts memory that can be written, and not what is only reserved.
const DATA: (Resource, &str) = (Resource::Data, "VmData:");

fn limit_process((resource, used): (Resource, &str), memory: u64, open_files: u64) -> io::Result<()> {
    let fixed = |value: u64| Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    let status = fs::read_to_string("/proc/self/status")?;
    let size = status.lines().find_map(|line| line.strip_prefix(used));
    let kib = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let kib = kib.ok_or_else(|| io::Error::other(format!("no {used} in /proc/self/status")))?;
    setrlimit(resource, fixed(kib * 1024 + memory))?;
    setrlimit(Resource::Fsize, fixed(0))?;
    setrlimit(Resource::Core, fixed(0))?;
    Ok(setrlimit(Resource::Nofile, fixed(open_files))?)
}

/// Ends this process after `more` CPU time.
pub fn limit_cpu(more: Duration) -> io::Result<()> {
    let used = clock_gettime(ClockId::ProcessCPUTime).tv_sec.unsigned_abs();
    let limit = Rlimit {
        current: Some(used + more.as_secs() + 1),
        maximum: getrlimit(Resource::Cpu).maximum,
    };
    Ok(setrlimit(Resource::Cpu, limit)?)
}
