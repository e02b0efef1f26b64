//! JSON values of the interpreter.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::rc::Rc;

use jaq_core::val;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

pub(super) type ValueList = Vec<Value>;

/// Ordered by keys, as in gojq.
pub(super) type Map = BTreeMap<Rc<str>, Value>;

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(Rc<str>),
    List(Rc<ValueList>),
    Map(Rc<Map>),
}

impl Value {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn count(count: usize) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "a value is far smaller than 2^53 bytes")]
        Self::Number(count as f64)
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

    /// jq's sort order: null, false, true, NaN, numbers, texts, lists, maps.
    pub(super) fn sorting_order(&self, other: &Self) -> Ordering {
        self.order(other, Ordering::Equal)
    }

    /// The same order, with `nan_order` as the result for two NaNs.
    fn order(&self, other: &Self, nan_order: Ordering) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Number(a), Self::Number(b)) => a.partial_cmp(b).unwrap_or_else(|| {
                let order = b.is_nan().cmp(&a.is_nan());
                if order.is_eq() { nan_order } else { order }
            }),
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::List(a), Self::List(b)) => {
                let orders = a.iter().zip(&**b).map(|(a, b)| a.order(b, nan_order));
                first_difference(orders).then_with(|| a.len().cmp(&b.len()))
            }
            (Self::Map(a), Self::Map(b)) => a.keys().cmp(b.keys()).then_with(|| {
                let pairs = a.values().zip(b.values());
                first_difference(pairs.map(|(a, b)| a.order(b, nan_order)))
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

fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
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
                for (index, item) in list.iter().enumerate() {
                    f.write_str(if index == 0 { "" } else { "," })?;
                    item.fmt(f)?;
                }
                f.write_char(']')
            }
            Self::Map(map) => {
                f.write_char('{')?;
                for (index, (key, value)) in map.iter().enumerate() {
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
        Self::Text(text.into())
    }
}

impl From<val::Range<Value>> for Value {
    fn from(range: val::Range<Value>) -> Self {
        let bounds = [("start", range.start), ("end", range.end)];
        let bounds = bounds.map(|(name, bound)| (name.into(), bound.unwrap_or(Self::Null)));
        Self::Map(Map::from(bounds).into())
    }
}

impl FromIterator<Value> for Value {
    fn from_iter<I: IntoIterator<Item = Value>>(items: I) -> Self {
        Self::List(Rc::new(items.into_iter().collect()))
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

/// Keys that are kept for the next objects. All versions of a chart have the same.
const MAX_KEYS: usize = 64;

thread_local! {
    static KEYS: RefCell<BTreeSet<Rc<str>>> = const { RefCell::new(BTreeSet::new()) };
}

struct Key(Rc<str>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                Ok(Key(KEYS.with_borrow_mut(|keys| match keys.get(key) {
                    Some(key) => Rc::clone(key),
                    None => {
                        let key = Rc::<str>::from(key);
                        if keys.len() < MAX_KEYS {
                            keys.insert(Rc::clone(&key));
                        }
                        key
                    }
                })))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, bool: bool) -> Result<Value, E> {
        Ok(Value::Bool(bool))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    #[allow(clippy::cast_precision_loss, reason = "numbers are floats")]
    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    #[allow(clippy::cast_precision_loss, reason = "numbers are floats")]
    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number as f64))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = ValueList::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((Key(key), value)) = entries.next_entry()? {
            map.insert(key, value);
        }
        Ok(Value::Map(map.into()))
    }
}
