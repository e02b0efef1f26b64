//! Paths to fields as policies write them: `spec.template.spec.containers[0].image`, `metadata.labels[app.oam.dev/name]`.

use serde_json::{Map, Value};

const MAX_LENGTH: usize = 1024;
const MAX_SEGMENTS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldPath(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Field(String),
    Index(usize),
}

impl FieldPath {
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_LENGTH {
            return Err(format!("path is longer than {MAX_LENGTH} bytes"));
        }
        let mut segments = Vec::new();
        let mut remaining = text;
        while !remaining.is_empty() {
            let (segment, after) = match remaining.strip_prefix('[') {
                Some(bracket) => in_brackets(bracket),
                None => field(remaining),
            }
            .map_err(|cause| format!("invalid path {text}: {cause}"))?;
            segments.push(segment);
            // A dot ends a segment and must be followed by a field.
            remaining = match after.strip_prefix('.') {
                Some(next) if next.is_empty() || next.starts_with(['.', '[']) => {
                    return Err(format!("invalid path {text}: missing a field after a dot"));
                }
                Some(next) => next,
                None => after,
            };
        }
        match segments.len() {
            0 => Err("path is empty".to_owned()),
            1..=MAX_SEGMENTS => Ok(Self(segments)),
            _ => Err(format!("path has more than {MAX_SEGMENTS} fields")),
        }
    }

    pub fn get<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, segment| match segment {
            Segment::Field(name) => value.get(name),
            Segment::Index(index) => value.get(*index),
        })
    }

    /// Sets or removes a value. Objects on the path are created. An element is set only in a list that has it.
    pub fn set(&self, object: &mut Value, value: Option<Value>) {
        let Some((last, parents)) = self.0.split_last() else {
            return;
        };
        let mut parent = object;
        for segment in parents {
            let child = match (segment, parent) {
                (Segment::Field(name), Value::Object(fields)) => match &value {
                    Some(_) => Some(fields.entry(name.as_str()).or_insert_with(|| Map::new().into())),
                    None => fields.get_mut(name),
                },
                (Segment::Index(index), Value::Array(elements)) => elements.get_mut(*index),
                _ => None,
            };
            match child {
                Some(child) => parent = child,
                None => return,
            }
        }
        match (last, parent, value) {
            (Segment::Field(name), Value::Object(fields), Some(value)) => {
                fields.insert(name.clone(), value);
            }
            (Segment::Field(name), Value::Object(fields), None) => {
                fields.remove(name);
            }
            (Segment::Index(index), Value::Array(elements), Some(value)) => {
                if let Some(element) = elements.get_mut(*index) {
                    *element = value;
                }
            }
            _ => {}
        }
    }
}

fn in_brackets(text: &str) -> Result<(Segment, &str), &'static str> {
    let (content, after) = text.split_once(']').ok_or("missing a closing bracket")?;
    let content = content.trim_matches(['"', '\'']);
    match (content, content.parse()) {
        ("", _) => Err("empty brackets"),
        ("*", _) => Err("wildcards are not supported"),
        (_, Ok(index)) => Ok((Segment::Index(index), after)),
        (name, Err(_)) => Ok((Segment::Field(name.to_owned()), after)),
    }
}

fn field(text: &str) -> Result<(Segment, &str), &'static str> {
    let end = text.find(['.', '[']).unwrap_or(text.len());
    match text.split_at(end) {
        ("", _) => Err("empty field"),
        ("*", _) => Err("wildcards are not supported"),
        (name, after) => Ok((Segment::Field(name.to_owned()), after)),
    }
}
