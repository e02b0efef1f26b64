use std::io::{BufReader, Write};
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
pub struct ProcessLimits {
    /// Memory besides the program and the stack.
    pub memory: u64,
    pub stack: usize,
}

/// Answers requests on standard input until it closes, within limits that cannot be raised again.
pub fn serve(limits: ProcessLimits, handler: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static) -> io::Result<()> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    run_on_socket(&socket, limits.stack, move || limit_process(limits.memory), handler)
}

/// Reads on this thread and works on another, so that the end of the input ends the process whatever the work does.
pub(super) fn run_on_socket(
    socket: &UnixStream,
    stack: usize,
    limit: impl FnOnce() -> io::Result<()> + Send + 'static,
    mut handler: impl FnMut(Vec<u8>) -> Vec<u8> + Send + 'static,
) -> io::Result<()> {
    const FRAMING: Framing = Framing::LengthPrefix;
    let (requests, received) = mpsc::sync_channel::<Vec<u8>>(0);
    let mut output = ClosedOnDrop(socket.try_clone()?);
    let worker = thread::Builder::new().name("worker".to_owned()).stack_size(stack);
    worker.spawn(move || {
        let answered = limit().and_then(|()| {
            let mut requests = received.into_iter();
            requests.try_for_each(|request| FRAMING.write(&mut output, &handler(request)))
        });
        if let Err(error) = answered {
            eprintln!("{error}");
        }
    })?;
    let mut input = BufReader::new(socket);
    loop {
        match FRAMING.read(&mut input, MAX_REQUEST) {
            Ok(request) => requests.send(request).map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
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

fn limit_process(memory: u64) -> io::Result<()> {
    let fixed = |value: u64| Rlimit {
        current: Some(value),
        maximum: Some(value),
    };
    let status = fs::read_to_string("/proc/self/status")?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = size.and_then(|size| size.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let kib = kib.ok_or_else(|| io::Error::other("no VmSize in /proc/self/status"))?;
    setrlimit(Resource::As, fixed(kib * 1024 + memory))?;
    setrlimit(Resource::Fsize, fixed(0))?;
    setrlimit(Resource::Core, fixed(0))?;
    Ok(setrlimit(Resource::Nofile, fixed(0))?)
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
