//! Prints values as CUE does.

use serde_json::{Map, Value};

/// Returns the text of a detail: a string as it is, other values as formatted CUE.
#[must_use]
pub fn cue_text(value: &Value) -> String {
    if let Value::String(text) = value {
        return text.clone();
    }
    let mut text = String::new();
    write(value, 0, &mut text);
    text
}

fn write(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write(item, depth, text);
            }
            text.push(']');
        }
        Value::Object(fields) if fields.is_empty() => text.push_str("{}"),
        Value::Object(fields) => {
            text.push_str("{\n");
            write_fields(fields, depth + 1, text);
            text.extend(std::iter::repeat_n('\t', depth));
            text.push('}');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

/// Writes fields; values of adjacent fields on one line each are aligned.
fn write_fields(fields: &Map<String, Value>, depth: usize, text: &mut String) {
    let fields: Vec<(String, &Value)> = fields.iter().map(|(name, value)| (label(name), value)).collect();
    for block in fields.chunk_by(|(_, value), (_, next)| !spans_lines(value) && !spans_lines(next)) {
        let width = block
            .iter()
            .map(|(label, _)| label.chars().count())
            .max()
            .unwrap_or_default();
        for (label, value) in block {
            text.extend(std::iter::repeat_n('\t', depth));
            text.push_str(&format!("{label}: "));
            text.extend(std::iter::repeat_n(' ', width - label.chars().count()));
            write(value, depth, text);
            text.push('\n');
        }
    }
}

fn spans_lines(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => items.iter().any(spans_lines),
        _ => false,
    }
}

/// Returns a label, quoted if it is no identifier that CUE exports.
fn label(name: &str) -> String {
    let is_first = |c: char| c == '$' || c.is_alphabetic();
    let is_plain = name.starts_with(is_first) && name.chars().all(|c| c == '_' || is_first(c) || c.is_numeric());
    if is_plain {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}
