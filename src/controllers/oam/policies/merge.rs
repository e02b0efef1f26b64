use serde_json::Value;
use serde_json::map::Entry;

/// Merges properties of a later policy into the properties of an earlier policy of the same type.
pub fn merge(earlier: Value, later: Value) -> Value {
    match (earlier, later) {
        (Value::Object(mut earlier), Value::Object(later)) => {
            for (name, value) in later {
                match earlier.entry(name) {
                    Entry::Vacant(entry) => {
                        entry.insert(value);
                    }
                    Entry::Occupied(mut entry) => {
                        let merged = merge(entry.get_mut().take(), value);
                        entry.insert(merged);
                    }
                }
            }
            Value::Object(earlier)
        }
        (Value::Array(mut earlier), Value::Array(later)) => {
            earlier.extend(later);
            Value::Array(earlier)
        }
        (Value::Bool(earlier), Value::Bool(later)) => Value::Bool(earlier || later),
        (earlier, _) => earlier,
    }
}
