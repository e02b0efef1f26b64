//! A search in the JSON of a release, within limits of bytes.

use std::cell::Cell;
use std::io::{self, Read};

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use super::MAX_METADATA;

#[derive(Default)]
pub(super) struct Found {
    pub(super) name: Option<String>,
    pub(super) status: Option<String>,
    pub(super) metadata: Option<Metadata>,
}

#[derive(Deserialize)]
pub(super) struct Metadata {
    pub(super) name: Option<String>,
    pub(super) version: Option<String>,
    pub(super) home: Option<String>,
    pub(super) icon: Option<String>,
    pub(super) sources: Option<Vec<String>>,
}

/// The bytes that may still be read.
pub(super) struct Allowance {
    left: Cell<u64>,
    is_in_metadata: Cell<bool>,
}

impl Allowance {
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            left: Cell::new(bytes),
            is_in_metadata: Cell::new(false),
        }
    }

    fn enter_metadata(&self) {
        self.left.set(MAX_METADATA);
        self.is_in_metadata.set(true);
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.left.get() == 0
    }

    pub(super) fn is_in_metadata(&self) -> bool {
        self.is_in_metadata.get()
    }
}

struct Limited<'a, R> {
    inner: R,
    allowance: &'a Allowance,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.left.get();
        let end = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.inner.read(buffer.get_mut(..end).unwrap_or_default())?;
        self.allowance.left.set(left.saturating_sub(read as u64));
        Ok(read)
    }
}

/// Reads until the end of the metadata. Then the result is an error, which ends the parser.
pub(super) fn find(json: impl Read, allowance: &Allowance) -> (Found, Result<(), serde_json::Error>) {
    let mut found = Found::default();
    let reader = Limited { inner: json, allowance };
    let search = Search {
        level: Level::Release,
        found: &mut found,
        allowance,
    };
    let result = search.deserialize(&mut serde_json::Deserializer::from_reader(reader));
    (found, result)
}

#[derive(Clone, Copy)]
enum Level {
    Release,
    Info,
    Chart,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Key {
    Name,
    Info,
    Status,
    Chart,
    Metadata,
    #[serde(other)]
    Other,
}

struct Search<'a> {
    level: Level,
    found: &'a mut Found,
    allowance: &'a Allowance,
}

impl Search<'_> {
    fn below(&mut self, level: Level) -> Search<'_> {
        Search {
            level,
            found: &mut *self.found,
            allowance: self.allowance,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Search<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Search<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object of a release")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key()? {
            match (self.level, key) {
                (Level::Release, Key::Name) => self.found.name = map.next_value()?,
                (Level::Release, Key::Info) => map.next_value_seed(self.below(Level::Info))?,
                (Level::Release, Key::Chart) => map.next_value_seed(self.below(Level::Chart))?,
                (Level::Info, Key::Status) => self.found.status = map.next_value()?,
                (Level::Chart, Key::Metadata) => {
                    self.allowance.enter_metadata();
                    self.found.metadata = Some(map.next_value()?);
                    return Err(A::Error::custom("the metadata is complete"));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}
