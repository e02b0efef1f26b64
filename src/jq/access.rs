//! Reads and updates parts of a value by key, index and slice.

use std::rc::Rc;

use jaq_core::box_iter::{BoxIter, box_once};
use jaq_core::path::Opt;
use jaq_core::val::Range;
use jaq_core::{Error, Exn, ValR, ValT, ValX};

use super::natives::indices;
use super::value::{Map, Value, ValueList};

const ITERABLE: &str = "iterable (array or object)";

fn position(index: f64, length: usize) -> Option<usize> {
    #[allow(clippy::cast_possible_truncation, reason = "saturating, and only compared")]
    let index = index.floor() as i64;
    let from_start = if index < 0 { index + length as i64 } else { index };
    usize::try_from(from_start).ok()
}

fn bounds(range: &Range<&Value>, length: usize) -> Result<(usize, usize), Error<Value>> {
    let bound = |bound: Option<&Value>, missing: usize, round: fn(f64) -> f64| match bound {
        None | Some(Value::Null) => Ok(missing),
        Some(Value::Number(number)) => Ok(position(round(*number), length).unwrap_or(0).min(length)),
        Some(other) => Err(Error::typ(other.clone(), "number")),
    };
    let start = bound(range.start, 0, f64::floor)?;
    let end = bound(range.end, length, f64::ceil)?;
    Ok((start, end.max(start)))
}

fn slice_of(map: &Map) -> Range<&Value> {
    map.get("start")..map.get("end")
}

fn first<'a>(mut outputs: impl Iterator<Item = ValX<'a, Value>>) -> Result<Option<Value>, Exn<'a, Value>> {
    outputs.next().transpose()
}

impl ValT for Value {
    fn from_num(number: &str) -> ValR<Self> {
        let fail = |_| Error::str(format_args!("{number} is not a number"));
        number.parse().map(Self::Number).map_err(fail)
    }

    fn from_map<I: IntoIterator<Item = (Self, Self)>>(entries: I) -> ValR<Self> {
        let mut map = Map::default();
        for (key, value) in entries {
            match key {
                Self::Text(key) => {
                    map.insert(key, value);
                }
                key => return Err(Error::typ(key, "key of an object")),
            }
        }
        Ok(Self::Map(map.into()))
    }

    fn key_values(self) -> BoxIter<'static, ValR<(Self, Self), Self>> {
        match self {
            Self::List(list) => {
                let items = Rc::unwrap_or_clone(list).into_iter().enumerate();
                Box::new(items.map(|(index, item)| Ok((Self::count(index), item))))
            }
            Self::Map(map) => {
                let entries = Rc::unwrap_or_clone(map).into_iter();
                Box::new(entries.map(|(key, value)| Ok((Self::Text(key), value))))
            }
            other => box_once(Err(Error::typ(other, ITERABLE))),
        }
    }

    fn values(self) -> Box<dyn Iterator<Item = ValR<Self>>> {
        match self {
            Self::List(list) => {
                let mut index = 0;
                Box::new(std::iter::from_fn(move || {
                    index += 1;
                    list.get(index - 1).cloned().map(Ok)
                }))
            }
            Self::Map(_) => Box::new(self.key_values().map(|entry| entry.map(|(_, value)| value))),
            other => box_once(Err(Error::typ(other, ITERABLE))),
        }
    }

    fn index(self, index: &Self) -> ValR<Self> {
        match (&self, index) {
            (Self::Null, Self::Text(_) | Self::Number(_) | Self::Null) => Ok(Self::Null),
            (Self::Map(map), Self::Text(key)) => Ok(map.get(key).cloned().unwrap_or(Self::Null)),
            (Self::List(list), Self::Number(index)) => {
                let place = position(*index, list.len());
                let item = place.and_then(|place| list.get(place));
                Ok(item.cloned().unwrap_or(Self::Null))
            }
            (Self::Text(text), Self::Number(index)) => {
                let character = position(*index, text.chars().count()).and_then(|place| text.chars().nth(place));
                Ok(character.map_or(Self::Null, |c| Self::text(c.encode_utf8(&mut [0; 4]))))
            }
            (Self::List(_), Self::List(_)) => indices(self, index),
            (Self::Null | Self::List(_) | Self::Text(_), Self::Map(slice)) => {
                let slice = Rc::clone(slice);
                self.range(slice_of(&slice))
            }
            _ => Err(Error::index(self, index.clone())),
        }
    }

    fn range(self, range: Range<&Self>) -> ValR<Self> {
        match &self {
            Self::Null => Ok(Self::Null),
            Self::List(list) => {
                let (start, end) = bounds(&range, list.len())?;
                Ok(list[start..end].iter().cloned().collect())
            }
            Self::Text(text) => {
                let (start, end) = bounds(&range, text.chars().count())?;
                let part: String = text.chars().skip(start).take(end - start).collect();
                Ok(Self::from(part))
            }
            _ => Err(Error::typ(self, "array or string")),
        }
    }

    fn map_values<'a, I: Iterator<Item = ValX<'a, Self>>>(self, opt: Opt, f: impl Fn(Self) -> I) -> ValX<'a, Self> {
        match self {
            Self::List(list) => {
                let mut new = ValueList::default();
                for item in Rc::unwrap_or_clone(list) {
                    if let Some(item) = first(f(item))? {
                        new.push(item);
                    }
                }
                Ok(Self::List(new.into()))
            }
            Self::Map(map) => {
                let mut new = Map::default();
                for (key, value) in Rc::unwrap_or_clone(map) {
                    if let Some(value) = first(f(value))? {
                        new.insert(key, value);
                    }
                }
                Ok(Self::Map(new.into()))
            }
            other => opt.fail(other, |other| Exn::from(Error::typ(other, ITERABLE))),
        }
    }

    fn map_index<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        index: &Self,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        match (self, index) {
            (Self::Null, Self::Text(_)) => Self::Map(Rc::default()).map_index(index, opt, f),
            (Self::Null, Self::Number(_)) => Self::List(Rc::default()).map_index(index, opt, f),
            (Self::Map(map), Self::Text(key)) => {
                let changed = first(f(map.get(key).cloned().unwrap_or(Self::Null)))?;
                let mut new = Map::default();
                for (old, value) in map.iter().filter(|(old, _)| *old != key) {
                    new.insert(Rc::clone(old), value.clone());
                }
                if let Some(value) = changed {
                    new.insert(Rc::clone(key), value);
                }
                Ok(Self::Map(new.into()))
            }
            (Self::List(list), Self::Number(index)) => {
                let Some(place) = position(*index, list.len()) else {
                    let fail = |_| Exn::from(Error::str(format_args!("index {index} out of bounds")));
                    return opt.fail(Self::List(list), fail);
                };
                let changed = first(f(list.get(place).cloned().unwrap_or(Self::Null)))?;
                let mut new = ValueList::default();
                for item in list.iter().take(place) {
                    new.push(item.clone());
                }
                if let Some(item) = changed {
                    while new.len() < place {
                        new.push(Self::Null);
                    }
                    new.push(item);
                }
                for item in list.iter().skip(place.saturating_add(1)) {
                    new.push(item.clone());
                }
                Ok(Self::List(new.into()))
            }
            (value @ (Self::Null | Self::List(_) | Self::Text(_)), Self::Map(slice)) => {
                value.map_range(slice_of(slice), opt, f)
            }
            (value, index) => opt.fail(value, |value| Exn::from(Error::index(value, index.clone()))),
        }
    }

    fn map_range<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        range: Range<&Self>,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        let list = match self {
            Self::Null => Rc::default(),
            Self::List(list) => list,
            other => return opt.fail(other, |other| Exn::from(Error::typ(other, "array"))),
        };
        let (start, end) = match bounds(&range, list.len()) {
            Ok(bounds) => bounds,
            Err(error) => return opt.fail(Self::List(list), |_| Exn::from(error)),
        };
        let changed = match first(f(list[start..end].iter().cloned().collect()))? {
            None => Rc::default(),
            Some(Self::List(changed)) => changed,
            Some(other) => return Err(Exn::from(Error::typ(other, "array"))),
        };
        let parts = [&list[..start], &changed[..], &list[end..]];
        Ok(parts.into_iter().flatten().cloned().collect())
    }

    fn as_bool(&self) -> bool {
        !matches!(self, Self::Null | Self::Bool(false))
    }

    fn into_string(self) -> Self {
        match self {
            Self::Text(_) => self,
            other => Self::from(other.to_string()),
        }
    }
}
