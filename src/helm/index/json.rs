//! An index in JSON.

use std::borrow::Cow;
use std::fmt;
use std::io::{BufReader, Read};
use std::rc::Rc;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::collector::Collector;
use super::error::{DecodeError, Position, Refused};
use super::limits::DecodeLimits;
use super::metered_reader::{Fault, Meter, Metered};
use super::node::{self, Field, Fields, Node, Scalar};
use super::{Entries, Shape, Sink};

/// Reads one value from here to the end of the bytes.
pub(super) fn read<R: Read, S: Sink>(
    input: &mut R,
    collector: &mut Collector<'_, S>,
) -> Result<Shape, DecodeError<S::Error>> {
    walked(input, collector, |walk, deserializer| {
        Document(walk).deserialize(deserializer)
    })
}

/// The parser over what is read, which is counted on the way.
type Parser<'r, R> = serde_json::Deserializer<serde_json::de::IoRead<BufReader<Metered<&'r mut R>>>>;

/// Walks over one value, behind which nothing may follow.
fn walked<'a, 'r, R: Read, S: Sink>(
    input: &'r mut R,
    collector: &mut Collector<'a, S>,
    walk_over: impl FnOnce(&mut Walk<'_, 'a, S>, &mut Parser<'r, R>) -> Result<(), serde_json::Error>,
) -> Result<Shape, DecodeError<S::Error>> {
    let meter = Rc::new(Meter::default());
    let limit = collector.limits().unbroken_bytes();
    let metered = BufReader::with_capacity(64 * 1024, Metered::new(input, limit, Rc::clone(&meter)));
    let mut deserializer = serde_json::Deserializer::from_reader(metered);
    let mut walk = Walk {
        collector,
        meter: &meter,
        shape: Shape::default(),
        stop: None,
    };
    let result = walk_over(&mut walk, &mut deserializer).and_then(|()| deserializer.end());
    let Walk { shape, stop, .. } = walk;
    match (stop, meter.take_fault(), result) {
        (Some(DecodeError::TooComplex { limit, .. }), _, Err(error)) => Err(DecodeError::TooComplex {
            limit,
            position: position(&error),
        }),
        (Some(stop), _, _) => Err(stop),
        // To the parser a fault looks like the end of the text.
        (None, Some(fault), Err(error)) => Err(refused(fault, limit, position(&error)).in_json()),
        (None, Some(fault), Ok(())) => Err(refused(fault, limit, Position { line: 1, column: 1 }).in_json()),
        (None, None, Err(error)) => Err(Refused::invalid(&message(&error), position(&error)).in_json()),
        (None, None, Ok(())) => Ok(shape),
    }
}

/// Reads the versions of a chart, a list that stands by itself.
pub(super) fn versions<R: Read, S: Sink>(
    input: &mut R,
    collector: &mut Collector<'_, S>,
) -> Result<(), DecodeError<S::Error>> {
    walked(input, collector, |walk, deserializer| {
        Versions(walk).deserialize(deserializer)
    })
    .map(|_| ())
}

/// What all visitors work on.
struct Walk<'w, 'a, S: Sink> {
    collector: &'w mut Collector<'a, S>,
    meter: &'w Meter,
    shape: Shape,
    /// Why it ended, where that is not the fault of the JSON.
    stop: Option<DecodeError<S::Error>>,
}

impl<S: Sink> Walk<'_, '_, S> {
    /// Ends the parsing if that is what the collector says.
    fn check<T, E: serde::de::Error>(&mut self, result: Result<T, DecodeError<S::Error>>) -> Result<T, E> {
        self.meter.reset();
        result.map_err(|error| {
            self.stop = Some(error);
            E::custom("stopped")
        })
    }
}

/// The parser says what is wrong and where in one text.
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

fn refused(fault: Fault, limit: u64, position: Position) -> Refused {
    match fault {
        Fault::Read(error) => Refused::Read(error),
        Fault::Unbroken => {
            let limit = format!("a single text or chart version has more than {limit} bytes");
            Refused::TooComplex { limit, position }
        }
        Fault::NotUtf8 | Fault::NulByte => Refused::invalid("the bytes are no UTF-8 text", position),
    }
}

/// The place is known to the parser alone, which tells it when it has been stopped.
const SOMEWHERE: Position = Position { line: 1, column: 1 };

/// The whole document.
struct Document<'d, 'w, 'a, S: Sink>(&'d mut Walk<'w, 'a, S>);

impl<'de, S: Sink> DeserializeSeed<'de> for Document<'_, '_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Document<'_, '_, '_, S> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the map that an index is")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let walk = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "entries" => {
                    if walk.collector.begin_entries(walk.shape.entries.is_none(), false) {
                        walk.shape.entries = Some(Entries::Nothing);
                    }
                    map.next_value_seed(Charts(walk))?;
                }
                "apiVersion" => {
                    let value: Box<RawValue> = map.next_value()?;
                    walk.shape.has_api_version |=
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

/// Declares the visits of values that are neither lists nor maps, all alike but null.
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

/// The value of `entries`.
struct Charts<'d, 'w, 'a, S: Sink>(&'d mut Walk<'w, 'a, S>);

impl<S: Sink> Charts<'_, '_, '_, S> {
    fn refuse<E: serde::de::Error>(self) -> Result<(), E> {
        self.0
            .check(Err(DecodeError::NotAnIndex("its entries are no map".to_owned())))
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
            walk.shape.entries = Some(Entries::Something);
            let wanted = walk.collector.begin_chart(&key, false, SOMEWHERE);
            // One that is not wanted takes the same way, and the collector lets its versions go.
            walk.check(wanted)?;
            map.next_value_seed(Versions(walk))?;
            let ended = walk.collector.end_chart();
            walk.check(ended)?;
        }
        Ok(())
    }
}

/// The versions of a chart.
struct Versions<'d, 'w, 'a, S: Sink>(&'d mut Walk<'w, 'a, S>);

impl<S: Sink> Versions<'_, '_, '_, S> {
    fn no_list<E>(self) -> Result<(), E> {
        self.0.collector.no_list();
        Ok(())
    }
}

impl<'de, S: Sink> DeserializeSeed<'de> for Versions<'_, '_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Versions<'_, '_, '_, S> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of versions")
    }

    visit_scalars!(null: |_| Ok(()), other: Self::no_list);

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            self.0.meter.reset();
        }
        self.no_list()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let walk = self.0;
        while let Some(raw) = list.next_element::<Box<RawValue>>()? {
            let mut left = walk.collector.limits().chart_bytes;
            let fields = fields(&raw, walk.collector.limits().depth, &mut left);
            let counted = match fields {
                Ok(fields) => walk.collector.version(Ok(fields), SOMEWHERE),
                Err(Unread::Reason(reason)) => walk.collector.version(Err(reason), SOMEWHERE),
                Err(Unread::TooLarge) => {
                    let limit = format!(
                        "a chart version takes more than {} bytes",
                        walk.collector.limits().chart_bytes
                    );
                    Err(DecodeError::TooComplex {
                        limit,
                        position: SOMEWHERE,
                    })
                }
            };
            walk.check(counted)?;
        }
        Ok(())
    }
}

/// The fields of a version that stands by itself.
pub(super) fn entry(raw: &RawValue, limits: &DecodeLimits) -> Result<Fields, &'static str> {
    let mut left = limits.chart_bytes;
    fields(raw, limits.depth, &mut left).map_err(|unread| match unread {
        Unread::Reason(reason) => reason,
        Unread::TooLarge => "it is too large",
    })
}

/// Why a version can't be read.
enum Unread {
    Reason(&'static str),
    TooLarge,
}

impl Unread {
    /// The parser has been over these bytes once, so all that can be left to object to is half of a surrogate pair.
    fn escape(_: serde_json::Error) -> Self {
        Self::Reason("one of its texts holds an escape that stands for no character")
    }
}

/// The fields of a version. Each level is read by itself, so that only what is wanted is looked into, and so that numbers
/// keep the text in which they are written.
fn fields(raw: &RawValue, depth: usize, left: &mut u64) -> Result<Fields, Unread> {
    match raw.get().as_bytes().first() {
        Some(b'{') => {}
        Some(b'n') => return Err(Unread::Reason("it is null")),
        Some(b'[') => return Err(Unread::Reason("it is a list where a map is wanted")),
        _ => return Err(Unread::Reason("it is a text where a map is wanted")),
    }
    let mut fields = Fields::default();
    for (key, value) in pairs(raw.get())? {
        if let Some(field) = Field::of(&key) {
            fields.put(field, node(value, depth, left)?, false);
        }
    }
    Ok(fields)
}

fn node(raw: &RawValue, depth: usize, left: &mut u64) -> Result<Node, Unread> {
    let text = raw.get();
    *left = left
        .checked_sub((size_of::<(String, Node)>() + text.len()) as u64)
        .ok_or(Unread::TooLarge)?;
    match text.as_bytes().first() {
        Some(b'"') => {
            let text = serde_json::from_str(text).map_err(Unread::escape)?;
            Ok(Node::Scalar(Scalar { text, plain: false }))
        }
        Some(b'{' | b'[') if depth == 0 => Err(Unread::Reason("lists and maps nest too deep in it")),
        Some(b'{') => {
            let mut map = Vec::new();
            for (key, value) in pairs(text)? {
                if node::is_wanted_below_a_field(&key) {
                    node::put(&mut map, &key, node(value, depth - 1, left)?, false);
                }
            }
            Ok(Node::Map(map))
        }
        Some(b'[') => {
            let values: Vec<&RawValue> = serde_json::from_str(text).map_err(Unread::escape)?;
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

/// The pairs of a map, twofold keys and all.
fn pairs(text: &str) -> Result<Vec<Pair<'_>>, Unread> {
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

    /// A key borrowed where it has no escapes; `Cow` by itself would always be owned.
    #[derive(serde::Deserialize)]
    struct Key<'t>(#[serde(borrow)] Cow<'t, str>);

    serde_json::Deserializer::from_str(text)
        .deserialize_map(Pairs)
        .map_err(Unread::escape)
}
