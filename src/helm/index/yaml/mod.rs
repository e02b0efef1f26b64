mod anchors;
pub(super) mod fast_path;
mod source;
pub(in crate::helm) mod value;

use std::convert::Infallible;
use std::io::Read;

use source::{EventSource, Notation, YamlEvent};

use super::collector::ChartCollector;
use super::error::{DecodeError, ParserError};
use super::limits::{DecodeLimits, LEVELS_ABOVE};
use super::node::{self, Field, Fields, Node};
use super::{Chart, Entries, Sink, TopLevel};

pub(super) fn read<R: Read, S: Sink>(
    input: &mut R,
    collector: &mut ChartCollector<'_, S>,
) -> Result<TopLevel, DecodeError<S::Error>> {
    let mut reader = IndexReader::new(EventSource::new(input, collector.limits()), collector);
    let top_level = reader.document()?;
    reader.source.end()?;
    Ok(top_level)
}

/// Returns the fields of a single version. The inner error is the reason why there are none.
pub(super) fn entry(bytes: &[u8], limits: &DecodeLimits) -> IndexOutcome<Result<Fields, &'static str>, Vec<Chart>> {
    let mut charts: Vec<Chart> = Vec::new();
    let mut collector = ChartCollector::new(limits, &mut charts);
    let mut reader = IndexReader::new(EventSource::new(bytes, limits), &mut collector);
    if !reader.source.begin()? {
        return Ok(Err("it contains only comments"));
    }
    let fields = match reader.source.next()? {
        YamlEvent::MappingStart => Ok(reader.fields()?),
        first => {
            if !matches!(first, YamlEvent::Scalar(_)) {
                reader.source.skip_rest()?;
            }
            Err("it is not a map")
        }
    };
    reader.source.end()?;
    Ok(fields)
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct YamlItem {
    pub(super) fields: Fields,
    /// Scalars, lists and maps, including the item itself, for [`DecodeLimits::nodes`].
    pub(super) nodes: u64,
    /// Line in the slice, from 0, that contains the key `created` and all of its value, in block style and without
    /// anchor or tag. None if there is no such key or more than one.
    pub(super) created_line: Option<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidItem {
    pub(super) reason: &'static str,
    pub(super) nodes: u64,
}

#[derive(Debug)]
pub(super) enum ItemError {
    /// Anchors and aliases may cross slices and have limits for the whole index.
    Anchored,
    NotASingleItem,
    ParserError(DecodeError<Infallible>),
}

impl<E: Into<DecodeError<Infallible>>> From<E> for ItemError {
    fn from(rejected: E) -> Self {
        Self::ParserError(rejected.into())
    }
}

/// Parses a list of one item, as part of its chart. The inner error is the reason why the item is invalid.
pub(super) fn item(slice: &[u8], limits: &DecodeLimits) -> Result<Result<YamlItem, InvalidItem>, ItemError> {
    // The list and the item are two of the levels above the content of a version.
    const LEVELS_OF_SLICE: usize = 2;
    let mut charts: Vec<Chart> = Vec::new();
    let mut collector = ChartCollector::new(limits, &mut charts);
    let source = EventSource::below(LEVELS_ABOVE - LEVELS_OF_SLICE, slice, limits);
    let mut reader = IndexReader::new(source, &mut collector);
    let item = reader.single_item();
    if reader.source.has_anchors() {
        return Err(ItemError::Anchored);
    }
    item
}

/// Each key is true if its value is null. Returns None for anything but a single map, and for anchors and merge keys.
pub(super) fn keys(text: &[u8], limits: &DecodeLimits) -> Option<Vec<(String, bool)>> {
    let mut source = EventSource::new(text, limits);
    let mut keys = Vec::new();
    if !source.begin().ok()? || !matches!(source.next().ok()?, YamlEvent::MappingStart) {
        return None;
    }
    loop {
        match source.next().ok()? {
            YamlEvent::MappingEnd => break,
            YamlEvent::Scalar(key) if key.text != "<<" => {
                let is_null = match source.next().ok()? {
                    YamlEvent::Scalar(value) => value.is_null(),
                    _ => {
                        source.skip_rest().ok()?;
                        false
                    }
                };
                keys.push((key.text, is_null));
            }
            _ => return None,
        }
    }
    source.end().ok()?;
    (!source.has_anchors()).then_some(keys)
}

struct IndexReader<'c, 'a, R: Read, S: Sink> {
    source: EventSource<R>,
    collector: &'c mut ChartCollector<'a, S>,
    left: u64,
    created_line: Option<usize>,
}

type IndexOutcome<T, S> = Result<T, DecodeError<<S as Sink>::Error>>;

/// Handles the value of a key and must read or skip exactly one node. The flag is true for a merged pair.
type ValueHandler<'v, Reader, E> = dyn FnMut(&mut Reader, &str, bool) -> Result<(), DecodeError<E>> + 'v;

impl<'c, 'a, R: Read, S: Sink> IndexReader<'c, 'a, R, S> {
    const fn new(source: EventSource<R>, collector: &'c mut ChartCollector<'a, S>) -> Self {
        Self {
            source,
            collector,
            left: 0,
            created_line: None,
        }
    }

    fn document(&mut self) -> IndexOutcome<TopLevel, S> {
        if !self.source.begin()? {
            let reason = "the response contains only comments";
            return Err(DecodeError::NotAnIndex(reason.to_owned()));
        }
        match self.source.next()? {
            YamlEvent::MappingStart => {}
            YamlEvent::SequenceStart => return Err(DecodeError::NotAnIndex("it is a list".to_owned())),
            _ => {
                // Plain text is valid YAML, so an error page may get this far. The rest may still be invalid YAML.
                self.source.end()?;
                return Err(DecodeError::NotAnIndex("it is plain text".to_owned()));
            }
        }
        let mut top_level = TopLevel::default();
        self.mapping(false, &mut |reader, key, merged| match key {
            "entries" => reader.entries(&mut top_level, merged),
            "apiVersion" => {
                top_level.has_api_version |= reader.read_is_set()?;
                Ok(())
            }
            _ => Ok(reader.source.skip()?),
        })?;
        Ok(top_level)
    }

    fn read_is_set(&mut self) -> Result<bool, ParserError> {
        match self.source.next()? {
            YamlEvent::Scalar(scalar) => Ok(!scalar.is_null()),
            _ => {
                self.source.skip_rest()?;
                Ok(false)
            }
        }
    }

    fn entries(&mut self, top_level: &mut TopLevel, merged: bool) -> IndexOutcome<(), S> {
        if !self.collector.begin_entries(top_level.entries.is_none(), merged) {
            return Ok(self.source.skip()?);
        }
        top_level.entries = Some(Entries::Empty);
        match self.source.next()? {
            YamlEvent::Scalar(scalar) if scalar.is_null() => Ok(()),
            YamlEvent::MappingStart => self.mapping(false, &mut |reader, key, merged| {
                top_level.entries = Some(Entries::NonEmpty);
                reader.chart(key, merged)
            }),
            _ => Err(DecodeError::NotAnIndex(format!(
                "its entries are not a map ({})",
                self.source.position()
            ))),
        }
    }

    fn chart(&mut self, key: &str, merged: bool) -> IndexOutcome<(), S> {
        if !self.collector.begin_chart(key, merged, self.source.position())? {
            return Ok(self.source.skip()?);
        }
        match self.source.next()? {
            YamlEvent::SequenceStart => self.versions()?,
            YamlEvent::Scalar(scalar) if scalar.is_null() => {}
            YamlEvent::Scalar(_) => self.collector.skip_chart(),
            _ => {
                self.source.skip_rest()?;
                self.collector.skip_chart();
            }
        }
        self.collector.end_chart()?;
        Ok(())
    }

    fn versions(&mut self) -> IndexOutcome<(), S> {
        loop {
            let position = self.source.position();
            match self.source.next()? {
                YamlEvent::SequenceEnd => return Ok(()),
                first => {
                    let fields = self.version(&first)?;
                    self.collector.add_version(fields, position)?;
                }
            }
        }
    }

    /// Returns the fields, or the reason why there are none.
    fn version(&mut self, first: &YamlEvent) -> IndexOutcome<Result<Fields, &'static str>, S> {
        // The depth of an expanded alias is checked before, so that only a version in the text can be too deep.
        let depth = self.source.depth();
        match self.version_fields(first) {
            Err(_) if self.source.take_too_deep() => {
                self.source.leave(depth)?;
                Ok(Err(node::TOO_DEEP))
            }
            read => read,
        }
    }

    fn version_fields(&mut self, first: &YamlEvent) -> IndexOutcome<Result<Fields, &'static str>, S> {
        Ok(match first {
            YamlEvent::MappingStart => Ok(self.fields()?),
            YamlEvent::Scalar(scalar) if scalar.is_null() => Err("it is null"),
            YamlEvent::Scalar(_) => Err("it is a text, expected a map"),
            _ => {
                self.source.skip_rest()?;
                Err("it is a list, expected a map")
            }
        })
    }

    fn fields(&mut self) -> IndexOutcome<Fields, S> {
        self.left = self.collector.limits().chart_bytes;
        self.created_line = None;
        let in_block = self.source.notation() == Notation::Block;
        let mut fields = Fields::default();
        self.mapping(false, &mut |reader, key, merged| {
            let key_notation = reader.source.notation();
            match Field::of(key) {
                None => reader.source.skip()?,
                Some(field) => {
                    let node = reader.node()?;
                    if field == Field::Created && !merged {
                        let is_first = in_block && !fields.has(field);
                        reader.created_line = reader.source.notation().line_of_pair(key_notation).filter(|_| is_first);
                    }
                    fields.put(field, node, merged);
                }
            }
            Ok(())
        })?;
        Ok(fields)
    }

    fn node(&mut self) -> IndexOutcome<Node, S> {
        let first = self.source.next()?;
        self.node_from(first)
    }

    fn node_from(&mut self, first: YamlEvent) -> IndexOutcome<Node, S> {
        self.take(size_of::<(String, Node)>() as u64 + first.text_bytes())?;
        match first {
            YamlEvent::Scalar(scalar) => Ok(Node::Scalar(scalar)),
            YamlEvent::MappingStart => {
                let mut map = Vec::new();
                self.mapping(false, &mut |reader, key, merged| {
                    if node::is_used_nested_key(key) {
                        let node = reader.node()?;
                        node::put(&mut map, key, node, merged);
                        Ok(())
                    } else {
                        Ok(reader.source.skip()?)
                    }
                })?;
                Ok(Node::Map(map))
            }
            _ => {
                let mut list = Vec::new();
                loop {
                    match self.source.next()? {
                        YamlEvent::SequenceEnd => return Ok(Node::List(list)),
                        event => list.push(self.node_from(event)?),
                    }
                }
            }
        }
    }

    fn take(&mut self, bytes: u64) -> Result<(), ParserError> {
        let limit = self.collector.limits().chart_bytes;
        let too_large = || format!("a chart version takes more than {limit} bytes");
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| self.source.too_complex(too_large()))?;
        Ok(())
    }

    /// Reads the started map, passes each scalar key to `visit` and follows merge keys (`<<`).
    fn mapping(&mut self, merged: bool, visit: &mut ValueHandler<'_, Self, S::Error>) -> IndexOutcome<(), S> {
        loop {
            match self.source.next()? {
                YamlEvent::MappingEnd => return Ok(()),
                YamlEvent::Scalar(key) if key.plain && key.text == "<<" => self.merge(visit)?,
                YamlEvent::Scalar(key) => visit(self, &key.text, merged)?,
                // Keys that are lists or maps are unknown.
                _ => {
                    self.source.skip_rest()?;
                    self.source.skip()?;
                }
            }
        }
    }

    /// Merges a map or a list of maps. Other values are ignored.
    fn merge(&mut self, visit: &mut ValueHandler<'_, Self, S::Error>) -> IndexOutcome<(), S> {
        match self.source.next()? {
            YamlEvent::MappingStart => self.mapping(true, visit),
            YamlEvent::SequenceStart => loop {
                match self.source.next()? {
                    YamlEvent::MappingStart => self.mapping(true, visit)?,
                    YamlEvent::SequenceStart => self.source.skip_rest()?,
                    YamlEvent::SequenceEnd => return Ok(()),
                    _ => {}
                }
            },
            _ => Ok(()),
        }
    }
}

impl<S: Sink<Error = Infallible>> IndexReader<'_, '_, &[u8], S> {
    fn single_item(&mut self) -> Result<Result<YamlItem, InvalidItem>, ItemError> {
        if !self.source.begin()?
            || !matches!(self.source.next()?, YamlEvent::SequenceStart)
            || self.source.notation() != Notation::Block
        {
            return Err(ItemError::NotASingleItem);
        }
        let fields = match self.source.next()? {
            YamlEvent::SequenceEnd => return Err(ItemError::NotASingleItem),
            first => self.version(&first)?,
        };
        if !matches!(self.source.next()?, YamlEvent::SequenceEnd) {
            return Err(ItemError::NotASingleItem);
        }
        self.source.end()?;
        // The list around the item does not count.
        let nodes = self.source.nodes() - 1;
        let created_line = self.created_line.map(|line| line - 1);
        Ok(match fields {
            Ok(fields) => Ok(YamlItem {
                fields,
                nodes,
                created_line,
            }),
            Err(reason) => Err(InvalidItem { reason, nodes }),
        })
    }
}
