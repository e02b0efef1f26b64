//! Child processes and temporary directories that end with the test process, even if it is killed.
//!
//! A background shell, the *reaper*, reads from a pipe which children run and which directories exist. The pipe closes
//! when the test process ends; the reaper then ends the children and deletes the directories.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use super::eventually::eventually;

const REAPER: &str = r#"
trap '' INT TERM HUP
running= directories=
while read -r what value; do
    case $what in
    run) running="$running $value" ;;
    end) kept=; for each in $running; do [ "${each%:*}" = "$value" ] || kept="$kept $each"; done; running=$kept ;;
    directory) directories="$directories $value" ;;
    esac
done
for each in $running; do kill -"${each#*:}" "${each%:*}" 2>/dev/null; done
for each in $running; do
    tries=0
    while kill -0 "${each%:*}" 2>/dev/null && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
done
[ -z "$directories" ] || rm -rf $directories
"#;

/// A shell that outlives the test process for a moment.
pub struct Reaper(Mutex<ChildStdin>);

impl Reaper {
    /// Starts a reaper; it acts when the value is dropped or the process ends.
    #[expect(clippy::zombie_processes, reason = "the reaper outlives this process")]
    pub fn start() -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", REAPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0) // an interrupt from the terminal is for the tests only
            .spawn()
            .expect("sh starts");
        Self(Mutex::new(shell.stdin.take().expect("stdin is piped")))
    }

    /// Ends a process by `signal` when this process ends.
    pub fn watch(&self, pid: u32, signal: &str) {
        self.send(&format!("run {pid}:{signal}"));
    }

    fn send(&self, order: &str) {
        let mut pipe = self.0.lock().expect("no panic while writing to the reaper");
        writeln!(pipe, "{order}").expect("the reaper reads as long as this process lives");
    }
}

static PROCESS_REAPER: LazyLock<Reaper> = LazyLock::new(Reaper::start);

/// A child process, ended on drop and with the test process.
pub struct Process {
    child: Child,
    signal: &'static str,
}

impl Process {
    /// Starts the command; `signal` (`KILL`, `QUIT`, …) ends it.
    pub fn spawn(command: &mut Command, signal: &'static str) -> Self {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("failed to start {}: {error}", command.get_program().display()));
        PROCESS_REAPER.watch(child.id(), signal);
        Self { child, signal }
    }

    /// Returns the child, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status if the process has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the state of a child is available")
    }

    /// Waits for its exit.
    pub async fn wait(&mut self, deadline: Duration) -> ExitStatus {
        eventually(deadline, "the process to exit", async || self.exit_status()).await
    }

    /// Sends a signal by its short name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([format!("-{name}"), self.id().to_string()])
            .status();
        assert!(
            sent.expect("kill can be run").success(),
            "SIG{name} reaches process {}",
            self.id()
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(self.signal);
            let _ = self.child.wait();
        }
        PROCESS_REAPER.send(&format!("end {}", self.id()));
    }
}

/// A process that a child started, ended with the test process.
pub struct Watched(u32);

impl Watched {
    pub fn new(pid: u32) -> Self {
        PROCESS_REAPER.watch(pid, "KILL");
        Self(pid)
    }
}

impl Drop for Watched {
    /// Its parent has ended it.
    fn drop(&mut self) {
        PROCESS_REAPER.send(&format!("end {}", self.0));
    }
}

/// A directory below the system's temporary directory, accessible to other users; deleted on drop and with the test
/// process.
pub struct ScratchDir(tempfile::TempDir);

impl ScratchDir {
    pub fn new(name: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix(&format!("portolan-{name}-"))
            .tempdir()
            .expect("a temporary directory");
        PROCESS_REAPER.send(&format!("directory {}", directory.path().display()));
        Self(directory)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns the path of a file or directory in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file in it and returns the path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, content).expect("the directory is writable");
        path
    }
}
