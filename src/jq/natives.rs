use std::rc::Rc;

use jaq_core::load::parse::Def;
use jaq_core::native::{Fun, bome, run, v};
use jaq_core::{Cv, Error, ValR, load};

use super::evaluate::Counted;
use super::operators::split;
use super::regex;
use super::value::Value;

/// `range` outputs values without interpreter steps, and the others depend on the key order of maps.
const EXCLUDED: [&str; 3] = ["range", "keys_unsorted", "key_values"];

/// Returns the definitions in jq. Neither they nor the native functions access anything but their input.
pub(super) fn definitions() -> impl Iterator<Item = Def<&'static str>> {
    load::parse(include_str!("builtins.jq"), |parser| parser.defs())
        .unwrap_or_default()
        .into_iter()
}

pub(super) fn functions() -> impl Iterator<Item = Fun<Counted>> {
    let core_functions = jaq_core::funs().filter(|(name, ..)| !EXCLUDED.contains(name));
    core_functions.chain(native_functions())
}

macro_rules! native {
    ($name:literal, $f:expr) => {
        run(($name, v(0), |cv| bome(on_input(cv, $f))))
    };
    ($name:literal, $f:expr, 1) => {
        run(($name, v(1), |cv| bome(with_argument(cv, $f))))
    };
}

fn on_input(cv: Cv<'_, Counted>, f: fn(Value) -> ValR<Value>) -> ValR<Value> {
    f(cv.1)
}

fn with_argument(mut cv: Cv<'_, Counted>, f: fn(Value, &Value) -> ValR<Value>) -> ValR<Value> {
    let argument = cv.0.pop_var();
    f(cv.1, &argument)
}

fn native_functions() -> [Fun<Counted>; 46] {
    [
        native!("type", |input| Ok(Value::text(input.kind()))),
        native!("length", length),
        native!("utf8bytelength", |input| on_text(input, |text| Value::count(
            text.len()
        ))),
        native!("keys", keys),
        native!("has", has, 1),
        native!("contains", |input, part| contains(&input, part).map(Value::Bool), 1),
        native!("indices", indices, 1),
        native!("reverse", reverse),
        native!("_sort_by_first", sort_by_first),
        native!("_group_by_first", group_by_first),
        native!("tojson", |input| Ok(Value::from(input.to_string()))),
        native!("fromjson", from_json),
        native!("tonumber", to_number),
        native!("ascii_downcase", |input| on_text(input, |text| Value::text(
            &text.to_ascii_lowercase()
        ))),
        native!("ascii_upcase", |input| on_text(input, |text| Value::text(
            &text.to_ascii_uppercase()
        ))),
        native!(
            "startswith",
            |input, start| both_texts(input, start, |text, start| text.starts_with(start)),
            1
        ),
        native!(
            "endswith",
            |input, end| both_texts(input, end, |text, end| text.ends_with(end)),
            1
        ),
        native!(
            "ltrimstr",
            |input, start| trimmed(input, start, |text, start| text.strip_prefix(start)),
            1
        ),
        native!(
            "rtrimstr",
            |input, end| trimmed(input, end, |text, end| text.strip_suffix(end)),
            1
        ),
        native!("trim", |input| on_text(input, |text| Value::text(text.trim()))),
        native!("ltrim", |input| on_text(input, |text| Value::text(text.trim_start()))),
        native!("rtrim", |input| on_text(input, |text| Value::text(text.trim_end()))),
        native!("split", split_by, 1),
        native!("explode", |input| on_text(input, |text| {
            text.chars().map(|c| Value::Number(f64::from(u32::from(c)))).collect()
        })),
        native!("implode", implode),
        run(("_tests", v(2), |cv| bome(by_regex(cv, regex::tests)))),
        run(("_matches", v(2), |cv| bome(by_regex(cv, regex::matches)))),
        run(("nan", v(0), |_| bome(Ok(Value::Number(f64::NAN))))),
        run(("infinite", v(0), |_| bome(Ok(Value::Number(f64::INFINITY))))),
        native!("isnan", |input| on_number(input, |number| Value::Bool(number.is_nan()))),
        native!("isinfinite", |input| on_number(input, |number| Value::Bool(
            number.is_infinite()
        ))),
        native!("isnormal", |input| on_number(input, |number| Value::Bool(
            number.is_normal()
        ))),
        native!("floor", |input| rounded(input, f64::floor)),
        native!("ceil", |input| rounded(input, f64::ceil)),
        native!("round", |input| rounded(input, f64::round)),
        native!("trunc", |input| rounded(input, f64::trunc)),
        native!("fabs", |input| rounded(input, f64::abs)),
        native!("sqrt", |input| rounded(input, f64::sqrt)),
        native!("cbrt", |input| rounded(input, f64::cbrt)),
        native!("exp", |input| rounded(input, f64::exp)),
        native!("exp2", |input| rounded(input, f64::exp2)),
        native!("exp10", |input| rounded(input, |number| 10_f64.powf(number))),
        native!("log", |input| rounded(input, f64::ln)),
        native!("log2", |input| rounded(input, f64::log2)),
        native!("log10", |input| rounded(input, f64::log10)),
        run(("pow", v(2), |cv| bome(power(cv)))),
    ]
}

fn on_text(input: Value, f: impl FnOnce(&str) -> Value) -> ValR<Value> {
    match &input {
        Value::Text(text) => Ok(f(text)),
        _ => Err(Error::typ(input, "string")),
    }
}

fn on_number(input: Value, f: impl FnOnce(f64) -> Value) -> ValR<Value> {
    match &input {
        Value::Number(number) => Ok(f(*number)),
        _ => Err(Error::typ(input, "number")),
    }
}

fn rounded(input: Value, f: fn(f64) -> f64) -> ValR<Value> {
    on_number(input, |number| Value::Number(f(number)))
}

fn both_texts(input: Value, argument: &Value, f: fn(&str, &str) -> bool) -> ValR<Value> {
    match (&input, argument) {
        (Value::Text(text), Value::Text(part)) => Ok(Value::Bool(f(text, part))),
        (Value::Text(_), other) => Err(Error::typ(other.clone(), "string")),
        _ => Err(Error::typ(input, "string")),
    }
}

fn trimmed(input: Value, part: &Value, f: for<'a> fn(&'a str, &str) -> Option<&'a str>) -> ValR<Value> {
    match (&input, part) {
        (Value::Text(text), Value::Text(part)) => Ok(f(text, part).map(Value::text).unwrap_or(input)),
        (Value::Text(_), other) => Err(Error::typ(other.clone(), "string")),
        _ => Err(Error::typ(input, "string")),
    }
}

fn by_regex(mut cv: Cv<'_, Counted>, f: fn(&Value, &Value, &Value) -> ValR<Value>) -> ValR<Value> {
    let flags = cv.0.pop_var();
    let pattern = cv.0.pop_var();
    f(&cv.1, &pattern, &flags)
}

fn power(mut cv: Cv<'_, Counted>) -> ValR<Value> {
    let exponent = cv.0.pop_var();
    let base = cv.0.pop_var();
    match (&base, &exponent) {
        (Value::Number(base), Value::Number(exponent)) => Ok(Value::Number(base.powf(*exponent))),
        (Value::Number(_), _) => Err(Error::typ(exponent, "number")),
        _ => Err(Error::typ(base, "number")),
    }
}

fn length(input: Value) -> ValR<Value> {
    match &input {
        Value::Null => Ok(Value::count(0)),
        Value::Number(number) => Ok(Value::Number(number.abs())),
        Value::Text(text) => Ok(Value::count(text.chars().count())),
        Value::List(list) => Ok(Value::count(list.len())),
        Value::Map(map) => Ok(Value::count(map.len())),
        Value::Bool(_) => Err(Error::typ(input, "something that has a length")),
    }
}

fn keys(input: Value) -> ValR<Value> {
    match &input {
        Value::List(list) => Ok((0..list.len()).map(Value::count).collect()),
        Value::Map(map) => Ok(map.keys().map(|key| Value::Text(Rc::clone(key))).collect()),
        _ => Err(Error::typ(input, "iterable (array or object)")),
    }
}

fn has(input: Value, key: &Value) -> ValR<Value> {
    match (&input, key) {
        (Value::Map(map), Value::Text(key)) => Ok(Value::Bool(map.contains_key(key))),
        (Value::List(list), Value::Number(index)) => {
            #[allow(clippy::cast_precision_loss, reason = "a list is far shorter than 2^53")]
            let length = list.len() as f64;
            Ok(Value::Bool(*index >= 0.0 && *index < length))
        }
        _ => Err(Error::index(input, key.clone())),
    }
}

/// Contained as a substring, item by item, entry by entry, or as an equal value.
fn contains(container: &Value, part: &Value) -> Result<bool, Error<Value>> {
    match (container, part) {
        (Value::Text(container), Value::Text(part)) => Ok(container.contains(&**part)),
        (Value::List(container), Value::List(part)) => {
            for part in &**part {
                // Here a type mismatch of items is not an error.
                if !container
                    .iter()
                    .any(|container| contains(container, part).unwrap_or(false))
                {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(container), Value::Map(part)) => {
            for (key, part) in &**part {
                match container.get(key) {
                    Some(container) if contains(container, part)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (container, part) if container.kind() == part.kind() => Ok(container == part),
        (container, part) => Err(Error::str(format_args!(
            "cannot check whether {} contains {}",
            container.kind(),
            part.kind()
        ))),
    }
}

/// Positions are in characters of a text, or in a list. A `part` that is not a list is searched for as an item.
pub(super) fn indices(container: Value, part: &Value) -> ValR<Value> {
    match (&container, part) {
        (Value::Null, _) => Ok(Value::Null),
        (Value::Text(_), Value::Text(part)) if part.is_empty() => Ok(Value::from_iter([])),
        (Value::Text(text), Value::Text(part)) => {
            let occurrences = Occurrences {
                text,
                part,
                at: 0,
                characters: 0,
            };
            Ok(occurrences.map(Value::count).collect())
        }
        (Value::List(_), Value::List(part)) if part.is_empty() => Ok(Value::from_iter([])),
        (Value::List(list), Value::List(part)) => {
            let windows = list.windows(part.len()).enumerate();
            let found = windows.filter(|(_, window)| *window == part.as_slice());
            Ok(found.map(|(index, _)| Value::count(index)).collect())
        }
        (Value::List(list), item) => {
            let found = list.iter().enumerate().filter(|(_, other)| *other == item);
            Ok(found.map(|(index, _)| Value::count(index)).collect())
        }
        _ => Err(Error::index(container, part.clone())),
    }
}

/// Iterates over the positions of a part in a text, in characters. Matches may overlap.
struct Occurrences<'a> {
    text: &'a str,
    part: &'a str,
    at: usize,
    characters: usize,
}

impl Iterator for Occurrences<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let rest = &self.text[self.at..];
        let distance = rest.find(self.part)?;
        let found = self.characters + rest[..distance].chars().count();
        let first = rest[distance..].chars().next()?;
        self.at += distance + first.len_utf8();
        self.characters = found + 1;
        Some(found)
    }
}

fn reverse(input: Value) -> ValR<Value> {
    match &input {
        Value::Null => Ok(Value::from_iter([])),
        Value::Text(text) => Ok(Value::from(text.chars().rev().collect::<String>())),
        Value::List(list) => Ok(list.iter().rev().cloned().collect()),
        _ => Err(Error::typ(input, "array")),
    }
}

/// Returns the sort key of a pair, which our own definitions create.
fn first_of(pair: &Value) -> &Value {
    match pair {
        Value::List(list) => list.first().unwrap_or(&Value::Null),
        _ => &Value::Null,
    }
}

fn sort_by_first(input: Value) -> ValR<Value> {
    let Value::List(list) = &input else {
        return Err(Error::typ(input, "array"));
    };
    let mut items = list.to_vec();
    items.sort_by(|a, b| first_of(a).sorting_order(first_of(b)));
    Ok(items.into_iter().collect())
}

fn group_by_first(input: Value) -> ValR<Value> {
    let Value::List(list) = &input else {
        return Err(Error::typ(input, "array"));
    };
    let groups = list.chunk_by(|a, b| first_of(a).sorting_order(first_of(b)).is_eq());
    Ok(groups.map(|group| group.iter().cloned().collect()).collect())
}

fn split_by(input: Value, separator: &Value) -> ValR<Value> {
    match (&input, separator) {
        (Value::Text(text), Value::Text(separator)) => Ok(split(text, separator)),
        (Value::Text(_), other) => Err(Error::typ(other.clone(), "string")),
        _ => Err(Error::typ(input, "string")),
    }
}

fn from_json(input: Value) -> ValR<Value> {
    let Value::Text(text) = &input else {
        return Err(Error::typ(input, "string"));
    };
    match serde_json::from_str(text) {
        Ok(value) => Ok(value),
        Err(error) => Err(Error::str(format_args!("not JSON: {error}"))),
    }
}

fn to_number(input: Value) -> ValR<Value> {
    match &input {
        Value::Number(_) => Ok(input),
        Value::Text(text) => {
            // Accepts JSON numbers only. Rust would also parse "inf" and "nan".
            let digits = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
            let number = text.chars().all(digits).then(|| text.parse().ok()).flatten();
            number
                .map(Value::Number)
                .ok_or_else(|| Error::typ(input.clone(), "number"))
        }
        _ => Err(Error::typ(input, "number")),
    }
}

fn implode(input: Value) -> ValR<Value> {
    let fail = |value: &Value| Error::typ(value.clone(), "array of code points");
    let Value::List(list) = &input else {
        return Err(fail(&input));
    };
    let character = |item: &Value| match item {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturating, then checked"
        )]
        Value::Number(number) => char::from_u32(*number as u32),
        _ => None,
    };
    let text: Option<String> = list.iter().map(character).collect();
    text.map(Value::from).ok_or_else(|| fail(&input))
}
