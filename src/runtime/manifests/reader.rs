//! Looking at the folder: what stands in it at a moment. Nothing is made of it here.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{REQUESTS, is_object_name};
use crate::api::NamespacedName;

/// A manifest is written by people: what is larger is something else.
pub const MAX_FILE: u64 = 4 << 20;

/// The bytes of all manifests together.
const MAX_TOTAL: u64 = 64 << 20;

/// The manifests in a folder.
const MAX_FILES: usize = 10_000;

/// The entries of directories that are looked at, manifests or not.
const MAX_ENTRIES: usize = 100_000;

/// How deep directories may be nested.
const MAX_DEPTH: usize = 16;

/// A request for a resync is a time or a random text.
const MAX_TOKEN: u64 = 256;

/// What stood in the folder when it was looked at.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The manifests, by their paths below the folder: the bytes, or why they could not be read.
    pub files: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
    /// What could not be looked at; if there is anything, a file that is not in `files` may exist all the same.
    pub unread: BTreeMap<PathBuf, String>,
    /// Requests for a resync.
    pub requests: BTreeMap<NamespacedName, String>,
}

/// Looks at the folder. Fails if it is not there or can't be listed.
pub fn read(folder: &Path) -> io::Result<Snapshot> {
    Ok(walk(folder, true)?.snapshot)
}

/// Returns a hash of the metadata of all files that [`read`] looks at. Opens none of them: while the hash stays, there is nothing
/// new to read.
pub fn fingerprint(folder: &Path) -> io::Result<u64> {
    Ok(walk(folder, false)?.metadata.finish())
}

fn walk(folder: &Path, opens_files: bool) -> io::Result<Reader<'_>> {
    let mut reader = Reader {
        snapshot: Snapshot::default(),
        visited: HashSet::new(),
        entries: 0,
        bytes: 0,
        folder,
        opens_files,
        metadata: DefaultHasher::new(),
    };
    reader.directory(Path::new(""), 0)?;
    reader.requests();
    Ok(reader)
}

struct Reader<'a> {
    folder: &'a Path,
    snapshot: Snapshot,
    /// Directories by their real paths, since links may lead in a circle.
    visited: HashSet<PathBuf>,
    entries: usize,
    bytes: u64,
    opens_files: bool,
    metadata: DefaultHasher,
}

impl Reader<'_> {
    fn directory(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        let full = self.folder.join(path);
        if !self.visited.insert(full.canonicalize()?) {
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(&full)? {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                self.unread(path, format!("there are more than {MAX_ENTRIES} files in the folder"));
                break;
            }
            names.push(entry?.file_name());
        }
        // Hidden entries are not for us, and in a mounted ConfigMap they are its older and newer versions.
        names.retain(|name| !name.as_encoded_bytes().starts_with(b"."));
        names.sort();
        for name in names {
            self.entry(&path.join(name), depth);
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, depth: usize) {
        // Links are followed: in a mounted ConfigMap everything is one.
        match self.metadata(path) {
            Ok(metadata) if metadata.is_dir() && depth >= MAX_DEPTH => {
                self.unread(path, format!("directories are nested deeper than {MAX_DEPTH}"));
            }
            Ok(metadata) if metadata.is_dir() => {
                if let Err(error) = self.directory(path, depth + 1) {
                    self.unread(path, format!("the directory can't be read: {error}"));
                }
            }
            Ok(metadata) if metadata.is_file() && is_manifest(path) => self.file(path),
            Ok(_) => {}
            Err(error) if is_manifest(path) => self.broken_entry(path, &error),
            Err(error) => tracing::debug!(file = %path.display(), %error, "skipping unreadable file"),
        }
    }

    fn metadata(&mut self, path: &Path) -> io::Result<fs::Metadata> {
        let metadata = fs::metadata(self.folder.join(path));
        // The change time tells of writes that set the time of modification back.
        let seen = metadata.as_ref().map_err(io::Error::kind);
        let seen = seen.map(|file| (file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()));
        (path, seen).hash(&mut self.metadata);
        metadata
    }

    /// A name whose file can't be looked at: gone since the directory was read, or a link that leads nowhere.
    fn broken_entry(&mut self, path: &Path, error: &io::Error) {
        let is_link = fs::symlink_metadata(self.folder.join(path)).is_ok();
        if is_link || error.kind() != io::ErrorKind::NotFound {
            self.snapshot
                .files
                .insert(path.to_owned(), Err(format!("it can't be read: {error}")));
        }
    }

    fn file(&mut self, path: &Path) {
        if self.snapshot.files.len() >= MAX_FILES {
            self.unread(
                Path::new(""),
                format!("there are more than {MAX_FILES} manifests in the folder"),
            );
            return;
        }
        let content = match self.content(path, MAX_FILE) {
            Ok(content) if content.len() as u64 > MAX_FILE => Err(format!("it is larger than {MAX_FILE} bytes")),
            Ok(content) if self.bytes + content.len() as u64 > MAX_TOTAL => {
                Err(format!("all manifests together are larger than {MAX_TOTAL} bytes"))
            }
            Ok(content) => Ok(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => Err(format!("it can't be read: {error}")),
        };
        self.bytes += content.as_ref().map_or(0, |content| content.len() as u64);
        self.snapshot.files.insert(path.to_owned(), content);
    }

    fn content(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        if self.opens_files {
            capped(&self.folder.join(path), limit)
        } else {
            Ok(Vec::new())
        }
    }

    /// Reads the requests for a resync: `NAMESPACE/NAME` below the directory of requests. What can't be read is not a request.
    fn requests(&mut self) {
        for namespace in object_names(&self.folder.join(REQUESTS)) {
            let directory = Path::new(REQUESTS).join(&namespace);
            for name in object_names(&self.folder.join(&directory)) {
                let path = directory.join(&name);
                if self.metadata(&path).is_err() {
                    continue;
                }
                let token = self.content(&path, MAX_TOKEN).unwrap_or_default();
                let token = String::from_utf8_lossy(&token).trim().to_owned();
                if !token.is_empty() {
                    let namespace = namespace.clone();
                    self.snapshot.requests.insert(NamespacedName { namespace, name }, token);
                }
            }
        }
    }

    fn unread(&mut self, path: &Path, why: String) {
        self.snapshot.unread.insert(path.to_owned(), why);
    }
}

/// Whether the name is that of a manifest. What editors leave beside a file (`a.yaml~`, `a.yaml.swp`, `#a.yaml#`) is none.
fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["yaml", "yml", "json"]
        .iter()
        .any(|manifest| extension.eq_ignore_ascii_case(manifest))
}

/// The file's bytes, one more than the limit at most.
pub fn capped(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path)?.take(limit + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// The names in a directory that may name an object or a namespace.
fn object_names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().take(MAX_FILES);
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_object_name(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file.as_bytes()).unwrap();
        }
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        read(folder)
            .unwrap()
            .files
            .keys()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn manifests_are_found_in_directories_and_hidden_and_temporary_files_are_not() {
        let folder = folder(&[
            "b.yml",
            "a.yaml",
            "c.JSON",
            "sub/deep/d.yaml",
            "a.yaml~",
            ".a.yaml.swp",
            ".#a.yaml",
            "#a.yaml#",
            "4913",
            "notes.md",
            ".git/e.yaml",
            ".portolan/f.yaml",
        ]);
        assert_eq!(names(folder.path()), ["a.yaml", "b.yml", "c.JSON", "sub/deep/d.yaml"]);
        assert_eq!(
            read(folder.path()).unwrap().files[Path::new("a.yaml")],
            Ok(b"a.yaml".to_vec())
        );
    }

    #[test]
    fn a_mounted_config_map_is_read_through_its_links() {
        let folder = folder(&["..2026_1/a.yaml", "..2026_1/sub/b.yaml", "..2026_2/a.yaml"]);
        symlink("..2026_1", folder.path().join("..data")).unwrap();
        symlink("..data/a.yaml", folder.path().join("a.yaml")).unwrap();
        symlink("..data/sub", folder.path().join("sub")).unwrap();
        assert_eq!(names(folder.path()), ["a.yaml", "sub/b.yaml"]);
        assert_eq!(
            read(folder.path()).unwrap().files[Path::new("a.yaml")],
            Ok(b"..2026_1/a.yaml".to_vec())
        );

        symlink("..2026_2", folder.path().join("..data_tmp")).unwrap();
        fs::rename(folder.path().join("..data_tmp"), folder.path().join("..data")).unwrap();
        let snapshot = read(folder.path()).unwrap();
        assert_eq!(snapshot.files[Path::new("a.yaml")], Ok(b"..2026_2/a.yaml".to_vec()));
    }

    #[test]
    fn links_that_lead_nowhere_or_in_a_circle_are_survived() {
        let folder = folder(&["a.yaml", "sub/b.yaml"]);
        symlink("nowhere.yaml", folder.path().join("c.yaml")).unwrap();
        symlink("..", folder.path().join("sub/up")).unwrap();
        symlink("nowhere", folder.path().join("d")).unwrap();
        let snapshot = read(folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["a.yaml", "c.yaml", "sub/b.yaml"]);
        assert!(snapshot.files[Path::new("c.yaml")].is_err());
        assert!(snapshot.unread.is_empty());
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read_whole() {
        let folder = folder(&[]);
        fs::File::create(folder.path().join("a.yaml"))
            .unwrap()
            .set_len(MAX_FILE + 1)
            .unwrap();
        fs::File::create(folder.path().join("b.yaml"))
            .unwrap()
            .set_len(MAX_FILE)
            .unwrap();
        let files = read(folder.path()).unwrap().files;
        assert!(files[Path::new("a.yaml")].as_ref().unwrap_err().contains("larger"));
        assert!(files[Path::new("b.yaml")].is_ok());
    }

    #[test]
    fn a_directory_that_is_too_deep_is_said_to_be_unread() {
        let path = format!("{}a.yaml", "d/".repeat(MAX_DEPTH + 1));
        let snapshot = read(folder(&[&path]).path()).unwrap();
        assert!(snapshot.files.is_empty());
        assert_eq!(snapshot.unread.len(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert!(read(Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn a_fingerprint_stays_until_a_file_or_a_request_is_written() {
        let folder = folder(&["a.yaml", "sub/b.yaml"]);
        let name = NamespacedName {
            namespace: "team-a".to_owned(),
            name: "charts".to_owned(),
        };
        let mut seen = HashSet::new();
        let mut is_new = || {
            read(folder.path()).unwrap();
            let fingerprint = fingerprint(folder.path()).unwrap();
            assert_eq!(super::fingerprint(folder.path()).unwrap(), fingerprint);
            seen.insert(fingerprint)
        };
        assert!(is_new());
        assert!(!is_new());
        fs::write(folder.path().join("sub/b.yaml"), "longer than before").unwrap();
        assert!(is_new());
        fs::rename(folder.path().join("a.yaml"), folder.path().join("c.yaml")).unwrap();
        assert!(is_new());
        crate::runtime::manifests::request_resync(folder.path(), &name, "now").unwrap();
        assert!(is_new());
        assert!(!is_new());
    }

    #[test]
    fn requests_are_read_by_name() {
        let folder = folder(&[]);
        let name = NamespacedName {
            namespace: "team-a".to_owned(),
            name: "charts".to_owned(),
        };
        crate::runtime::manifests::request_resync(folder.path(), &name, " now \n").unwrap();
        crate::runtime::manifests::request_resync(folder.path(), &name, "later").unwrap();
        fs::write(folder.path().join(REQUESTS).join("team-a").join("..odd"), "x").unwrap();
        assert_eq!(
            read(folder.path()).unwrap().requests,
            BTreeMap::from([(name, "later".to_owned())])
        );
    }
}
