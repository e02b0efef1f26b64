//! The archive of a bundle: bounded parts, redacted before they are cut.

use std::io::{self, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use tempfile::NamedTempFile;

use super::redact::redact;
use crate::cmd::Error;
use crate::text::sanitize;

/// The size limit of a part, in bytes. With the number of parts it bounds the archive.
const MAX_PART: usize = 4 << 20;

pub struct BundlePart {
    name: String,
    /// Redacted and cut.
    text: String,
    /// The note about a part that is cut.
    cut: Option<String>,
    error: Option<String>,
}

impl BundlePart {
    pub fn new(name: impl Into<String>, text: impl AsRef<str>) -> Self {
        // A cut secret could not be recognized.
        let mut text = redact(text.as_ref());
        let is_cut = text.len() > MAX_PART;
        if is_cut {
            text.truncate(text.floor_char_boundary(MAX_PART));
            text.push_str("\n(cut at 4 MiB)\n");
        }
        Self {
            name: name.into(),
            text,
            cut: is_cut.then(|| "cut at 4 MiB".to_owned()),
            error: None,
        }
    }

    /// Says in the index what the part lacks.
    pub fn cut(self, note: Option<String>) -> Self {
        let notes: Vec<String> = note.into_iter().chain(self.cut).collect();
        Self {
            cut: Some(notes.join(", ")).filter(|notes| !notes.is_empty()),
            ..self
        }
    }

    pub fn failed(name: impl Into<String>, error: Error) -> Self {
        let message = redact(&sanitize(&error.into_message()));
        Self {
            name: name.into(),
            text: format!("error: {message}\n"),
            cut: None,
            error: Some(message),
        }
    }

    pub fn summary(&self) -> String {
        match (&self.error, &self.cut) {
            (None, None) => format!("ok       {}", self.name),
            (None, Some(cut)) => format!("cut      {}: {cut}", self.name),
            (Some(error), _) => format!("missing  {}: {error}", self.name),
        }
    }
}

/// Writes a file that only its owner can read, and replaces `path` by it at the end.
pub fn write_file(path: &Path, parts: &[BundlePart], now: Timestamp) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let mut file = NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    write(&mut file, parts, now)?;
    file.persist(path)?;
    Ok(())
}

pub fn write(out: impl Write, parts: &[BundlePart], now: Timestamp) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    let index: Vec<String> = parts.iter().map(BundlePart::summary).collect();
    append(&mut archive, "index.txt", &(index.join("\n") + "\n"), now)?;
    for part in parts {
        append(&mut archive, &part.name, &part.text, now)?;
    }
    archive.into_inner()?.finish()?.flush()
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, text: &str, now: Timestamp) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o600);
    header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
    header.set_cksum();
    archive.append_data(&mut header, format!("portolan-debug/{name}"), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn parts_are_redacted_before_they_are_cut() {
        let padding = MAX_PART - 30;
        let text = format!("{} password=hunter2hunter2hunter2hunter2", "x".repeat(padding));
        let part = BundlePart::new("a.txt", text);
        assert!(!part.text.contains("hunter2"), "{}", &part.text[padding..]);
        assert!(part.text.len() <= MAX_PART + 20);
    }

    #[test]
    fn the_index_says_what_is_cut() {
        let part = BundlePart::new("a.txt", "x".repeat(MAX_PART + 1));
        assert_eq!(part.summary(), "cut      a.txt: cut at 4 MiB");
        let part = part.cut(Some("500 of 600 objects".to_owned()));
        assert_eq!(part.summary(), "cut      a.txt: 500 of 600 objects, cut at 4 MiB");
        assert_eq!(BundlePart::new("b.txt", "").cut(None).summary(), "ok       b.txt");
    }

    #[test]
    fn an_archive_lists_its_parts_and_their_errors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bundle.tar.gz");
        let failed = BundlePart::failed(
            "b.txt",
            Error::Failed("no route to https://me:hunter2@host/x?y".to_owned()),
        );
        write_file(&path, &[BundlePart::new("a.txt", "text\n"), failed], Timestamp::now()).unwrap();
        let mut archive = tar::Archive::new(GzDecoder::new(std::fs::File::open(&path).unwrap()));
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (entry.path().unwrap().display().to_string(), text)
        });
        let expected = [
            (
                "portolan-debug/index.txt",
                "ok       a.txt\nmissing  b.txt: no route to https://host/x\n",
            ),
            ("portolan-debug/a.txt", "text\n"),
            ("portolan-debug/b.txt", "error: no route to https://host/x\n"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(entries.collect::<Vec<_>>(), expected);
    }
}
