//! Builds tar streams by hand, including invalid ones that the crate's builder rejects.

use tar::{EntryType, Header};

use crate::helm::archive::walk::BLOCK;

pub fn entry(kind: u8, name: &str, content: &[u8]) -> Vec<u8> {
    sized_entry(kind, name, content.len() as u64, content)
}

/// Returns an entry whose header states a different size.
pub fn sized_entry(kind: u8, name: &str, size: u64, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(EntryType::new(kind));
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

pub fn file(name: &str, content: impl AsRef<[u8]>) -> Vec<u8> {
    entry(b'0', name, content.as_ref())
}

pub fn link(kind: u8, name: &str, target: &str) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
    header.set_entry_type(EntryType::new(kind));
    header.set_size(0);
    header.set_cksum();
    header.as_bytes().to_vec()
}

pub fn extended(kind: u8, records: &[(&str, &str)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (key, value) in records {
        let body = format!(" {key}={value}\n");
        let mut length = body.len();
        while length != body.len() + length.to_string().len() {
            length = body.len() + length.to_string().len();
        }
        content.extend(format!("{length}{body}").bytes());
    }
    entry(kind, "PaxHeaders/x", &content)
}

/// Returns the stream of the entries and the end-of-archive mark.
pub fn tar(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = entries.concat();
    bytes.extend([0; 2 * BLOCK]);
    bytes
}
