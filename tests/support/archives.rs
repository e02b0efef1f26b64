//! Chart archives made in memory: good ones, and those that nobody should send.

use std::io::Write;

use flate2::write::{DeflateEncoder, GzEncoder};
use flate2::{Compression, Crc};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

/// A chart in the making; `pack` makes its archive as `helm package` would, but for what was asked to be otherwise.
pub struct Chart {
    metadata: Map<String, Value>,
    folder: String,
    entries: Vec<Entry>,
}

impl Chart {
    /// A chart with no more than a Chart.yaml.
    pub fn new(name: &str, version: &str) -> Self {
        let metadata =
            json!({"apiVersion": "v2", "name": name, "version": version, "description": format!("A {name}")});
        let Value::Object(metadata) = metadata else {
            unreachable!("it is written as an object")
        };
        Self {
            metadata,
            folder: format!("{name}/"),
            entries: Vec::new(),
        }
    }

    /// With this field of Chart.yaml, in the place of what it was.
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(name.to_owned(), value.into());
        self
    }

    /// With a file in the chart's folder: `README.md`, `values-production.yaml`, `templates/deployment.yaml`, …
    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let entry = Entry::file(&format!("{}{path}", self.folder), content);
        self.entry(entry)
    }

    /// In another folder from here on: `./harbour/`, or the archive's root if it is empty.
    pub fn folder(mut self, folder: &str) -> Self {
        folder.clone_into(&mut self.folder);
        self
    }

    /// With an entry as it is, behind Chart.yaml and those that were added before.
    pub fn entry(mut self, entry: Entry) -> Self {
        self.entries.push(entry);
        self
    }

    /// The archive.
    pub fn pack(self) -> Archive {
        let yaml = serde_yaml::to_string(&self.metadata).expect("JSON is YAML");
        let chart_yaml = Entry::file(&format!("{}Chart.yaml", self.folder), yaml);
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes);
        for entry in std::iter::once(&chart_yaml).chain(&self.entries) {
            entry.pack(&mut packer);
        }
        packer.write(&[0; 1024]); // the two empty blocks that end a tar archive
        packer.finish();
        Archive {
            metadata: self.metadata,
            bytes,
        }
    }
}

/// One entry of an archive. Its path is written as it is: absolute, with `..`, anything below 100 bytes.
pub struct Entry {
    path: String,
    kind: EntryType,
    link: String,
    content: Vec<u8>,
    zeros: u64,
}

impl Entry {
    /// A file.
    pub fn file(path: &str, content: impl AsRef<[u8]>) -> Self {
        Self {
            path: path.to_owned(),
            kind: EntryType::Regular,
            link: String::new(),
            content: content.as_ref().to_vec(),
            zeros: 0,
        }
    }

    /// A file of so many zeros. A gibibyte of them is made in no time and is packed into about a mebibyte: a bomb.
    pub fn zeros(path: &str, bytes: u64) -> Self {
        Self {
            zeros: bytes,
            ..Self::file(path, "")
        }
    }

    /// A symbolic link.
    pub fn symlink(path: &str, target: &str) -> Self {
        Self {
            kind: EntryType::Symlink,
            link: target.to_owned(),
            ..Self::file(path, "")
        }
    }

    /// A hard link.
    pub fn hard_link(path: &str, target: &str) -> Self {
        Self {
            kind: EntryType::Link,
            ..Self::symlink(path, target)
        }
    }

    /// A folder.
    pub fn folder(path: &str) -> Self {
        Self {
            kind: EntryType::Directory,
            ..Self::file(path, "")
        }
    }

    /// An entry of another kind: a device (`EntryType::Char`), a pipe (`EntryType::Fifo`), …
    pub fn kind(mut self, kind: EntryType) -> Self {
        self.kind = kind;
        self
    }

    /// The PAX header (POSIX.1-2001) that Go's tar, and so helm, writes before an entry with a long path.
    pub fn long_path(path: &str) -> Self {
        // A record begins with its own length, which counts its own digits.
        let rest = format!(" path={path}\n");
        let mut length = rest.len();
        while length != rest.len() + length.to_string().len() {
            length = rest.len() + length.to_string().len();
        }
        Self::file("PaxHeaders.0/long", format!("{length}{rest}")).kind(EntryType::XHeader)
    }

    fn pack(&self, packer: &mut Packer) {
        let size = self.content.len() as u64 + self.zeros;
        let mut header = Header::new_ustar();
        header.set_size(size);
        header.set_mode(0o644);
        header.set_entry_type(self.kind);
        let ustar = header.as_ustar_mut().expect("it was made as one");
        // The setters of tar refuse what a hostile archive holds.
        ustar.name[..self.path.len()].copy_from_slice(self.path.as_bytes());
        ustar.linkname[..self.link.len()].copy_from_slice(self.link.as_bytes());
        header.set_cksum();
        packer.write(header.as_bytes());
        packer.write(&self.content);
        packer.write_zeros(self.zeros);
        packer.write_zeros(size.next_multiple_of(512) - size);
    }
}

/// Gzip, where long runs of zeros cost nothing to make.
struct Packer<'a> {
    deflate: DeflateEncoder<&'a mut Vec<u8>>,
    sum: Crc,
}

impl<'a> Packer<'a> {
    fn new(output: &'a mut Vec<u8>) -> Self {
        output.extend([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff]); // RFC 1952: deflate, no flags, no time, no system
        Self {
            deflate: DeflateEncoder::new(output, Compression::default()),
            sum: Crc::new(),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.deflate.write_all(bytes).expect("memory can be written");
        self.sum.update(bytes);
    }

    fn write_zeros(&mut self, bytes: u64) {
        const PIECE: usize = 1 << 20;
        let zeros = vec![0; PIECE.min(usize::try_from(bytes).unwrap_or(PIECE))];
        let (pieces, rest) = (
            bytes / PIECE as u64,
            usize::try_from(bytes % PIECE as u64).expect("below PIECE"),
        );
        let mut one = Crc::new();
        one.update(&zeros);
        let mut packed = Vec::new();
        for piece in 0..pieces {
            if piece < 2 {
                // After a flush a block stands on its own; the second one looks back at nothing but zeros.
                self.flush();
                let before = self.deflate.get_ref().len();
                self.deflate.write_all(&zeros).expect("memory can be written");
                self.flush();
                packed = self.deflate.get_ref()[before..].to_vec();
            } else {
                self.deflate.get_mut().extend_from_slice(&packed);
            }
            self.sum.combine(&one);
        }
        self.write(&zeros[..rest]);
    }

    fn flush(&mut self) {
        self.deflate.flush().expect("memory can be written");
    }

    fn finish(self) {
        let output = self.deflate.finish().expect("memory can be written");
        output.extend(self.sum.sum().to_le_bytes());
        output.extend(self.sum.amount().to_le_bytes());
    }
}

/// A packed chart, as it lies in a repository.
#[derive(Clone)]
pub struct Archive {
    /// The fields of its Chart.yaml.
    pub metadata: Map<String, Value>,
    /// The `.tgz`.
    pub bytes: Vec<u8>,
}

impl Archive {
    /// Bytes that call themselves the archive of this chart.
    pub fn of_bytes(name: &str, version: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            metadata: Chart::new(name, version).metadata,
            bytes: bytes.into(),
        }
    }

    /// Without its last bytes, from this one on.
    pub fn truncated(mut self, at: usize) -> Self {
        self.bytes.truncate(at);
        self
    }

    /// Compressed twice, as some servers send what they take for a plain file.
    pub fn packed_again(&self) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder
            .write_all(&self.bytes)
            .and_then(|()| encoder.finish())
            .expect("memory can be written")
    }

    /// The chart's name.
    pub fn name(&self) -> &str {
        self.metadata["name"].as_str().expect("a name is a string")
    }

    /// The chart's version.
    pub fn version(&self) -> &str {
        self.metadata["version"].as_str().expect("a version is a string")
    }

    /// The file's name as helm makes it.
    pub fn file_name(&self) -> String {
        format!("{}-{}.tgz", self.name(), self.version())
    }

    /// The digest of the bytes, without `sha256:`, as indexes have it.
    pub fn sha256(&self) -> String {
        sha256(&self.bytes)
    }

    /// Its entry of an index, with these URLs.
    pub fn index_entry(&self, urls: &[&str]) -> Value {
        let mut entry = self.metadata.clone();
        entry.insert("created".to_owned(), "2024-05-01T08:00:00Z".into());
        entry.insert("digest".to_owned(), self.sha256().into());
        entry.insert("urls".to_owned(), json!(urls));
        entry.into()
    }
}

/// The digest of bytes in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An index of these entries, the versions of a chart in the order in which they are given.
pub fn index(entries: impl IntoIterator<Item = Value>) -> String {
    let mut charts = Map::new();
    for entry in entries {
        let name = entry["name"].as_str().expect("an entry has a name").to_owned();
        let versions = charts.entry(name).or_insert_with(|| json!([]));
        versions.as_array_mut().expect("it is made as one").push(entry);
    }
    let index = json!({"apiVersion": "v1", "generated": "2024-05-01T08:00:00Z", "entries": charts});
    serde_yaml::to_string(&index).expect("JSON is YAML")
}
