//! The log file of `--log-file-path`.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::fmt::MakeWriter;

/// A file that is renamed to `<path>.1` at a size. Clones share it.
#[derive(Clone)]
pub struct LogFile(Arc<Mutex<State>>);

struct State {
    path: PathBuf,
    file: File,
    size: u64,
    /// 0 for no limit.
    max_size: u64,
}

impl LogFile {
    pub fn open(path: &Path, max_size: u64) -> io::Result<Self> {
        let file = open(path)?;
        Ok(Self(Arc::new(Mutex::new(State {
            path: path.to_owned(),
            size: file.metadata()?.len(),
            file,
            max_size,
        }))))
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl State {
    fn rotate(&mut self) -> io::Result<()> {
        let mut rotated = OsString::from(&self.path);
        rotated.push(".1");
        match fs::rename(&self.path, rotated) {
            Ok(()) => self.file = open(&self.path)?,
            // The directory may be read-only.
            Err(_) => self.file.set_len(0)?,
        }
        self.size = 0;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        let size = state.size.saturating_add(line.len() as u64);
        if state.max_size > 0 && size > state.max_size && state.size > 0 {
            state.rotate()?;
        }
        state.file.write_all(line)?;
        state.size += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().file.flush()
    }
}

impl MakeWriter<'_> for LogFile {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_rotated_before_it_exceeds_its_size() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("portolan.log");
        fs::write(&path, "old\n").unwrap();
        let mut file = LogFile::open(&path, 10).unwrap();
        for line in ["one\n", "two\n", "three\n"] {
            file.write_all(line.as_bytes()).unwrap();
        }
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(read(&path), "two\nthree\n");
        assert_eq!(read(&directory.path().join("portolan.log.1")), "old\none\n");
        file.write_all(b"longer than the whole file\n").unwrap();
        file.write_all(b"next\n").unwrap();
        assert_eq!(read(&path), "next\n");
    }
}
