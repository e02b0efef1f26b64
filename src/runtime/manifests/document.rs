use std::{cell::Cell, fmt, path::Path};

use serde::{
    Deserializer,
    de::{DeserializeSeed, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor},
};
use serde_json::{Map, Value};

/// Maximum number of values per file with aliases expanded. The parser's own limit counts aliases only.
const MAX_VALUES: usize = 1_000_000;

const MAX_TEXT: usize = 32 << 20;

pub fn parse(path: &Path, content: &[u8]) -> Result<Vec<Value>, String> {
    let documents = if path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
    {
        // YAML includes JSON, except JSON that is indented with tabs.
        let stream = serde_json::Deserializer::from_slice(content).into_iter();
        stream
            .collect::<Result<Vec<Value>, _>>()
            .map_err(|error| format!("invalid JSON: {error}"))?
    } else {
        return parse_yaml(content, MAX_VALUES, MAX_TEXT);
    };
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Parses YAML, which includes most JSON, up to a number of values and bytes of text with all aliases expanded.
pub fn parse_yaml(content: &[u8], max_values: usize, max_text: usize) -> Result<Vec<Value>, String> {
    let budget = DocumentBudget {
        max_values,
        max_text,
        values: Cell::new(max_values),
        text: Cell::new(max_text),
    };
    let documents = serde_yaml::Deserializer::from_slice(content);
    let documents = documents.map(|document| DocumentNode(&budget).deserialize(document));
    let documents: Vec<Value> = documents
        .collect::<Result<_, _>>()
        .map_err(|error| format!("invalid YAML: {error}"))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Returns the objects of a document; a list, as in `kubectl get -o yaml`, has many.
pub fn objects(mut document: Value) -> Vec<Value> {
    let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && document["items"].is_array();
    if !is_list {
        return vec![document];
    }
    // Items of a typed list may omit apiVersion and kind.
    let kind = document["kind"]
        .as_str()
        .and_then(|kind| kind.strip_suffix("List"))
        .filter(|kind| !kind.is_empty());
    let default = kind.map(|kind| (document["apiVersion"].clone(), Value::from(kind)));
    let Value::Array(items) = document["items"].take() else {
        return Vec::new();
    };
    let complete = |mut item: Value| {
        if let (Some((version, kind)), Some(fields)) = (&default, item.as_object_mut()) {
            fields.entry("apiVersion").or_insert_with(|| version.clone());
            fields.entry("kind").or_insert_with(|| kind.clone());
        }
        item
    };
    items.into_iter().map(complete).flat_map(objects).collect()
}

struct DocumentBudget {
    max_values: usize,
    max_text: usize,
    values: Cell<usize>,
    text: Cell<usize>,
}

impl DocumentBudget {
    fn spend<E: serde::de::Error>(&self, text: usize) -> Result<(), E> {
        let values = self.values.get().checked_sub(1);
        let (Some(values), Some(text)) = (values, self.text.get().checked_sub(text)) else {
            return Err(E::custom(format!(
                "more than {} values, or {} bytes of text, with all aliases expanded",
                self.max_values, self.max_text
            )));
        };
        self.values.set(values);
        self.text.set(text);
        Ok(())
    }
}

/// Decodes YAML as Kubernetes does: as JSON, with string keys and without tags.
#[derive(Clone, Copy)]
struct DocumentNode<'a>(&'a DocumentBudget);

impl<'de> DeserializeSeed<'de> for DocumentNode<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for DocumentNode<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.0.spend(0).map(|()| Value::Null)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.0.spend(0).map(|()| value.into())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.0.spend(0).map(|()| value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.0.spend(0).map(|()| value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.0.spend(0).map(|()| value.into())
    }

    #[expect(clippy::cast_precision_loss, reason = "JSON in Kubernetes has no larger integers")]
    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    #[expect(clippy::cast_precision_loss, reason = "JSON in Kubernetes has no larger integers")]
    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Value, E> {
        self.visit_f64(value as f64)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.0.spend(value.len()).map(|()| value.into())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.0.spend(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.0.spend(0)?;
        let (mut map, mut merged) = (Map::new(), Vec::new());
        while let Some(key) = entries.next_key_seed(self)? {
            let value = entries.next_value_seed(self)?;
            match key {
                Value::String(key) if key == "<<" => merged.push(value),
                key => drop(map.insert(key_text(key).map_err(A::Error::custom)?, value)),
            }
        }
        merge(&mut map, merged);
        Ok(Value::Object(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Value, A::Error> {
        let (_, value) = tagged.variant::<IgnoredAny>()?;
        value.newtype_variant_seed(self)
    }
}

fn key_text(key: Value) -> Result<String, &'static str> {
    match key {
        Value::String(key) => Ok(key),
        Value::Null => Ok("null".to_owned()),
        Value::Bool(_) | Value::Number(_) => Ok(key.to_string()),
        Value::Array(_) | Value::Object(_) => Err("keys must be strings"),
    }
}

/// Applies YAML merge keys (`<<: *defaults`) without overriding existing entries.
fn merge(map: &mut Map<String, Value>, merged: Vec<Value>) {
    for value in merged {
        match value {
            Value::Object(defaults) => {
                for (key, value) in defaults {
                    map.entry(key).or_insert(value);
                }
            }
            Value::Array(values) => merge(map, values),
            _ => {}
        }
    }
}

/// Returns labels or annotations. Accepts numbers and booleans, as users write `suspend: true` without quotes.
pub fn text_map(value: &Value) -> std::collections::BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    };
    let entries = value.as_object().into_iter().flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), text(value)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn yaml(text: &str) -> Result<Vec<Value>, String> {
        parse(Path::new("a.yaml"), text.as_bytes())
    }

    #[rstest]
    #[case("", json!([]))]
    #[case("# nothing\n---\n---\n", json!([]))]
    #[case("a: 1\n---\nb: 2\n", json!([{ "a": 1 }, { "b": 2 }]))]
    #[case("a: &x [1, 1.5, true, null, ~, t]\nb: *x", json!([{ "a": [1, 1.5, true, null, null, "t"], "b": [1, 1.5, true, null, null, "t"] }]))]
    #[case("1: a\ntrue: b\nnull: c", json!([{ "1": "a", "true": "b", "null": "c" }]))]
    #[case("a: 1\na: 2", json!([{ "a": 2 }]))]
    #[case("d: &d {a: 1, b: 2}\ne: {<<: *d, a: 3}\nf: {<<: [*d, {c: 4}]}", json!([{ "d": { "a": 1, "b": 2 }, "e": { "a": 3, "b": 2 }, "f": { "a": 1, "b": 2, "c": 4 } }]))]
    #[case("a: !Ref b\nc: !!str 1", json!([{ "a": "b", "c": "1" }]))]
    #[case("a: 18446744073709551615\nb: -9223372036854775808", json!([{ "a": u64::MAX, "b": i64::MIN }]))]
    #[case("a: 100000000000000000000", json!([{ "a": 1e20 }]))]
    #[case("a: .nan\nb: 0x10", json!([{ "a": null, "b": 16 }]))]
    #[case("{\"a\": [1]}", json!([{ "a": [1] }]))]
    fn yaml_is_parsed_as_in_kubernetes(#[case] text: &str, #[case] documents: Value) {
        assert_eq!(Value::from(yaml(text).unwrap()), documents);
    }

    #[rstest]
    #[case("a: [1")]
    #[case("a: 1\n---\nb: {")]
    #[case("<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> other\n")]
    #[case("a: *nowhere")]
    #[case("a: &a [*a]")]
    #[case("? [1]\n: 2")]
    #[case("\u{0}")]
    fn invalid_yaml_is_rejected(#[case] text: &str) {
        assert!(yaml(text).unwrap_err().contains("invalid YAML"));
    }

    #[test]
    fn excessive_alias_expansion_is_rejected() {
        let nested = (1..30).map(|n| {
            format!(
                "a{n}: &a{n} [*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p}]\n",
                p = n - 1
            )
        });
        let nested = format!("a0: &a0 [x]\n{}", nested.collect::<String>());
        assert!(yaml(&nested).is_err());
        // A few aliases to a large value, which the parser's own limit allows.
        let wide = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(20_000), "*a,".repeat(20_000));
        assert!(yaml(&wide).unwrap_err().contains("aliases"), "values");
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a,".repeat(1_000));
        assert!(yaml(&long).unwrap_err().contains("aliases"), "text");
    }

    #[test]
    fn depth_has_a_limit() {
        assert!(yaml(&"[".repeat(100_000)).is_err());
        assert!(parse(Path::new("a.json"), "[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn json_with_tabs_and_multiple_documents_is_parsed() {
        let documents = parse(Path::new("a.JSON"), b"{\n\t\"a\": 1}\n{}\nnull").unwrap();
        assert_eq!(documents, [json!({ "a": 1 }), json!({})]);
        assert!(
            parse(Path::new("a.json"), b"{\"a\": 1")
                .unwrap_err()
                .contains("invalid JSON")
        );
    }

    #[test]
    fn lists_are_taken_apart() {
        let item = json!({ "apiVersion": "v1", "kind": "A" });
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": [item, { "kind": "List", "items": [item] }] });
        assert_eq!(objects(list), [item.clone(), item]);
        let typed = json!({ "apiVersion": "g/v1", "kind": "AList", "items": [{ "a": 1 }, { "kind": "B" }] });
        assert_eq!(
            objects(typed),
            [
                json!({ "apiVersion": "g/v1", "kind": "A", "a": 1 }),
                json!({ "apiVersion": "g/v1", "kind": "B" })
            ]
        );
        let odd = json!({ "kind": "BlackList", "items": "none" });
        assert_eq!(objects(odd.clone()), [odd]);
        assert_eq!(objects(json!("text")), [json!("text")]);
    }

    #[test]
    fn annotations_accept_numbers_and_booleans() {
        let map = text_map(&json!({ "a": "b", "c": true, "d": 1, "e": null, "f": {} }));
        assert_eq!(
            map.into_iter().map(|(k, v)| k + "=" + &v).collect::<Vec<_>>(),
            ["a=b", "c=true", "d=1"]
        );
        assert!(text_map(&Value::Null).is_empty());
    }
}
