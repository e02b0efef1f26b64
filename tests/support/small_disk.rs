//! A file system of a few MiB, in a mount namespace of its own.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::process::{Process, ScratchDir};

/// A file system in memory. Programs reach it by [`SmallDisk::enter`]; it ends on drop.
pub struct SmallDisk {
    holder: Process,
    directory: ScratchDir,
}

impl SmallDisk {
    pub fn new(mebibytes: u32) -> Self {
        let directory = ScratchDir::new("disk");
        let path = directory.path().display();
        let script = format!("mount -t tmpfs -o size={mebibytes}m,mode=0777 none {path} && echo mounted && exec cat");
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if !is_root() {
            command.arg("--map-root-user");
        }
        command.args(["sh", "-c", &script]);
        let mut holder = Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()), "KILL");
        let output = holder.child().stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("the pipe is open");
        assert_eq!(
            line, "mounted\n",
            "mount and user namespaces are needed: see unshare(1)"
        );
        Self { holder, directory }
    }

    /// Returns the path of a file on it, valid in the namespace.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns program and arguments that run another program in the namespace, under the same process ID.
    pub fn enter(&self) -> Vec<String> {
        let user: &[&str] = if is_root() {
            &[]
        } else {
            &["--user", "--preserve-credentials"]
        };
        let target = self.holder.id().to_string();
        let words = ["nsenter", "--target", &target, "--mount"];
        words
            .iter()
            .chain(user)
            .chain(&["--"])
            .map(|word| (*word).to_owned())
            .collect()
    }

    /// Fills the rest of the disk.
    pub fn fill(&self) {
        let mut file = File::create(self.outside("filler")).expect("the directory is writable");
        // Small pieces at the end leave no free page.
        for size in [1 << 20, 1 << 12] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Frees the space that [`SmallDisk::fill`] took.
    pub fn free(&self) {
        std::fs::remove_file(self.outside("filler")).expect("the disk was filled");
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) {
        std::fs::remove_file(self.outside(name)).expect("the file exists");
    }

    /// Returns the path outside of the namespace. The kernel follows it; programs that resolve links can't.
    fn outside(&self, name: &str) -> PathBuf {
        let inside = self.path(name);
        let inside = inside.strip_prefix("/").expect("an absolute path");
        Path::new("/proc")
            .join(self.holder.id().to_string())
            .join("root")
            .join(inside)
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id can be run");
    id.stdout == b"0\n"
}
