//! The hash in the name of an unnamed trait object: the hash of its dump by the Go library spew.

use serde_json::{Map, Number, Value};

/// Letters and digits that form no words, from `k8s.io/apimachinery/pkg/util/rand`.
const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const OFFSET: u32 = 0x811c_9dc5;
const PRIME: u32 = 0x0100_0193;

/// Returns the hash of an object: FNV-1a of its dump, in decimal digits, each replaced by a safe character.
#[must_use]
pub fn name_hash(object: &Map<String, Value>) -> String {
    let mut text = String::from("(unstructured.Unstructured){Object:");
    dump_object(object, &mut text);
    text.push('}');
    let hash = text
        .bytes()
        .fold(OFFSET, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(PRIME));
    let digits = hash.to_string();
    digits
        .bytes()
        .map(|digit| char::from(SAFE[usize::from(digit) % SAFE.len()]))
        .collect()
}

/// Writes a value as spew's `%#v` does.
fn dump(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("(interface {})<nil>"),
        Value::Bool(flag) => text.push_str(&format!("(bool){flag}")),
        Value::Number(number) => dump_number(number, text),
        Value::String(string) => text.push_str(&format!("(string){string}")),
        Value::Array(items) => {
            text.push_str("([]interface {})[");
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index > 0 { " " } else { "" });
                dump(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => dump_object(fields, text),
    }
}

fn dump_object(fields: &Map<String, Value>, text: &mut String) {
    text.push_str("(map[string]interface {})map[");
    for (index, (label, value)) in fields.iter().enumerate() {
        text.push_str(if index > 0 { " " } else { "" });
        text.push_str(&format!("{label}:"));
        dump(value, text);
    }
    text.push(']');
}

fn dump_number(number: &Number, text: &mut String) {
    if let Some(integer) = number.as_i64() {
        text.push_str(&format!("(int64){integer}"));
    } else {
        text.push_str(&format!("(float64){}", go_float(number.as_f64().unwrap_or_default())));
    }
}

/// Formats a number as Go's `strconv.FormatFloat(number, 'g', -1, 64)`, whose exponents begin at six places and have two
/// digits.
fn go_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    match scientific
        .split_once('e')
        .map(|(mantissa, exponent)| (mantissa, exponent.parse::<i32>()))
    {
        Some((mantissa, Ok(exponent))) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => number.to_string(),
    }
}
