//! An index in YAML.

mod anchors;
mod source;

use std::io::Read;

use source::{Event, Source};

use super::collect::Collector;
use super::error::{DecodeError, Refused};
use super::limits::DecodeLimits;
use super::node::{self, Field, Fields, Node, Scalar};
use super::{Chart, Entries, Shape, Sink, created};

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

/// A chart version that was read from its own lines.
pub(super) struct Slice {
    /// Its fields, or why there are none.
    pub(super) fields: Result<Fields, &'static str>,
    /// How many nodes it is made of, its own one included.
    pub(super) nodes: u64,
    /// Its line, counted from 0, on which its own key `created` stands with a time behind it, and nothing else.
    pub(super) created_line: Option<usize>,
    /// It holds an anchor or an alias.
    pub(super) has_anchors: bool,
}

/// Reads the lines of one chart version, the first of which has `column` spaces and a dash in front. They have to be a list of
/// exactly one item by themselves.
pub(super) fn slice(bytes: &[u8], _column: usize, limits: &DecodeLimits) -> Outcome<Slice, Vec<Chart>> {
    let mut charts: Vec<Chart> = Vec::new();
    let mut reader = Reader {
        source: Source::new(bytes, limits),
        collector: &mut Collector::new(limits, &mut charts),
        limits: *limits,
        left: 0,
        created_line: None,
    };
    // Where it stands it is below the index and its entries.
    reader.source.begin_below(2);
    if !reader.source.begin()? || !matches!(reader.source.next()?, Event::SequenceStart) {
        return Err(reader.source.invalid("a version is no item of a list").into());
    }
    let fields = match reader.source.next()? {
        Event::MappingStart => Ok(reader.fields()?),
        Event::SequenceStart => {
            reader.source.skip_rest()?;
            Err(A_LIST)
        }
        Event::Scalar(scalar) => Err(scalar_is_no_map(&scalar)),
        _ => return Err(reader.source.invalid("a version is no item of a list").into()),
    };
    if !matches!(reader.source.next()?, Event::SequenceEnd) {
        return Err(reader.source.invalid("two versions stand where one should").into());
    }
    reader.source.end()?;
    Ok(Slice {
        fields,
        // The list is one.
        nodes: reader.source.nodes().saturating_sub(1),
        created_line: reader.created_line,
        has_anchors: reader.source.has_anchors(),
    })
}

const A_LIST: &str = "it is a list where a map is wanted";

/// Why a version that is a scalar is none.
fn scalar_is_no_map(scalar: &Scalar) -> &'static str {
    if scalar.is_null() {
        "it is null"
    } else {
        "it is a text where a map is wanted"
    }
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
    (!source.has_anchors()).then_some(keys)
}

struct Reader<'c, 'a, R: Read, S: Sink> {
    source: Source<R>,
    collector: &'c mut Collector<'a, S>,
    limits: DecodeLimits,
    /// Bytes that the version at hand may still take.
    left: u64,
    /// See [`Slice::created_line`], of the last version.
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
                Event::MappingStart => {
                    let fields = self.fields()?;
                    self.collector.version(Ok(fields), position)?;
                }
                Event::SequenceStart => {
                    self.source.skip_rest()?;
                    self.collector.version(Err(A_LIST), position)?;
                }
                Event::Scalar(scalar) => self.collector.version(Err(scalar_is_no_map(&scalar)), position)?,
                Event::MappingEnd | Event::Alias(_) => {}
            }
        }
    }

    fn fields(&mut self) -> Outcome<Fields, S> {
        self.left = self.limits.chart_bytes;
        let mut fields = Fields::default();
        self.mapping(false, &mut |reader, key, merged| {
            match Field::of(key) {
                None => reader.source.skip()?,
                Some(field) => {
                    let line = reader.source.position().line;
                    let node = reader.node()?;
                    if field == Field::Created && !merged {
                        reader.created_line = reader.is_time_in(line, &node).then(|| line - 1);
                    }
                    fields.put(field, node, merged);
                }
            }
            Ok(())
        })?;
        Ok(fields)
    }

    /// Whether the node that was read last is a time in this line. What would reach into the next line is none by its form.
    fn is_time_in(&self, line: usize, node: &Node) -> bool {
        self.source.position().line == line
            && matches!(node, Node::Scalar(scalar) if created::is_time(scalar.text.as_bytes()))
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
