//! Chart archives created in memory: valid and malicious ones.

use std::io::{Read, Write};

use flate2::read::GzDecoder;
use flate2::write::{DeflateEncoder, GzEncoder};
use flate2::{Compression, Crc};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tar::{EntryType, Header};

/// Builder of a chart. `pack` creates its archive like `helm package`, with the requested deviations.
pub struct Chart {
    metadata: Map<String, Value>,
    directory: String,
    entries: Vec<Entry>,
}

impl Chart {
    /// A chart with only a Chart.yaml.
    pub fn new(name: &str, version: &str) -> Self {
        let metadata =
            json!({"apiVersion": "v2", "name": name, "version": version, "description": format!("A {name}")});
        let Value::Object(metadata) = metadata else {
            unreachable!("the literal is an object")
        };
        Self {
            metadata,
            directory: format!("{name}/"),
            entries: Vec::new(),
        }
    }

    /// Sets or replaces a field of Chart.yaml.
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.metadata.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a file to the chart's directory: `README.md`, `values-production.yaml`, `templates/deployment.yaml`, …
    pub fn file(self, path: &str, content: impl AsRef<[u8]>) -> Self {
        let entry = Entry::file(&format!("{}{path}", self.directory), content);
        self.entry(entry)
    }

    /// Adds later files to another directory: `./harbour/`, or the archive's root if it is empty.
    pub fn directory(mut self, directory: &str) -> Self {
        directory.clone_into(&mut self.directory);
        self
    }

    /// Adds an unmodified entry after Chart.yaml and previously added entries.
    pub fn entry(mut self, entry: Entry) -> Self {
        self.entries.push(entry);
        self
    }

    pub fn pack(self) -> Archive {
        let yaml = serde_yaml::to_string(&self.metadata).expect("JSON is serializable");
        let chart_yaml = Entry::file(&format!("{}Chart.yaml", self.directory), yaml);
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

/// One entry of an archive. Its path is written unchanged and may be absolute or contain `..`; at most 100 bytes.
pub struct Entry {
    path: String,
    kind: EntryType,
    link: String,
    content: Vec<u8>,
    zeros: u64,
}

impl Entry {
    pub fn file(path: &str, content: impl AsRef<[u8]>) -> Self {
        Self {
            path: path.to_owned(),
            kind: EntryType::Regular,
            link: String::new(),
            content: content.as_ref().to_vec(),
            zeros: 0,
        }
    }

    /// A file of zeros. A gibibyte compresses quickly into about a mebibyte: a bomb.
    pub fn zeros(path: &str, bytes: u64) -> Self {
        Self {
            zeros: bytes,
            ..Self::file(path, "")
        }
    }

    pub fn symlink(path: &str, target: &str) -> Self {
        Self {
            kind: EntryType::Symlink,
            link: target.to_owned(),
            ..Self::file(path, "")
        }
    }

    pub fn hard_link(path: &str, target: &str) -> Self {
        Self {
            kind: EntryType::Link,
            ..Self::symlink(path, target)
        }
    }

    pub fn directory(path: &str) -> Self {
        Self {
            kind: EntryType::Directory,
            ..Self::file(path, "")
        }
    }

    /// Changes the type of the entry: a device (`EntryType::Char`), a pipe (`EntryType::Fifo`), …
    pub fn kind(mut self, kind: EntryType) -> Self {
        self.kind = kind;
        self
    }

    /// The PAX header (POSIX.1-2001) that Go's tar, and thus helm, writes before an entry with a long path.
    pub fn long_path(path: &str) -> Self {
        // A record begins with its own length, including the digits of that length.
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
        let ustar = header.as_ustar_mut().expect("the header is ustar");
        // The setters of tar reject malicious paths.
        ustar.name[..self.path.len()].copy_from_slice(self.path.as_bytes());
        ustar.linkname[..self.link.len()].copy_from_slice(self.link.as_bytes());
        header.set_cksum();
        packer.write(header.as_bytes());
        packer.write(&self.content);
        packer.write_zeros(self.zeros);
        packer.write_zeros(size.next_multiple_of(512) - size);
    }
}

/// Gzip encoder with fast output of long runs of zeros.
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
        self.deflate.write_all(bytes).expect("writing to memory succeeds");
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
                // A block after a flush is independent; the second one refers only to zeros.
                self.flush();
                let before = self.deflate.get_ref().len();
                self.deflate.write_all(&zeros).expect("writing to memory succeeds");
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
        self.deflate.flush().expect("writing to memory succeeds");
    }

    fn finish(self) {
        let output = self.deflate.finish().expect("writing to memory succeeds");
        output.extend(self.sum.sum().to_le_bytes());
        output.extend(self.sum.amount().to_le_bytes());
    }
}

/// A packed chart, as stored in a repository.
#[derive(Clone)]
pub struct Archive {
    pub metadata: Map<String, Value>,
    pub bytes: Vec<u8>,
}

impl Archive {
    /// Arbitrary bytes as the archive of this chart.
    pub fn of_bytes(name: &str, version: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            metadata: Chart::new(name, version).metadata,
            bytes: bytes.into(),
        }
    }

    /// Drops the bytes from this position on.
    pub fn truncated(mut self, at: usize) -> Self {
        self.bytes.truncate(at);
        self
    }

    /// Returns the uncompressed tar archive.
    pub fn unpacked(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = GzDecoder::new(self.bytes.as_slice()).read_to_end(&mut bytes);
        read.expect("the archive is valid");
        bytes
    }

    /// Compresses the archive again, as some servers do.
    pub fn packed_again(&self) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder
            .write_all(&self.bytes)
            .and_then(|()| encoder.finish())
            .expect("writing to memory succeeds")
    }

    pub fn name(&self) -> &str {
        self.metadata["name"].as_str().expect("a name is a string")
    }

    pub fn version(&self) -> &str {
        self.metadata["version"].as_str().expect("a version is a string")
    }

    /// Returns the file name that helm uses.
    pub fn file_name(&self) -> String {
        format!("{}-{}.tgz", self.name(), self.version())
    }

    /// Returns the SHA-256 digest without `sha256:`, as in indexes.
    pub fn sha256(&self) -> String {
        sha256(&self.bytes)
    }

    /// Returns its entry of an index, with these URLs.
    pub fn index_entry(&self, urls: &[&str]) -> Value {
        let mut entry = self.metadata.clone();
        entry.insert("created".to_owned(), "2024-05-01T08:00:00Z".into());
        entry.insert("digest".to_owned(), self.sha256().into());
        entry.insert("urls".to_owned(), json!(urls));
        entry.into()
    }
}

/// Returns the SHA-256 digest in lower-case hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Builds an index of these entries. The versions of a chart keep their order.
pub fn index(entries: impl IntoIterator<Item = Value>) -> String {
    let mut charts = Map::new();
    for entry in entries {
        let name = entry["name"].as_str().expect("an entry has a name").to_owned();
        let versions = charts.entry(name).or_insert_with(|| json!([]));
        versions.as_array_mut().expect("the value is an array").push(entry);
    }
    let index = json!({"apiVersion": "v1", "generated": "2024-05-01T08:00:00Z", "entries": charts});
    serde_yaml::to_string(&index).expect("JSON is serializable")
}
