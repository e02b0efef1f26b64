use std::borrow::Cow;
use std::fmt;
use std::io::{BufReader, Read};
use std::rc::Rc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::collector::ChartCollector;
use super::error::{DecodeError, ParserError, Position};
use super::limits::DecodeLimits;
use super::metered_reader::{Meter, Metered, ReadFault};
use super::node::{self, Field, Fields, Node, Scalar};
use super::{Entries, Sink, TopLevel};

pub(super) fn read<R: Read, S: Sink>(
    input: &mut R,
    collector: &mut ChartCollector<'_, S>,
) -> Result<TopLevel, DecodeError<S::Error>> {
    parse_value(input, collector, |walk, deserializer| {
        IndexDocument(walk).deserialize(deserializer)
    })
}

type JsonParser<'r, R> = serde_json::Deserializer<serde_json::de::IoRead<BufReader<Metered<&'r mut R>>>>;

fn parse_value<'a, 'r, R: Read, S: Sink>(
    input: &'r mut R,
    collector: &mut ChartCollector<'a, S>,
    walk_over: impl FnOnce(&mut Walk<'_, 'a, S>, &mut JsonParser<'r, R>) -> Result<(), serde_json::Error>,
) -> Result<TopLevel, DecodeError<S::Error>> {
    let meter = Rc::new(Meter::default());
    let limit = collector.limits().max_bytes_without_progress();
    let metered = BufReader::with_capacity(64 * 1024, Metered::new(input, limit, Rc::clone(&meter)));
    let mut deserializer = serde_json::Deserializer::from_reader(metered);
    let mut walk = Walk {
        collector,
        meter: &meter,
        top_level: TopLevel::default(),
        stop: None,
    };
    let result = walk_over(&mut walk, &mut deserializer).and_then(|()| deserializer.end());
    let Walk { top_level, stop, .. } = walk;
    match (stop, meter.take_fault(), result) {
        (Some(DecodeError::TooComplex { limit, .. }), _, Err(error)) => Err(DecodeError::TooComplex {
            limit,
            position: position(&error),
        }),
        (Some(stop), _, _) => Err(stop),
        // The parser takes a fault for the end of the input.
        (None, Some(fault), Err(error)) => Err(parser_error(fault, limit, position(&error)).in_json()),
        (None, Some(fault), Ok(())) => Err(parser_error(fault, limit, Position { line: 1, column: 1 }).in_json()),
        (None, None, Err(error)) => Err(ParserError::invalid(&message(&error), position(&error)).in_json()),
        (None, None, Ok(())) => Ok(top_level),
    }
}

pub(super) fn versions<R: Read, S: Sink>(
    input: &mut R,
    collector: &mut ChartCollector<'_, S>,
) -> Result<(), DecodeError<S::Error>> {
    parse_value(input, collector, |walk, deserializer| {
        VersionList(walk).deserialize(deserializer)
    })
    .map(|_| ())
}

struct Walk<'w, 'a, S: Sink> {
    collector: &'w mut ChartCollector<'a, S>,
    meter: &'w Meter,
    top_level: TopLevel,
    stop: Option<DecodeError<S::Error>>,
}

impl<S: Sink> Walk<'_, '_, S> {
    fn check<T, E: serde::de::Error>(&mut self, result: Result<T, DecodeError<S::Error>>) -> Result<T, E> {
        self.meter.reset();
        result.map_err(|error| {
            self.stop = Some(error);
            E::custom("stopped")
        })
    }
}

fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((message, _)) => message.to_owned(),
        None => text,
    }
}

fn position(error: &serde_json::Error) -> Position {
    Position {
        line: error.line().max(1),
        column: error.column().max(1),
    }
}

fn parser_error(fault: ReadFault, limit: u64, position: Position) -> ParserError {
    match fault {
        ReadFault::Read(error) => ParserError::Read(error),
        ReadFault::NoProgress => {
            let limit = format!("a single text or chart version has more than {limit} bytes");
            ParserError::TooComplex { limit, position }
        }
        ReadFault::NotUtf8 | ReadFault::NulByte => ParserError::invalid("the bytes are not valid UTF-8", position),
    }
}

/// Placeholder: only the parser knows the position, and reports it after it was stopped.
const UNKNOWN_POSITION: Position = Position { line: 1, column: 1 };

struct IndexDocument<'d, 'w, 'a, S: Sink>(&'d mut Walk<'w, 'a, S>);

impl<'de, S: Sink> DeserializeSeed<'de> for IndexDocument<'_, '_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for IndexDocument<'_, '_, '_, S> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an index, which is a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let walk = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "entries" => {
                    if walk.collector.begin_entries(walk.top_level.entries.is_none(), false) {
                        walk.top_level.entries = Some(Entries::Empty);
                    }
                    map.next_value_seed(Charts(walk))?;
                }
                "apiVersion" => {
                    let value: Box<RawValue> = map.next_value()?;
                    walk.top_level.has_api_version |=
                        !matches!(value.get().as_bytes().first(), None | Some(b'n' | b'{' | b'['));
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            walk.meter.reset();
        }
        Ok(())
    }
}

macro_rules! visit_scalars {
    (null: $null:expr, other: $other:expr) => {
        fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
            $null(self)
        }
        fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
            $other(self)
        }
        fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
            $other(self)
        }
        fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
            $other(self)
        }
        fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
            $other(self)
        }
        fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
            $other(self)
        }
    };
}

struct Charts<'d, 'w, 'a, S: Sink>(&'d mut Walk<'w, 'a, S>);

impl<S: Sink> Charts<'_, '_, '_, S> {
    fn refuse<E: serde::de::Error>(self) -> Result<(), E> {
        self.0
            .check(Err(DecodeError::NotAnIndex("its entries are not a map".to_owned())))
    }
}

impl<'de, S: Sink> DeserializeSeed<'de> for Charts<'_, '_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Charts<'_, '_, '_, S> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map of charts")
    }

    visit_scalars!(null: |_| Ok(()), other: Self::refuse);

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        self.refuse()
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let walk = self.0;
        while let Some(key) = map.next_key::<String>()? {
            walk.top_level.entries = Some(Entries::NonEmpty);
            let is_selected = walk.collector.begin_chart(&key, false, UNKNOWN_POSITION);
            // Unselected charts are parsed too, and the collector drops their versions.
            walk.check(is_selected)?;
            map.next_value_seed(VersionList(walk))?;
            let ended = walk.collector.end_chart();
            walk.check(ended)?;
        }
        Ok(())
    }
}

struct VersionList<'d, 'w, 'a, S: Sink>(&'d mut Walk<'w, 'a, S>);

impl<S: Sink> VersionList<'_, '_, '_, S> {
    fn skip_chart<E>(self) -> Result<(), E> {
        self.0.collector.skip_chart();
        Ok(())
    }
}

impl<'de, S: Sink> DeserializeSeed<'de> for VersionList<'_, '_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for VersionList<'_, '_, '_, S> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of versions")
    }

    visit_scalars!(null: |_| Ok(()), other: Self::skip_chart);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            self.0.meter.reset();
        }
        self.skip_chart()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let walk = self.0;
        while let Some(raw) = list.next_element::<Box<RawValue>>()? {
            let mut left = walk.collector.limits().chart_bytes;
            let fields = fields(&raw, walk.collector.limits().depth, &mut left);
            let counted = match fields {
                Ok(fields) => walk.collector.add_version(Ok(fields), UNKNOWN_POSITION),
                Err(InvalidVersion::Reason(reason)) => walk.collector.add_version(Err(reason), UNKNOWN_POSITION),
                Err(InvalidVersion::TooLarge) => {
                    let limit = format!(
                        "a chart version takes more than {} bytes",
                        walk.collector.limits().chart_bytes
                    );
                    Err(DecodeError::TooComplex {
                        limit,
                        position: UNKNOWN_POSITION,
                    })
                }
            };
            walk.check(counted)?;
        }
        Ok(())
    }
}

pub(super) fn entry(raw: &RawValue, limits: &DecodeLimits) -> Result<Fields, &'static str> {
    let mut left = limits.chart_bytes;
    fields(raw, limits.depth, &mut left).map_err(|invalid| match invalid {
        InvalidVersion::Reason(reason) => reason,
        InvalidVersion::TooLarge => "it is too large",
    })
}

enum InvalidVersion {
    Reason(&'static str),
    TooLarge,
}

impl InvalidVersion {
    /// The text is valid JSON already, so only an unpaired surrogate can fail here.
    fn escape(_: serde_json::Error) -> Self {
        Self::Reason("one of its texts contains an unpaired surrogate")
    }
}

/// Parses the fields of a version level by level. This skips unused fields and keeps numbers as written.
fn fields(raw: &RawValue, depth: usize, left: &mut u64) -> Result<Fields, InvalidVersion> {
    match raw.get().as_bytes().first() {
        Some(b'{') => {}
        Some(b'n') => return Err(InvalidVersion::Reason("it is null")),
        Some(b'[') => return Err(InvalidVersion::Reason("it is a list, expected a map")),
        _ => return Err(InvalidVersion::Reason("it is a text, expected a map")),
    }
    let mut fields = Fields::default();
    for (key, value) in pairs(raw.get())? {
        if let Some(field) = Field::of(&key) {
            fields.put(field, node(value, depth, left)?, false);
        }
    }
    Ok(fields)
}

fn node(raw: &RawValue, depth: usize, left: &mut u64) -> Result<Node, InvalidVersion> {
    let text = raw.get();
    *left = left
        .checked_sub((size_of::<(String, Node)>() + text.len()) as u64)
        .ok_or(InvalidVersion::TooLarge)?;
    match text.as_bytes().first() {
        Some(b'"') => {
            let text = serde_json::from_str(text).map_err(InvalidVersion::escape)?;
            Ok(Node::Scalar(Scalar { text, plain: false }))
        }
        Some(b'{' | b'[') if depth == 0 => Err(InvalidVersion::Reason(node::TOO_DEEP)),
        Some(b'{') => {
            let mut map = Vec::new();
            for (key, value) in pairs(text)? {
                if node::is_used_nested_key(&key) {
                    node::put(&mut map, &key, node(value, depth - 1, left)?, false);
                }
            }
            Ok(Node::Map(map))
        }
        Some(b'[') => {
            let values: Vec<&RawValue> = serde_json::from_str(text).map_err(InvalidVersion::escape)?;
            let nodes = values.into_iter().map(|value| node(value, depth - 1, left));
            nodes.collect::<Result<_, _>>().map(Node::List)
        }
        _ => Ok(Node::Scalar(Scalar {
            text: text.to_owned(),
            plain: true,
        })),
    }
}

type Pair<'t> = (Cow<'t, str>, &'t RawValue);

fn pairs(text: &str) -> Result<Vec<Pair<'_>>, InvalidVersion> {
    struct Pairs;

    impl<'de> Visitor<'de> for Pairs {
        type Value = Vec<Pair<'de>>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some((key, value)) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                pairs.push((key.0, value));
            }
            Ok(pairs)
        }
    }

    /// Borrows keys without escapes. Serde would always allocate for a plain `Cow`.
    #[derive(serde::Deserialize)]
    struct Key<'t>(#[serde(borrow)] Cow<'t, str>);

    serde_json::Deserializer::from_str(text)
        .deserialize_map(Pairs)
        .map_err(InvalidVersion::escape)
}
