//! Lists of managed resources as trackers store them: plain below a size, compressed above.

use std::{fmt, io};

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::entry::ResourceKey;
use crate::api::oam::compression::{Compressed, CompressionError, Format};
use crate::api::oam::{ManagedResource, ResourceTrackerSpec};

/// Size of JSON from which on it is compressed.
const PLAIN_BYTES: usize = 256 << 10;

/// Maximum size of compressed data. The API server rejects requests above 1.5 MiB.
const MAX_COMPRESSED_BYTES: usize = (14 << 20) / 10;

/// Size from which on manifests are left out of a tracker that is too large.
const LARGE_MANIFEST_BYTES: usize = 64 << 10;

/// Maximum size of decompressed JSON. Compressed data of the maximum size usually hold 10 to 20 MiB.
const MAX_DECODED_BYTES: usize = 32 << 20;

/// Maximum number of entries. Each takes memory of its own beside its text.
const MAX_ENTRIES: usize = 20_000;

/// Size of JSON from which on it is compressed in memory.
const PACKED_BYTES: usize = 4 << 10;

/// Size of the JSON of a short entry.
const ENTRY_BYTES: u64 = 48;

#[derive(Debug, Default, PartialEq)]
pub struct Encoded {
    pub managed_resources: Vec<ManagedResource>,
    pub compression: Compressed,
    /// Objects whose manifests did not fit. Their state is not kept.
    pub omitted_manifests: Vec<ResourceKey>,
}

#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("{0} objects exceed the limit of {MAX_ENTRIES} for a ResourceTracker; split the application")]
    TooMany(usize),
    #[error("{objects} objects take {bytes} bytes, more than a ResourceTracker can hold; split the application")]
    TooLarge { objects: usize, bytes: usize },
    #[error("managed resources don't serialize: {0}")]
    Json(#[from] serde_json::Error),
    #[error("managed resources don't compress: {0}")]
    Compress(#[from] io::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum TrackerDecodeError {
    #[error(transparent)]
    Compression(#[from] CompressionError),
    #[error("managed resources are invalid: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0} managed resources exceed the limit of {MAX_ENTRIES}")]
    TooMany(usize),
}

/// Uses `format`, or decides by size if it is `None`. Fails if the list is too large even without manifests.
pub fn encode(entries: Vec<ManagedResource>, format: Option<Format>) -> Result<Encoded, EncodeError> {
    if entries.len() > MAX_ENTRIES {
        return Err(EncodeError::TooMany(entries.len()));
    }
    let mut json = serde_json::to_vec(&entries)?;
    if format.is_none() && json.len() < PLAIN_BYTES {
        return Ok(Encoded {
            managed_resources: entries,
            ..Encoded::default()
        });
    }
    let mut entries = entries;
    let mut omitted_manifests = Vec::new();
    let mut manifest_limits = [LARGE_MANIFEST_BYTES, 0].into_iter();
    loop {
        let bytes = match compress(format.unwrap_or(Format::Zstd), &json)? {
            CompressedList::Fits(compression) => {
                return Ok(Encoded {
                    managed_resources: Vec::new(),
                    compression,
                    omitted_manifests,
                });
            }
            CompressedList::TooLarge(bytes) => bytes,
        };
        let Some(limit) = manifest_limits.next() else {
            let objects = entries.len();
            return Err(EncodeError::TooLarge { objects, bytes });
        };
        omitted_manifests.extend(omit_manifests(&mut entries, limit));
        json = serde_json::to_vec(&entries)?;
    }
}

enum CompressedList {
    Fits(Compressed),
    /// The size of a list that a tracker can't hold, or [`decode`] would not accept.
    TooLarge(usize),
}

fn compress(format: Format, json: &[u8]) -> io::Result<CompressedList> {
    if json.len() > MAX_DECODED_BYTES {
        return Ok(CompressedList::TooLarge(json.len()));
    }
    let compression = Compressed::encode(format, json)?;
    Ok(match compression.data.len() {
        0..=MAX_COMPRESSED_BYTES => CompressedList::Fits(compression),
        bytes => CompressedList::TooLarge(bytes),
    })
}

/// Removes manifests of more than `limit` bytes. Returns the keys of their objects.
fn omit_manifests(entries: &mut [ManagedResource], limit: usize) -> Vec<ResourceKey> {
    let mut omitted = Vec::new();
    for entry in entries {
        if entry.raw.as_ref().is_some_and(|raw| raw.text().len() > limit) {
            entry.raw = None;
            omitted.push(ResourceKey::of(entry));
        }
    }
    omitted
}

pub fn decode(spec: &ResourceTrackerSpec) -> Result<Vec<ManagedResource>, TrackerDecodeError> {
    if spec.compression.is_empty() {
        let entries = spec.managed_resources.len();
        return if entries > MAX_ENTRIES {
            Err(TrackerDecodeError::TooMany(entries))
        } else {
            Ok(spec.managed_resources.clone())
        };
    }
    let json = spec.compression.decode(MAX_DECODED_BYTES)?;
    let EntryList(entries) = serde_json::from_slice(&json)?;
    Ok(entries)
}

/// Compresses the entries of a tracker that stays in memory, if they are large. Returns the size of their JSON.
pub fn pack(spec: &mut ResourceTrackerSpec) -> u64 {
    if !spec.compression.is_empty() {
        // `decode` does not read them.
        spec.managed_resources = Vec::new();
        // What can't be decompressed fails when it is decoded.
        return spec.compression.decoded_size(MAX_DECODED_BYTES).unwrap_or_default();
    }
    let json = serde_json::to_vec(&spec.managed_resources).unwrap_or_default();
    let is_large = json.len() >= PACKED_BYTES && spec.managed_resources.len() <= MAX_ENTRIES;
    if is_large && let Ok(compression) = Compressed::encode(Format::Zstd, &json) {
        spec.compression = compression;
        spec.managed_resources = Vec::new();
    }
    json.len() as u64
}

/// Returns the memory that entries take while they are decoded, by the size of their JSON.
#[must_use]
pub fn decoded_bytes(json_bytes: u64) -> u64 {
    let entries = (json_bytes / ENTRY_BYTES).min(MAX_ENTRIES as u64);
    2 * json_bytes + entries * size_of::<ManagedResource>() as u64
}

/// A list of at most [`MAX_ENTRIES`], or null, as Go encodes an empty list.
struct EntryList(Vec<ManagedResource>);

impl<'de> Deserialize<'de> for EntryList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Limited;

        impl<'de> Visitor<'de> for Limited {
            type Value = Vec<ManagedResource>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX_ENTRIES} managed resources")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Vec::new())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = sequence.next_element::<Option<ManagedResource>>()? {
                    if entries.len() == MAX_ENTRIES {
                        return Err(serde::de::Error::invalid_length(MAX_ENTRIES + 1, &self));
                    }
                    entries.extend(entry);
                }
                Ok(entries)
            }
        }

        deserializer.deserialize_any(Limited).map(Self)
    }
}
