//! Regular expressions in Go's dialect, as Kubeapps' rules use it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::iter;

use jaq_core::{Error, ValR};
use regex::{Captures, Regex, RegexBuilder};

use super::value::{Map, Value};
use crate::text::truncate;

/// Maximum size of a compiled expression. A search takes up to this size times the length of the text.
const MAX_COMPILED_BYTES: usize = 256 * 1024;

/// Maximum length of a searched text. The longest known description has a few KiB.
const MAX_SEARCHED_BYTES: usize = 256 * 1024;

/// Maximum length of an expression. Parsing takes some hundred times its length, before the compiled size is known.
const MAX_PATTERN_BYTES: usize = 16 * 1024;

/// Compiled expressions cached per thread. Rules use few, for every chart.
const MAX_CACHED: usize = 64;

thread_local! {
    static COMPILED: RefCell<HashMap<(String, Flags), Regex>> = RefCell::default();
}

/// Flags as in gojq: `g` finds all matches, `i` ignores case, `m` lets a dot match a line break.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Flags {
    all: bool,
    ignore_case: bool,
    dot_matches_newline: bool,
}

impl Flags {
    fn read(flags: &Value) -> Result<Self, Error<Value>> {
        let text = match flags {
            Value::Null => "",
            Value::Text(text) => text,
            other => return Err(Error::typ(other.clone(), "flags of a regular expression")),
        };
        let mut read = Self::default();
        for c in text.chars() {
            match c {
                'g' => read.all = true,
                'i' => read.ignore_case = true,
                'm' => read.dot_matches_newline = true,
                c => return Err(Error::str(format_args!("unsupported regular expression flag: {c}"))),
            }
        }
        Ok(read)
    }
}

pub(super) fn tests(text: &Value, pattern: &Value, flags: &Value) -> ValR<Value> {
    with_regex(text, pattern, flags, |regex, _, text| Value::Bool(regex.is_match(text)))
}

pub(super) fn matches(text: &Value, pattern: &Value, flags: &Value) -> ValR<Value> {
    with_regex(text, pattern, flags, |regex, flags, text| {
        let mut offsets = Offsets::default();
        let found = regex.captures_iter(text).take(if flags.all { usize::MAX } else { 1 });
        found
            .map(|captures| found_value(regex, text, &captures, &mut offsets))
            .collect()
    })
}

fn with_regex(
    text: &Value,
    pattern: &Value,
    flags: &Value,
    find: impl FnOnce(&Regex, Flags, &str) -> Value,
) -> ValR<Value> {
    let (text, pattern) = match (text, pattern) {
        (Value::Text(text), Value::Text(pattern)) => (text, pattern),
        (Value::Text(_), other) => return Err(Error::typ(other.clone(), "regular expression")),
        (other, _) => return Err(Error::typ(other.clone(), "string")),
    };
    let flags = Flags::read(flags)?;
    if pattern.len() > MAX_PATTERN_BYTES {
        let bytes = pattern.len();
        return Err(Error::str(format_args!(
            "a regular expression of {bytes} bytes is too long, the limit is {MAX_PATTERN_BYTES}"
        )));
    }
    if text.len() > MAX_SEARCHED_BYTES {
        let bytes = text.len();
        return Err(Error::str(format_args!(
            "a text of {bytes} bytes is too long for a regular expression, the limit is {MAX_SEARCHED_BYTES}"
        )));
    }
    COMPILED.with_borrow_mut(|cache| {
        let key = (pattern.to_string(), flags);
        if !cache.contains_key(&key) {
            let regex = compile(pattern, flags).map_err(Error::str)?;
            if cache.len() >= MAX_CACHED {
                cache.clear();
            }
            cache.insert(key.clone(), regex);
        }
        Ok(find(&cache[&key], flags, text))
    })
}

fn compile(pattern: &str, flags: Flags) -> Result<Regex, String> {
    RegexBuilder::new(&from_go(pattern))
        .case_insensitive(flags.ignore_case)
        .dot_matches_new_line(flags.dot_matches_newline)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(4 * MAX_COMPILED_BYTES)
        .nest_limit(100)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => "the regular expression is too large once compiled".to_owned(),
            // The last line has the reason, the lines above show the position.
            error => {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
                format!("invalid regular expression {:?}: {reason}", truncate(pattern, 64))
            }
        })
}

/// In Rust `\d`, `\s`, `\w` and `\b` are Unicode-aware, and nested classes, `&&` and `~~` have a meaning.
fn from_go(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars().peekable();
    let mut in_class = false;
    while let Some(c) = rest.next() {
        match c {
            '\\' => match (rest.next(), in_class) {
                (Some('Q'), false) => out.push_str(&quoted(&mut rest)),
                (Some('d'), false) => out.push_str("[0-9]"),
                (Some('D'), false) => out.push_str("[^0-9]"),
                (Some('s'), false) => out.push_str(r"[\t\n\x0C\r ]"),
                (Some('S'), false) => out.push_str(r"[^\t\n\x0C\r ]"),
                (Some('w'), false) => out.push_str("[0-9A-Za-z_]"),
                (Some('W'), false) => out.push_str("[^0-9A-Za-z_]"),
                (Some('b'), false) => out.push_str(r"(?-u:\b)"),
                (Some('d'), true) => out.push_str("0-9"),
                (Some('D'), true) => out.push_str("[^0-9]"),
                (Some('s'), true) => out.push_str(r"\t\n\x0C\r "),
                (Some('S'), true) => out.push_str(r"[^\t\n\x0C\r ]"),
                (Some('w'), true) => out.push_str("0-9A-Za-z_"),
                (Some('W'), true) => out.push_str("[^0-9A-Za-z_]"),
                (escaped, _) => out.extend(iter::once('\\').chain(escaped)),
            },
            '[' if in_class => {
                // `[:alpha:]` keeps its meaning, any other bracket is literal.
                out.push_str(if rest.peek() == Some(&':') { "[" } else { r"\[" });
                if rest.next_if_eq(&':').is_some() {
                    out.push(':');
                    while let Some(c) = rest.next() {
                        out.push(c);
                        if c == ':' && rest.next_if_eq(&']').is_some() {
                            out.push(']');
                            break;
                        }
                    }
                }
            }
            '[' => {
                in_class = true;
                out.push('[');
                out.extend(rest.next_if_eq(&'^'));
                // A bracket at the start of a class is literal.
                if rest.next_if_eq(&']').is_some() {
                    out.push_str(r"\]");
                }
            }
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// Escapes the text between `\Q` and `\E` or the end.
fn quoted(rest: &mut impl Iterator<Item = char>) -> String {
    let mut literal: String = String::new();
    for c in rest {
        literal.push(c);
        if literal.ends_with("\\E") {
            literal.truncate(literal.len() - 2);
            break;
        }
    }
    regex::escape(&literal)
}

#[derive(Default)]
struct Offsets {
    bytes: usize,
    characters: usize,
}

impl Offsets {
    fn of(&mut self, text: &str, bytes: usize) -> usize {
        self.characters += text[self.bytes..bytes].chars().count();
        self.bytes = bytes;
        self.characters
    }
}

fn found_value(regex: &Regex, text: &str, captures: &Captures<'_>, offsets: &mut Offsets) -> Value {
    let full_match = captures.get_match();
    let offset = offsets.of(text, full_match.start());
    let groups = regex.capture_names().enumerate().skip(1);
    let groups = groups.map(|(index, name)| {
        let group = captures.get(index);
        let mut map = Map::default();
        map.insert("name".into(), name.map_or(Value::Null, Value::text));
        map.insert(
            "string".into(),
            group.map_or(Value::Null, |group| Value::text(group.as_str())),
        );
        let start = group.map_or(Value::Number(-1.0), |group| {
            Value::count(offset + text[full_match.start()..group.start()].chars().count())
        });
        map.insert("offset".into(), start);
        map.insert(
            "length".into(),
            Value::count(group.map_or(0, |group| group.as_str().chars().count())),
        );
        Value::Map(map.into())
    });
    let mut map = Map::default();
    map.insert("captures".into(), groups.collect());
    map.insert("offset".into(), Value::count(offset));
    map.insert("length".into(), Value::count(full_match.as_str().chars().count()));
    map.insert("string".into(), Value::text(full_match.as_str()));
    Value::Map(map.into())
}
