use std::{
    collections::{BTreeMap, HashSet},
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{REQUESTS, chart_index, is_object_name};
use crate::api::NamespacedName;

pub const MAX_FILE: u64 = 4 << 20;

const MAX_TOTAL: u64 = 64 << 20;

const MAX_FILES: usize = 10_000;

/// Maximum number of directory entries of any type.
const MAX_ENTRIES: usize = 100_000;

const MAX_DEPTH: usize = 16;

const MAX_TOKEN: u64 = 256;

#[derive(Debug, Default)]
pub struct Snapshot {
    /// Manifests by relative path: the content or the error.
    pub files: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
    /// Errors by relative path. If there are any, files may be missing from `files`.
    pub unread: BTreeMap<PathBuf, String>,
    pub requests: BTreeMap<NamespacedName, String>,
}

pub fn read(directory: &Path) -> io::Result<Snapshot> {
    Ok(walk(directory, true)?.snapshot)
}

/// Returns a hash of the metadata of all relevant files without opening them.
pub fn fingerprint(directory: &Path) -> io::Result<u64> {
    Ok(walk(directory, false)?.metadata.finish())
}

fn walk(directory: &Path, reads_content: bool) -> io::Result<DirectoryReader<'_>> {
    let mut reader = DirectoryReader {
        snapshot: Snapshot::default(),
        visited: HashSet::new(),
        entries: 0,
        bytes: 0,
        directory,
        reads_content,
        metadata: DefaultHasher::new(),
    };
    reader.read_directory(Path::new(""), 0)?;
    reader.read_requests();
    Ok(reader)
}

struct DirectoryReader<'a> {
    directory: &'a Path,
    snapshot: Snapshot,
    /// Canonical paths, as links may form cycles.
    visited: HashSet<PathBuf>,
    entries: usize,
    bytes: u64,
    reads_content: bool,
    metadata: DefaultHasher,
}

impl DirectoryReader<'_> {
    fn read_directory(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        let full = self.directory.join(path);
        if !self.visited.insert(full.canonicalize()?) {
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(&full)? {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                self.unread(path, format!("directory has more than {MAX_ENTRIES} entries"));
                break;
            }
            names.push(entry?.file_name());
        }
        // A mounted ConfigMap has hidden directories with older and newer versions.
        names.retain(|name| !name.as_encoded_bytes().starts_with(b"."));
        names.sort();
        for name in names {
            self.read_entry(&path.join(name), depth);
        }
        Ok(())
    }

    fn read_entry(&mut self, path: &Path, depth: usize) {
        // Follows links: a mounted ConfigMap consists of them.
        match self.metadata(path) {
            Ok(metadata) if metadata.is_dir() && depth >= MAX_DEPTH => {
                self.unread(path, format!("directories are nested deeper than {MAX_DEPTH} levels"));
            }
            Ok(metadata) if metadata.is_dir() => {
                if let Err(error) = self.read_directory(path, depth + 1) {
                    self.unread(path, format!("failed to read directory: {error}"));
                }
            }
            Ok(metadata) if metadata.is_file() && is_manifest(path) => self.read_file(path),
            Ok(_) => {}
            Err(error) if is_manifest(path) => self.broken_entry(path, &error),
            Err(error) => tracing::debug!(file = %path.display(), %error, "skipping unreadable file"),
        }
    }

    fn metadata(&mut self, path: &Path) -> io::Result<fs::Metadata> {
        let metadata = fs::metadata(self.directory.join(path));
        // The change time also reveals writes that reset the modification time.
        let seen = metadata.as_ref().map_err(io::Error::kind);
        let seen = seen.map(|file| (file.dev(), file.ino(), file.len(), file.ctime(), file.ctime_nsec()));
        (path, seen).hash(&mut self.metadata);
        metadata
    }

    /// Handles a file that vanished during the scan, or a dangling link.
    fn broken_entry(&mut self, path: &Path, error: &io::Error) {
        let is_link = fs::symlink_metadata(self.directory.join(path)).is_ok();
        if is_link || error.kind() != io::ErrorKind::NotFound {
            self.snapshot
                .files
                .insert(path.to_owned(), Err(format!("failed to read file: {error}")));
        }
    }

    fn read_file(&mut self, path: &Path) {
        if self.snapshot.files.len() >= MAX_FILES {
            self.unread(Path::new(""), format!("directory has more than {MAX_FILES} manifests"));
            return;
        }
        let content = match self.read_manifest(path) {
            Ok(None) => return,
            Ok(Some(content)) if content.len() as u64 > MAX_FILE => {
                Err(format!("file is larger than {MAX_FILE} bytes"))
            }
            Ok(Some(content)) if self.bytes + content.len() as u64 > MAX_TOTAL => {
                Err(format!("manifests are larger than {MAX_TOTAL} bytes in total"))
            }
            Ok(Some(content)) => Ok(content),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => Err(format!("failed to read file: {error}")),
        };
        self.bytes += content.as_ref().map_or(0, |content| content.len() as u64);
        self.snapshot.files.insert(path.to_owned(), content);
    }

    /// Returns the content of a manifest; `None` for the index of a chart repository: only its beginning is read.
    fn read_manifest(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        if !self.reads_content {
            return Ok(Some(Vec::new()));
        }
        let mut file = fs::File::open(self.directory.join(path))?;
        let mut content = Vec::new();
        file.by_ref().take(chart_index::HEAD as u64).read_to_end(&mut content)?;
        if chart_index::is_index(&content) {
            return Ok(None);
        }
        file.take(MAX_FILE + 1 - content.len() as u64)
            .read_to_end(&mut content)?;
        Ok(Some(content))
    }

    fn read_content(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        if self.reads_content {
            read_capped(&self.directory.join(path), limit)
        } else {
            Ok(Vec::new())
        }
    }

    fn read_requests(&mut self) {
        for namespace in object_names(&self.directory.join(REQUESTS)) {
            let directory = Path::new(REQUESTS).join(&namespace);
            for name in object_names(&self.directory.join(&directory)) {
                let path = directory.join(&name);
                if self.metadata(&path).is_err() {
                    continue;
                }
                let token = self.read_content(&path, MAX_TOKEN).unwrap_or_default();
                let token = String::from_utf8_lossy(&token).trim().to_owned();
                if !token.is_empty() {
                    let namespace = namespace.clone();
                    self.snapshot.requests.insert(NamespacedName { namespace, name }, token);
                }
            }
        }
    }

    fn unread(&mut self, path: &Path, message: String) {
        self.snapshot.unread.insert(path.to_owned(), message);
    }
}

/// Ignores backup files of editors (`a.yaml~`, `a.yaml.swp`, `#a.yaml#`).
fn is_manifest(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["yaml", "yml", "json"]
        .iter()
        .any(|manifest| extension.eq_ignore_ascii_case(manifest))
}

pub fn read_capped(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path)?.take(limit + 1).read_to_end(&mut content)?;
    Ok(content)
}

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

    fn directory(files: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for file in files {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file.as_bytes()).unwrap();
        }
        directory
    }

    fn names(directory: &Path) -> Vec<String> {
        read(directory)
            .unwrap()
            .files
            .keys()
            .map(|path| path.display().to_string())
            .collect()
    }

    #[test]
    fn manifests_are_found_in_directories_and_hidden_and_temporary_files_are_not() {
        let directory = directory(&[
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
        assert_eq!(
            names(directory.path()),
            ["a.yaml", "b.yml", "c.JSON", "sub/deep/d.yaml"]
        );
        assert_eq!(
            read(directory.path()).unwrap().files[Path::new("a.yaml")],
            Ok(b"a.yaml".to_vec())
        );
    }

    #[test]
    fn a_mounted_config_map_is_read_through_its_links() {
        let directory = directory(&["..2026_1/a.yaml", "..2026_1/sub/b.yaml", "..2026_2/a.yaml"]);
        symlink("..2026_1", directory.path().join("..data")).unwrap();
        symlink("..data/a.yaml", directory.path().join("a.yaml")).unwrap();
        symlink("..data/sub", directory.path().join("sub")).unwrap();
        assert_eq!(names(directory.path()), ["a.yaml", "sub/b.yaml"]);
        assert_eq!(
            read(directory.path()).unwrap().files[Path::new("a.yaml")],
            Ok(b"..2026_1/a.yaml".to_vec())
        );

        symlink("..2026_2", directory.path().join("..data_tmp")).unwrap();
        fs::rename(directory.path().join("..data_tmp"), directory.path().join("..data")).unwrap();
        let snapshot = read(directory.path()).unwrap();
        assert_eq!(snapshot.files[Path::new("a.yaml")], Ok(b"..2026_2/a.yaml".to_vec()));
    }

    #[test]
    fn dangling_and_cyclic_links_are_tolerated() {
        let directory = directory(&["a.yaml", "sub/b.yaml"]);
        symlink("nowhere.yaml", directory.path().join("c.yaml")).unwrap();
        symlink("..", directory.path().join("sub/up")).unwrap();
        symlink("nowhere", directory.path().join("d")).unwrap();
        let snapshot = read(directory.path()).unwrap();
        assert_eq!(names(directory.path()), ["a.yaml", "c.yaml", "sub/b.yaml"]);
        assert!(snapshot.files[Path::new("c.yaml")].is_err());
        assert!(snapshot.unread.is_empty());
    }

    #[test]
    fn the_index_of_a_chart_repository_is_no_manifest_of_any_size() {
        let directory = directory(&["a.yaml"]);
        let index = format!("apiVersion: v1\nentries:\n{}", "# web\n".repeat(1 << 20));
        fs::write(directory.path().join("index.yaml"), index).unwrap();
        fs::write(directory.path().join("index.json"), "{\"entries\": {").unwrap();
        assert_eq!(names(directory.path()), ["a.yaml"]);
    }

    #[test]
    fn a_file_above_the_size_limit_is_not_read_completely() {
        let directory = directory(&[]);
        fs::File::create(directory.path().join("a.yaml"))
            .unwrap()
            .set_len(MAX_FILE + 1)
            .unwrap();
        fs::File::create(directory.path().join("b.yaml"))
            .unwrap()
            .set_len(MAX_FILE)
            .unwrap();
        let files = read(directory.path()).unwrap().files;
        assert!(files[Path::new("a.yaml")].as_ref().unwrap_err().contains("larger"));
        assert!(files[Path::new("b.yaml")].is_ok());
    }

    #[test]
    fn directories_nested_too_deep_are_reported_as_unread() {
        let path = format!("{}a.yaml", "d/".repeat(MAX_DEPTH + 1));
        let snapshot = read(directory(&[&path]).path()).unwrap();
        assert!(snapshot.files.is_empty());
        assert_eq!(snapshot.unread.len(), 1);
    }

    #[test]
    fn a_missing_directory_is_an_error() {
        assert!(read(Path::new("/nowhere/at/all")).is_err());
    }

    #[test]
    fn the_fingerprint_changes_only_with_files_and_requests() {
        let directory = directory(&["a.yaml", "sub/b.yaml"]);
        let name = NamespacedName {
            namespace: "team-a".to_owned(),
            name: "charts".to_owned(),
        };
        let mut seen = HashSet::new();
        let mut is_new = || {
            read(directory.path()).unwrap();
            let fingerprint = fingerprint(directory.path()).unwrap();
            assert_eq!(super::fingerprint(directory.path()).unwrap(), fingerprint);
            seen.insert(fingerprint)
        };
        assert!(is_new());
        assert!(!is_new());
        fs::write(directory.path().join("sub/b.yaml"), "longer than before").unwrap();
        assert!(is_new());
        fs::rename(directory.path().join("a.yaml"), directory.path().join("c.yaml")).unwrap();
        assert!(is_new());
        crate::runtime::manifests::request_resync(directory.path(), &name, "now").unwrap();
        assert!(is_new());
        assert!(!is_new());
    }

    #[test]
    fn requests_are_read_by_name() {
        let directory = directory(&[]);
        let name = NamespacedName {
            namespace: "team-a".to_owned(),
            name: "charts".to_owned(),
        };
        crate::runtime::manifests::request_resync(directory.path(), &name, " now \n").unwrap();
        crate::runtime::manifests::request_resync(directory.path(), &name, "later").unwrap();
        fs::write(directory.path().join(REQUESTS).join("team-a").join("..odd"), "x").unwrap();
        assert_eq!(
            read(directory.path()).unwrap().requests,
            BTreeMap::from([(name, "later".to_owned())])
        );
    }
}
