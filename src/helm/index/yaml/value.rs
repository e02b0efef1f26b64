//! A small document as JSON. The decoder of indexes keeps only the fields that it uses.

use serde_json::{Map, Value};

use super::source::{EventSource, YamlEvent};
use crate::helm::index::entry::without_nul;
use crate::helm::index::error::ParserError;
use crate::helm::index::limits::DecodeLimits;
use crate::helm::index::node::Scalar;

/// Returns the map that the document contains. Scalars are texts as written, except the values of the keys `booleans`.
/// Null counts as missing. The error is a sentence about the document.
pub(in crate::helm) fn map(
    text: &[u8],
    booleans: &'static [&'static str],
    limits: &DecodeLimits,
) -> Result<Map<String, Value>, String> {
    let mut reader = ValueReader {
        source: EventSource::new(text, limits),
        booleans,
    };
    reader.document_map().map_err(sentence)
}

/// Same as [`map`] for a document that is a list.
pub(in crate::helm) fn list(text: &[u8], limits: &DecodeLimits) -> Result<Vec<Value>, String> {
    let mut reader = ValueReader {
        source: EventSource::new(text, limits),
        booleans: &[],
    };
    reader.document_list().map_err(sentence)
}

fn sentence(error: ParserError) -> String {
    match error {
        ParserError::Invalid { message, position } => format!("invalid YAML at {position}: {message}"),
        ParserError::TooComplex { limit, position } => format!("it exceeds a limit near {position}: {limit}"),
        ParserError::Read(error) => error.to_string(),
    }
}

struct ValueReader<'a> {
    source: EventSource<&'a [u8]>,
    booleans: &'static [&'static str],
}

impl ValueReader<'_> {
    fn document_map(&mut self) -> Result<Map<String, Value>, ParserError> {
        let map = match self.first()? {
            YamlEvent::MappingStart => self.map()?,
            _ => return Err(self.source.invalid("it is not a map")),
        };
        self.source.end()?;
        Ok(map)
    }

    fn document_list(&mut self) -> Result<Vec<Value>, ParserError> {
        let list = match self.first()? {
            YamlEvent::SequenceStart => self.list()?,
            _ => return Err(self.source.invalid("it is not a list")),
        };
        self.source.end()?;
        Ok(list)
    }

    fn first(&mut self) -> Result<YamlEvent, ParserError> {
        if !self.source.begin()? {
            return Err(self.source.invalid("it is empty"));
        }
        self.source.next()
    }

    fn map(&mut self) -> Result<Map<String, Value>, ParserError> {
        let mut map = Map::new();
        self.pairs(false, &mut map)?;
        map.retain(|_, value| !value.is_null());
        Ok(map)
    }

    /// Reads the started map. As in Go, the last of two equal keys wins, and a merged map only fills gaps.
    fn pairs(&mut self, merged: bool, map: &mut Map<String, Value>) -> Result<(), ParserError> {
        loop {
            match self.source.next()? {
                YamlEvent::MappingEnd => return Ok(()),
                YamlEvent::Scalar(key) if key.plain && key.text == "<<" => self.merge(map)?,
                YamlEvent::Scalar(key) => {
                    let key = without_nul(key.text);
                    let event = self.source.next()?;
                    let value = self.value(event, &key)?;
                    if !merged || !map.contains_key(&key) {
                        map.insert(key, value);
                    }
                }
                // JSON has no keys that are lists or maps.
                _ => {
                    self.source.skip_rest()?;
                    self.source.skip()?;
                }
            }
        }
    }

    /// Merges a map or a list of maps. Other values are ignored.
    fn merge(&mut self, map: &mut Map<String, Value>) -> Result<(), ParserError> {
        match self.source.next()? {
            YamlEvent::MappingStart => self.pairs(true, map),
            YamlEvent::SequenceStart => loop {
                match self.source.next()? {
                    YamlEvent::MappingStart => self.pairs(true, map)?,
                    YamlEvent::SequenceStart => self.source.skip_rest()?,
                    YamlEvent::SequenceEnd => return Ok(()),
                    _ => {}
                }
            },
            _ => Ok(()),
        }
    }

    fn value(&mut self, event: YamlEvent, key: &str) -> Result<Value, ParserError> {
        match event {
            YamlEvent::Scalar(scalar) => Ok(self.scalar(scalar, key)),
            YamlEvent::MappingStart => Ok(Value::Object(self.map()?)),
            _ => self.list().map(Value::Array),
        }
    }

    fn list(&mut self) -> Result<Vec<Value>, ParserError> {
        let mut list = Vec::new();
        loop {
            match self.source.next()? {
                YamlEvent::SequenceEnd => return Ok(list),
                event => match self.value(event, "")? {
                    Value::Null => {}
                    value => list.push(value),
                },
            }
        }
    }

    fn scalar(&self, scalar: Scalar, key: &str) -> Value {
        match scalar.as_bool() {
            _ if scalar.is_null() => Value::Null,
            Some(value) if self.booleans.contains(&key) => Value::Bool(value),
            _ => Value::String(without_nul(scalar.text)),
        }
    }
}
