use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::source::context_names;

/// The field `context` of templates. Components share most of it, or else memory would grow with their number squared.
#[derive(Clone, Debug, Default)]
pub struct Context {
    shared: Arc<Map<String, Value>>,
    /// Fields that replace shared fields.
    fields: Map<String, Value>,
}

impl Context {
    #[must_use]
    pub fn new(shared: Arc<Map<String, Value>>, fields: Map<String, Value>) -> Self {
        Self { shared, fields }
    }

    /// Returns the context with further fields, which replace fields of the same names.
    #[must_use]
    pub fn with(&self, fields: &Map<String, Value>) -> Self {
        let mut context = self.clone();
        context.fields.extend(fields.clone());
        context
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).or_else(|| self.shared.get(name))
    }

    pub(super) fn insert(&mut self, name: &str, value: Value) {
        self.fields.insert(name.to_owned(), value);
    }

    /// Returns all fields in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        let fields = self.shared.iter().chain(&self.fields);
        let fields: BTreeMap<&str, &Value> = fields.map(|(name, value)| (name.as_str(), value)).collect();
        fields.into_iter()
    }

    /// Returns a copy of the fields that a text names.
    #[must_use]
    pub fn named_in(&self, text: &str) -> Map<String, Value> {
        let names = context_names(text);
        let named = self.iter().filter(|(name, _)| names.contains(name));
        named.map(|(name, value)| (name.to_owned(), value.clone())).collect()
    }
}

impl From<Map<String, Value>> for Context {
    fn from(fields: Map<String, Value>) -> Self {
        Self::new(Arc::default(), fields)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn own_fields_take_the_place_of_shared_ones() {
        let shared = Arc::new(map(json!({ "name": "app", "namespace": "team" })));
        let context = Context::new(shared, map(json!({ "name": "web" })));
        let fields: Vec<_> = context.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(fields, [r#"name="web""#, r#"namespace="team""#]);
        let with_output = context.with(&map(json!({ "output": 1, "namespace": "other" })));
        assert_eq!(with_output.get("namespace"), Some(&json!("other")));
        assert_eq!(
            (context.get("output"), with_output.get("output")),
            (None, Some(&json!(1)))
        );
    }

    #[test]
    fn a_text_gets_the_fields_that_it_names() {
        let context = Context::from(map(json!({ "name": "web", "components": [1, 2], "namespace": "team" })));
        assert_eq!(context.named_in("x: context.name"), map(json!({ "name": "web" })));
        assert_eq!(context.named_in("x: context").len(), 3);
    }
}
