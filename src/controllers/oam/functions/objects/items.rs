//! The items of a list, within limits.

use serde_json::Value;

use crate::text::json_size;

const MAX_ITEMS: usize = 1_000;
/// Of the items as JSON.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Collects the items of a list page by page.
#[derive(Debug)]
pub struct Items {
    /// The items in messages, in plural.
    name: &'static str,
    values: Vec<Value>,
    bytes: usize,
}

impl Items {
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            values: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds an item.
    ///
    /// # Errors
    /// The list would exceed a limit.
    pub fn push(&mut self, value: Value) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(json_size(&value));
        if self.values.len() >= MAX_ITEMS || self.bytes > MAX_BYTES {
            return Err(format!(
                "the list has more than {MAX_ITEMS} {} or {MAX_BYTES} bytes; select fewer by namespace or labels",
                self.name
            ));
        }
        self.values.push(value);
        Ok(())
    }

    #[must_use]
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_is_limited_by_number() {
        let mut items = Items::new("objects");
        for number in 0..MAX_ITEMS {
            items.push(json!(number)).unwrap();
        }
        let error = items.push(json!(0)).unwrap_err();
        assert!(error.starts_with("the list has more than 1000 objects or"), "{error}");
        assert_eq!(items.into_values().len(), MAX_ITEMS);
    }

    #[test]
    fn a_list_is_limited_by_size() {
        let mut items = Items::new("objects");
        // With its quotes, each is a quarter of the limit.
        let text = Value::from("x".repeat(MAX_BYTES / 4 - 2));
        for _ in 0..4 {
            items.push(text.clone()).unwrap();
        }
        assert!(items.push(json!(0)).is_err());
    }
}
