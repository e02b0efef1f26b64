//! Values that the API server stores in another form than the manifest's.

use serde_json::Value;

use super::list_rules::Rule;

/// Fields of built-in kinds that are not stored if they are zero, and whose zero has no meaning of its own in any type.
/// A test creates objects with them.
pub const DROPPED_ZEROS: [&str; 24] = [
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostname",
    "initialDelaySeconds",
    "labels",
    "annotations",
    "matchLabels",
    "medium",
    "minReadySeconds",
    "nodeName",
    "nodeSelector",
    "paused",
    "priorityClassName",
    "publishNotReadyAddresses",
    "readOnly",
    "serviceAccountName",
    "stdin",
    "stdinOnce",
    "subPath",
    "subdomain",
    "tty",
    "value",
    "workingDir",
];

pub(super) fn is_stored_as_absent(name: &str, value: &Value) -> bool {
    let is_zero = match value {
        Value::Array(elements) => return elements.is_empty(),
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Null => true,
    };
    is_zero && DROPPED_ZEROS.contains(&name)
}

/// Compares two scalars by value: 1 and 1.0 are equal, and so are the quantities 500m and 0.5.
pub(super) fn are_equivalent(rule: Rule, new: &Value, live: &Value) -> bool {
    let is_equal = match (new, live) {
        (Value::Number(new), Value::Number(live)) if new.is_f64() || live.is_f64() => new.as_f64() == live.as_f64(),
        (new, live) => new == live,
    };
    is_equal || (rule.is_quantity && quantity(new).is_some_and(|new| Some(new) == quantity(live)))
}

/// Sign, digits without trailing zeros, and power of ten.
type Quantity = (bool, u128, i32);

/// `0.5`, `500m`, `1Gi`, `1e3`. Returns `None` for other texts, and for quantities of extreme size.
fn quantity(value: &Value) -> Option<Quantity> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(&text)),
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.len() > 30 || whole.len() + fraction.len() == 0 {
        return None;
    }
    let (exponent, factor) = scale(suffix)?;
    let mut digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    digits = digits.checked_mul(factor)?;
    let mut exponent = exponent - i32::try_from(fraction.len()).ok()?;
    if digits == 0 {
        return Some((false, 0, 0));
    }
    while digits.is_multiple_of(10) {
        digits /= 10;
        exponent += 1;
    }
    Some((is_negative, digits, exponent))
}

/// The power of ten and the factor of a suffix.
fn scale(suffix: &str) -> Option<(i32, u128)> {
    const DECIMAL: [(&str, i32); 10] = [
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("", 0),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];
    if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((*exponent, 1));
    }
    if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((0, 1 << bits));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    (-30..=30).contains(&exponent).then_some((exponent, 1))
}
