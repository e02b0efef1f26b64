//! An index in YAML.

mod anchors;
pub(super) mod fast_path;
mod source;

use std::convert::Infallible;
use std::io::Read;

use source::{Event, Notation, Source};

use super::collector::Collector;
use super::error::{DecodeError, Refused};
use super::limits::{DecodeLimits, LEVELS_ABOVE};
use super::node::{self, Field, Fields, Node};
use super::{Chart, Entries, Shape, Sink};

/// Reads one document from here to its end.
pub(super) fn read<R: Read, S: Sink>(
    input: &mut R,
    collector: &mut Collector<'_, S>,
) -> Result<Shape, DecodeError<S::Error>> {
    let limits = *collector.limits();
    let mut reader = Reader {
        source: Source::new(input, &limits),
        collector,
        limits,
        left: 0,
        created_line: None,
    };
    let shape = reader.document()?;
    reader.source.end()?;
    Ok(shape)
}

/// The fields of a version that stands by itself; the inner error says why there are none.
pub(super) fn entry(bytes: &[u8], limits: &DecodeLimits) -> Outcome<Result<Fields, &'static str>, Vec<Chart>> {
    let mut charts: Vec<Chart> = Vec::new();
    let mut reader = Reader {
        source: Source::new(bytes, limits),
        collector: &mut Collector::new(limits, &mut charts),
        limits: *limits,
        left: 0,
        created_line: None,
    };
    if !reader.source.begin()? {
        return Ok(Err("it holds nothing but comments"));
    }
    let fields = match reader.source.next()? {
        Event::MappingStart => Ok(reader.fields()?),
        first => {
            if !matches!(first, Event::Scalar(_)) {
                reader.source.skip_rest()?;
            }
            Err("it is no map")
        }
    };
    reader.source.end()?;
    Ok(fields)
}

/// One version of a chart as it is cut out of an index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) fields: Fields,
    /// Scalars, lists and maps, the item itself included: what it counts for [`DecodeLimits::nodes`].
    pub(super) nodes: u64,
    /// The line of the slice, from 0, on which the item's key `created` stands in block style with the whole of its value, a
    /// text with neither anchor nor tag. None: there is no such key, or two.
    pub(super) created_line: Option<usize>,
}

/// An item that is no map, so that it can't be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoMap {
    /// As a sentence about it.
    pub(super) reason: &'static str,
    /// As in [`Item`].
    pub(super) nodes: u64,
}

/// Why a slice is not read as the one item that it should hold.
#[derive(Debug)]
pub(super) enum NoItem {
    /// It has anchors or aliases, which may reach over its ends, and have limits of their own in the whole index.
    Anchored,
    /// It is no list in block style, or has none or more than one item.
    NotAlone,
    /// What the parser or a limit says of it, with positions in the slice.
    Refused(DecodeError<Infallible>),
}

impl<E: Into<DecodeError<Infallible>>> From<E> for NoItem {
    fn from(refused: E) -> Self {
        Self::Refused(refused.into())
    }
}

/// Reads a slice of an index that should be a list of one item, as if it stood in its chart. The inner error says why that
/// one can't be used.
pub(super) fn item(slice: &[u8], limits: &DecodeLimits) -> Result<Result<Item, NoMap>, NoItem> {
    // The list and the item itself are on the levels above what is in a version.
    const LEVELS_OF_SLICE: usize = 2;
    let mut charts: Vec<Chart> = Vec::new();
    let mut reader = Reader {
        source: Source::below(LEVELS_ABOVE - LEVELS_OF_SLICE, slice, limits),
        collector: &mut Collector::new(limits, &mut charts),
        limits: *limits,
        left: 0,
        created_line: None,
    };
    let item = reader.lone_item();
    if reader.source.is_anchored() {
        return Err(NoItem::Anchored);
    }
    item
}

/// The keys of a text that is one map by itself, in order, each with whether its value is null. Nothing where it is anything else,
/// or where its keys might mean something else among others.
pub(super) fn keys(text: &[u8], limits: &DecodeLimits) -> Option<Vec<(String, bool)>> {
    let mut source = Source::new(text, limits);
    let mut keys = Vec::new();
    if !source.begin().ok()? || !matches!(source.next().ok()?, Event::MappingStart) {
        return None;
    }
    loop {
        match source.next().ok()? {
            Event::MappingEnd => break,
            Event::Scalar(key) if key.text != "<<" => {
                let is_null = match source.next().ok()? {
                    Event::Scalar(value) => value.is_null(),
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
    (!source.is_anchored()).then_some(keys)
}

struct Reader<'c, 'a, R: Read, S: Sink> {
    source: Source<R>,
    collector: &'c mut Collector<'a, S>,
    limits: DecodeLimits,
    /// Bytes that the version at hand may still take.
    left: u64,
    /// Of the version at hand, as in [`Item`], but from 1.
    created_line: Option<usize>,
}

/// The outcome of a step that may also fail in the sink.
type Outcome<T, S> = Result<T, DecodeError<<S as Sink>::Error>>;

/// What takes the value of a key: it must read or skip exactly one node. The flag tells that the pair was merged in.
type Visit<'v, Reader, E> = dyn FnMut(&mut Reader, &str, bool) -> Result<(), DecodeError<E>> + 'v;

impl<R: Read, S: Sink> Reader<'_, '_, R, S> {
    fn document(&mut self) -> Outcome<Shape, S> {
        if !self.source.begin()? {
            return Err(DecodeError::NotAnIndex(
                "the answer holds nothing but comments".to_owned(),
            ));
        }
        match self.source.next()? {
            Event::MappingStart => {}
            Event::SequenceStart => return Err(DecodeError::NotAnIndex("it is a list".to_owned())),
            _ => return self.text_document(),
        }
        let mut shape = Shape::default();
        self.mapping(false, &mut |reader, key, merged| match key {
            "entries" => reader.entries(&mut shape, merged),
            "apiVersion" => {
                shape.has_api_version |= reader.is_something()?;
                Ok(())
            }
            _ => Ok(reader.source.skip()?),
        })?;
        Ok(shape)
    }

    /// Plain words are valid YAML, so a page of text gets this far; what follows them tells whether it is YAML at all.
    fn text_document(&mut self) -> Outcome<Shape, S> {
        self.source.end()?;
        Err(DecodeError::NotAnIndex("it is a plain text".to_owned()))
    }

    /// Passes over a value that only has to be there.
    fn is_something(&mut self) -> Result<bool, Refused> {
        match self.source.next()? {
            Event::Scalar(scalar) => Ok(!scalar.is_null()),
            _ => {
                self.source.skip_rest()?;
                Ok(false)
            }
        }
    }

    fn entries(&mut self, shape: &mut Shape, merged: bool) -> Outcome<(), S> {
        if !self.collector.begin_entries(shape.entries.is_none(), merged) {
            return Ok(self.source.skip()?);
        }
        shape.entries = Some(Entries::Nothing);
        match self.source.next()? {
            Event::Scalar(scalar) if scalar.is_null() => Ok(()),
            Event::MappingStart => self.mapping(false, &mut |reader, key, merged| {
                shape.entries = Some(Entries::Something);
                reader.chart(key, merged)
            }),
            _ => Err(DecodeError::NotAnIndex(format!(
                "its entries are no map ({})",
                self.source.position()
            ))),
        }
    }

    fn chart(&mut self, key: &str, merged: bool) -> Outcome<(), S> {
        if !self.collector.begin_chart(key, merged, self.source.position())? {
            return Ok(self.source.skip()?);
        }
        match self.source.next()? {
            Event::SequenceStart => self.versions()?,
            Event::Scalar(scalar) if scalar.is_null() => {}
            Event::Scalar(_) => self.collector.no_list(),
            _ => {
                self.source.skip_rest()?;
                self.collector.no_list();
            }
        }
        self.collector.end_chart()?;
        Ok(())
    }

    fn versions(&mut self) -> Outcome<(), S> {
        loop {
            let position = self.source.position();
            match self.source.next()? {
                Event::SequenceEnd => return Ok(()),
                first => {
                    let fields = self.version(&first)?;
                    self.collector.version(fields, position)?;
                }
            }
        }
    }

    /// The version that begins with this event; the inner error says why it can't be used.
    fn version(&mut self, first: &Event) -> Outcome<Result<Fields, &'static str>, S> {
        Ok(match first {
            Event::MappingStart => Ok(self.fields()?),
            Event::Scalar(scalar) if scalar.is_null() => Err("it is null"),
            Event::Scalar(_) => Err("it is a text where a map is wanted"),
            _ => {
                self.source.skip_rest()?;
                Err("it is a list where a map is wanted")
            }
        })
    }

    fn fields(&mut self) -> Outcome<Fields, S> {
        self.left = self.limits.chart_bytes;
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

    fn node(&mut self) -> Outcome<Node, S> {
        let first = self.source.next()?;
        self.node_from(first)
    }

    /// Recursive, within the source's limit of depth.
    fn node_from(&mut self, first: Event) -> Outcome<Node, S> {
        self.take(size_of::<(String, Node)>() as u64 + first.text_bytes())?;
        match first {
            Event::Scalar(scalar) => Ok(Node::Scalar(scalar)),
            Event::MappingStart => {
                let mut map = Vec::new();
                self.mapping(false, &mut |reader, key, merged| {
                    if node::is_wanted_below_a_field(key) {
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
                        Event::SequenceEnd => return Ok(Node::List(list)),
                        event => list.push(self.node_from(event)?),
                    }
                }
            }
        }
    }

    /// Counts what a version makes us hold.
    fn take(&mut self, bytes: u64) -> Result<(), Refused> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(self.source.too_complex(format!(
                "a chart version takes more than {} bytes",
                self.limits.chart_bytes
            ))),
        }
    }

    /// Reads the map that has begun: each key that is a text goes to `visit`, merge keys (`<<`) are followed.
    fn mapping(&mut self, merged: bool, visit: &mut Visit<'_, Self, S::Error>) -> Outcome<(), S> {
        loop {
            match self.source.next()? {
                Event::MappingEnd => return Ok(()),
                Event::Scalar(key) if key.plain && key.text == "<<" => self.merge(visit)?,
                Event::Scalar(key) => visit(self, &key.text, merged)?,
                // A key that is a list or a map is no key that we know.
                _ => {
                    self.source.skip_rest()?;
                    self.source.skip()?;
                }
            }
        }
    }

    /// The value of a merge key: a map, or a list of maps. Anything else merges nothing.
    fn merge(&mut self, visit: &mut Visit<'_, Self, S::Error>) -> Outcome<(), S> {
        match self.source.next()? {
            Event::MappingStart => self.mapping(true, visit),
            Event::SequenceStart => loop {
                match self.source.next()? {
                    Event::MappingStart => self.mapping(true, visit)?,
                    Event::SequenceStart => self.source.skip_rest()?,
                    Event::SequenceEnd => return Ok(()),
                    _ => {}
                }
            },
            _ => Ok(()),
        }
    }
}

impl<S: Sink<Error = Infallible>> Reader<'_, '_, &[u8], S> {
    fn lone_item(&mut self) -> Result<Result<Item, NoMap>, NoItem> {
        if !self.source.begin()?
            || !matches!(self.source.next()?, Event::SequenceStart)
            || self.source.notation() != Notation::Block
        {
            return Err(NoItem::NotAlone);
        }
        let fields = match self.source.next()? {
            Event::SequenceEnd => return Err(NoItem::NotAlone),
            first => self.version(&first)?,
        };
        if !matches!(self.source.next()?, Event::SequenceEnd) {
            return Err(NoItem::NotAlone);
        }
        self.source.end()?;
        // The list is none of its own.
        let nodes = self.source.nodes() - 1;
        let created_line = self.created_line.map(|line| line - 1);
        Ok(match fields {
            Ok(fields) => Ok(Item {
                fields,
                nodes,
                created_line,
            }),
            Err(reason) => Err(NoMap { reason, nodes }),
        })
    }
}
