//! Child processes and scratch folders that end with the test process, even when that is killed.
//!
//! A shell in the background, the *reaper*, reads from a pipe which child runs and which folder exists. The pipe closes
//! when the test process ends, in whatever way; the reaper then ends the children and removes the folders.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use super::eventually::eventually;

const REAPER: &str = r#"
trap '' INT TERM HUP
running= folders=
while read -r what value; do
    case $what in
    run) running="$running $value" ;;
    end) kept=; for each in $running; do [ "${each%:*}" = "$value" ] || kept="$kept $each"; done; running=$kept ;;
    folder) folders="$folders $value" ;;
    esac
done
for each in $running; do kill -"${each#*:}" "${each%:*}" 2>/dev/null; done
for each in $running; do
    tries=0
    while kill -0 "${each%:*}" 2>/dev/null && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
done
[ -z "$folders" ] || rm -rf $folders
"#;

/// The shell that outlives the test process for a moment.
pub struct Reaper(Mutex<ChildStdin>);

impl Reaper {
    /// Starts a reaper; it acts when the value is dropped or the process ends.
    #[expect(
        clippy::zombie_processes,
        reason = "it ends after this process, which so cannot wait for it"
    )]
    pub fn start() -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", REAPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0) // an interrupt typed at a terminal is for the tests, not for it
            .spawn()
            .expect("sh starts");
        Self(Mutex::new(shell.stdin.take().expect("stdin is piped")))
    }

    /// Has the process ended by `signal` when this process ends.
    pub fn watch(&self, pid: u32, signal: &str) {
        self.tell(&format!("run {pid}:{signal}"));
    }

    fn tell(&self, order: &str) {
        let mut pipe = self.0.lock().expect("no panic while writing to the reaper");
        writeln!(pipe, "{order}").expect("the reaper reads as long as this process lives");
    }
}

static PROCESS_REAPER: LazyLock<Reaper> = LazyLock::new(Reaper::start);

/// A child process, ended when it is dropped and when the test process ends.
pub struct Process {
    child: Child,
    signal: &'static str,
}

impl Process {
    /// Starts the command; `signal` (`KILL`, `QUIT`, …) is what ends it.
    pub fn spawn(command: &mut Command, signal: &'static str) -> Self {
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", command.get_program().display()));
        PROCESS_REAPER.watch(child.id(), signal);
        Self { child, signal }
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the process has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked for its state")
    }

    /// Waits for its end.
    pub async fn wait(&mut self, deadline: Duration) -> ExitStatus {
        eventually(deadline, "a process to end", async || self.exit_status()).await
    }

    /// Sends a signal by its short name, `TERM` for example.
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
        PROCESS_REAPER.tell(&format!("end {}", self.id()));
    }
}

/// A folder under the system's temporary folder, where another user may reach it too; removed when it is dropped and when
/// the test process ends.
pub struct ScratchFolder(tempfile::TempDir);

impl ScratchFolder {
    /// A new empty folder.
    pub fn new(name: &str) -> Self {
        let folder = tempfile::Builder::new()
            .prefix(&format!("portolan-{name}-"))
            .tempdir()
            .expect("a temporary folder");
        PROCESS_REAPER.tell(&format!("folder {}", folder.path().display()));
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A file or folder in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Writes a file into it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, content).expect("a scratch folder can be written");
        path
    }
}
