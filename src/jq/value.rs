//! JSON values that track their own size.
//!
//! A shared value is stored once, so a rule can build one that represents terabytes in forty steps (`[., .]`
//! repeatedly). Comparing, printing or dropping it would not end or overflow the stack. Each list and map therefore
//! stores its expanded size and depth, and none may exceed the limits.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Write};
use std::rc::Rc;

use jaq_core::val;

use super::budget;

const VALUE_BYTES: u64 = 16;

const ENTRY_BYTES: u64 = 64;

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(Rc<str>),
    List(Rc<List>),
    Map(Rc<Map>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct List {
    items: Vec<Value>,
    bytes: u64,
    depth: u32,
}

/// Ordered by keys, as in gojq.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    entries: BTreeMap<Rc<str>, Value>,
    bytes: u64,
    depth: u32,
}

impl List {
    pub(super) fn items(&self) -> &[Value] {
        &self.items
    }

    pub(super) fn into_items(self) -> Vec<Value> {
        self.items
    }

    pub(super) fn push(&mut self, item: Value) {
        budget::allocate(VALUE_BYTES);
        self.bytes += item.bytes();
        self.depth = self.depth.max(item.depth());
        budget::check_value(self.bytes, self.depth + 1);
        self.items.push(item);
    }
}

impl Map {
    pub(super) fn entries(&self) -> &BTreeMap<Rc<str>, Value> {
        &self.entries
    }

    pub(super) fn into_entries(self) -> BTreeMap<Rc<str>, Value> {
        self.entries
    }

    pub(super) fn insert(&mut self, key: Rc<str>, value: Value) {
        budget::allocate(ENTRY_BYTES);
        // An upper bound: replacing the deepest value does not decrease it.
        self.depth = self.depth.max(value.depth());
        self.bytes += value.bytes();
        match self.entries.entry(key) {
            Entry::Vacant(entry) => {
                self.bytes += ENTRY_BYTES + entry.key().len() as u64;
                entry.insert(value);
            }
            Entry::Occupied(mut entry) => self.bytes -= entry.insert(value).bytes(),
        }
        budget::check_value(self.bytes, self.depth + 1);
    }
}

pub(super) fn into_owned_list(list: Rc<List>) -> List {
    Rc::try_unwrap(list).unwrap_or_else(|shared| {
        budget::allocate(shared.items.len() as u64 * VALUE_BYTES);
        (*shared).clone()
    })
}

pub(super) fn into_owned_map(map: Rc<Map>) -> Map {
    Rc::try_unwrap(map).unwrap_or_else(|shared| {
        budget::allocate(shared.entries.len() as u64 * ENTRY_BYTES);
        (*shared).clone()
    })
}

impl Value {
    pub(super) fn text(text: &str) -> Self {
        budget::allocate(VALUE_BYTES + text.len() as u64);
        budget::check_value(text.len() as u64, 1);
        Self::Text(text.into())
    }

    pub(super) fn count(count: usize) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "a value is far smaller than 2^53 bytes")]
        Self::Number(count as f64)
    }

    /// Returns the expanded size, as if nothing were shared.
    pub(super) fn bytes(&self) -> u64 {
        VALUE_BYTES
            + match self {
                Self::Null | Self::Bool(_) | Self::Number(_) => 0,
                Self::Text(text) => text.len() as u64,
                Self::List(list) => list.bytes,
                Self::Map(map) => map.bytes,
            }
    }

    fn depth(&self) -> u32 {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => 0,
            Self::List(list) => list.depth + 1,
            Self::Map(map) => map.depth + 1,
        }
    }

    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::List(_) => "array",
            Self::Map(_) => "object",
        }
    }

    /// Recursive. The JSON decoder and the limits bound the depth.
    pub(super) fn from_json(json: &serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(bool) => Self::Bool(*bool),
            serde_json::Value::Number(number) => Self::Number(number.as_f64().unwrap_or(f64::NAN)),
            serde_json::Value::String(text) => Self::text(text),
            serde_json::Value::Array(items) => items.iter().map(Self::from_json).collect(),
            serde_json::Value::Object(entries) => {
                let mut map = Map::default();
                for (key, value) in entries {
                    map.insert(key.as_str().into(), Self::from_json(value));
                }
                Self::Map(map.into())
            }
        }
    }

    /// jq's sort order: null, false, true, NaN, numbers, texts, lists, maps.
    pub(super) fn sorting_order(&self, other: &Self) -> Ordering {
        self.order(other, Ordering::Equal)
    }

    /// The same order, with `nan_order` as the result for two NaNs.
    fn order(&self, other: &Self, nan_order: Ordering) -> Ordering {
        budget::charge_read(self.bytes().min(other.bytes()));
        self.walk_order(other, nan_order)
    }

    fn walk_order(&self, other: &Self, nan_order: Ordering) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.partial_cmp(b).unwrap_or_else(|| {
                let order = b.is_nan().cmp(&a.is_nan());
                if order.is_eq() { nan_order } else { order }
            }),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::List(a), Self::List(b)) => {
                let pairs = a.items.iter().zip(&b.items);
                pairs
                    .map(|(a, b)| a.walk_order(b, nan_order))
                    .find(|order| order.is_ne())
                    .unwrap_or_else(|| a.items.len().cmp(&b.items.len()))
            }
            (Self::Map(a), Self::Map(b)) => a.entries.keys().cmp(b.entries.keys()).then_with(|| {
                let pairs = a.entries.values().zip(b.entries.values());
                pairs
                    .map(|(a, b)| a.walk_order(b, nan_order))
                    .find(|order| order.is_ne())
                    .unwrap_or(Ordering::Equal)
            }),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Number(_) => 2,
            Self::Text(_) => 3,
            Self::List(_) => 4,
            Self::Map(_) => 5,
        }
    }
}

/// NaN is not equal to itself.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.order(other, Ordering::Less).is_eq()
    }
}

/// NaN is less than itself, as in jq.
impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.order(other, Ordering::Less))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(bool) => bool.fmt(f),
            Self::Number(number) => write_number(*number, f),
            Self::Text(text) => write_text(text, f),
            Self::List(list) => {
                f.write_char('[')?;
                for (index, item) in list.items.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "," })?;
                    item.fmt(f)?;
                }
                f.write_char(']')
            }
            Self::Map(map) => {
                f.write_char('{')?;
                for (index, (key, value)) in map.entries.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "," })?;
                    write_text(key, f)?;
                    f.write_char(':')?;
                    value.fmt(f)?;
                }
                f.write_char('}')
            }
        }
    }
}

/// Writes a number as Go does in JSON, but NaN as null and infinity as the largest number.
fn write_number(number: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let size = number.abs();
    if number.is_nan() {
        f.write_str("null")
    } else if size == 0.0 {
        f.write_char('0')
    } else if (1e-6..1e21).contains(&size) {
        write!(f, "{number}")
    } else {
        let number = if size.is_infinite() {
            f64::MAX.copysign(number)
        } else {
            number
        };
        let sign = if size < 1.0 { "" } else { "+" };
        f.write_str(&format!("{number:e}").replace('e', &format!("e{sign}")))
    }
}

fn write_text(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            c if c.is_control() && c.is_ascii() => write!(f, "\\u{:04x}", u32::from(c))?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

impl From<bool> for Value {
    fn from(bool: bool) -> Self {
        Self::Bool(bool)
    }
}

impl From<isize> for Value {
    fn from(number: isize) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "numbers are floats")]
        Self::Number(number as f64)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::text(&text)
    }
}

impl From<val::Range<Value>> for Value {
    fn from(range: val::Range<Value>) -> Self {
        let mut map = Map::default();
        map.insert("start".into(), range.start.unwrap_or(Self::Null));
        map.insert("end".into(), range.end.unwrap_or(Self::Null));
        Self::Map(map.into())
    }
}

impl FromIterator<Value> for Value {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        let mut list = List::default();
        for item in items {
            list.push(item);
        }
        Self::List(list.into())
    }
}
