use std::ops::{Add, Div, Mul, Neg, Rem, Sub};
use std::rc::Rc;

use jaq_core::ops::Math;
use jaq_core::{Error, ValR};

use super::steps;
use super::value::{Map, Value};

type Result = ValR<Value>;

/// Far above the memory of the process.
const MAX_TEXT_BYTES: u64 = 1 << 40;

impl Add for Value {
    type Output = Result;

    fn add(self, other: Self) -> Result {
        match (self, other) {
            (Self::Null, value) | (value, Self::Null) => Ok(value),
            (Self::Number(a), Self::Number(b)) => Ok(Self::Number(a + b)),
            (Self::Text(a), Self::Text(b)) => Ok(Self::from([&*a, &*b].concat())),
            (Self::List(a), Self::List(b)) => {
                let mut list = Rc::unwrap_or_clone(a);
                list.extend_from_slice(&b);
                Ok(Self::List(list.into()))
            }
            (Self::Map(a), Self::Map(b)) => {
                let mut map = Rc::unwrap_or_clone(a);
                map.extend(b.iter().map(|(key, value)| (Rc::clone(key), value.clone())));
                Ok(Self::Map(map.into()))
            }
            (a, b) => Err(Error::math(a, Math::Add, b)),
        }
    }
}

impl Sub for Value {
    type Output = Result;

    fn sub(self, other: Self) -> Result {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Ok(Self::Number(a - b)),
            (Self::List(a), Self::List(b)) => {
                let mut taken: Vec<&Self> = b.iter().collect();
                taken.sort_by(|a, b| a.sorting_order(b));
                let stays = |item: &&Self| taken.binary_search_by(|taken| taken.sorting_order(item)).is_err();
                Ok(a.iter().filter(stays).cloned().collect())
            }
            (a, b) => Err(Error::math(a, Math::Sub, b)),
        }
    }
}

impl Mul for Value {
    type Output = Result;

    fn mul(self, other: Self) -> Result {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Ok(Self::Number(a * b)),
            (Self::Text(text), Self::Number(times)) | (Self::Number(times), Self::Text(text)) => {
                Ok(repeated(&text, times))
            }
            (Self::Map(a), Self::Map(b)) => Ok(Self::Map(merged(a, &b).into())),
            (a, b) => Err(Error::math(a, Math::Mul, b)),
        }
    }
}

/// Returns null for a negative or invalid number, as jq does.
fn repeated(text: &str, times: f64) -> Value {
    if times < 0.0 || times.is_nan() {
        return Value::Null;
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative, and saturating"
    )]
    let times = times as u64;
    // A longer text would panic before it is allocated.
    match times.checked_mul(text.len() as u64) {
        Some(bytes) if bytes < MAX_TEXT_BYTES => Value::from(text.repeat(usize::try_from(times).unwrap_or_default())),
        _ => steps::too_large(),
    }
}

fn merged(a: Rc<Map>, b: &Map) -> Map {
    let mut map = Rc::unwrap_or_clone(a);
    for (key, value) in b {
        let value = match (map.get(key), value) {
            (Some(Value::Map(a)), Value::Map(b)) => Value::Map(merged(Rc::clone(a), b).into()),
            (_, value) => value.clone(),
        };
        map.insert(Rc::clone(key), value);
    }
    map
}

impl Div for Value {
    type Output = Result;

    fn div(self, other: Self) -> Result {
        match (&self, &other) {
            (Self::Number(a), Self::Number(b)) if *b != 0.0 => Ok(Self::Number(a / b)),
            (Self::Text(text), Self::Text(separator)) => Ok(split(text, separator)),
            _ => Err(Error::math(self, Math::Div, other)),
        }
    }
}

/// Splits a text. An empty separator splits into characters.
pub(super) fn split(text: &str, separator: &str) -> Value {
    if separator.is_empty() {
        text.chars().map(|c| Value::text(c.encode_utf8(&mut [0; 4]))).collect()
    } else {
        text.split(separator).map(Value::text).collect()
    }
}

impl Rem for Value {
    type Output = Result;

    fn rem(self, other: Self) -> Result {
        match (&self, &other) {
            (Self::Number(a), Self::Number(b)) if b.trunc() != 0.0 => Ok(Self::Number(a.trunc() % b.trunc())),
            _ => Err(Error::math(self, Math::Rem, other)),
        }
    }
}

impl Neg for Value {
    type Output = Result;

    fn neg(self) -> Result {
        match self {
            Self::Number(number) => Ok(Self::Number(-number)),
            value => Err(Error::typ(value, "number")),
        }
    }
}
