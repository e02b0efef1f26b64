//! Removes values from the data of the context ConfigMap.

use std::collections::BTreeMap;

use super::Removed;
use crate::controllers::oam::source::{SyntaxError, without_field};
use crate::controllers::oam::workflow::ValueStore;
use crate::controllers::oam::workflow::store::VALUES;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("values of the workflow are not valid CUE: {0}")]
pub struct ValuesError(#[from] SyntaxError);

/// Removes the values that steps have provided, and what is recorded of their attempts. Returns true if this changes the
/// data. Keys of others stay.
///
/// # Errors
/// If KubeVela has written the values, and they can't be parsed.
pub fn forget(data: &mut BTreeMap<String, String>, removed: &Removed) -> Result<bool, ValuesError> {
    let before = data.clone();
    match ValueStore::parse(data) {
        Ok(mut store) => {
            let recorded = store.to_data();
            store.remove(removed.outputs.iter().map(String::as_str));
            removed.ids.iter().for_each(|id| store.forget(id));
            let left = store.to_data();
            if left != recorded {
                data.retain(|key, _| !recorded.contains_key(key));
                data.extend(left);
            }
        }
        Err(_) => {
            let mut text = data.remove(VALUES).unwrap_or_default();
            for path in &removed.outputs {
                text = without_field(&text, path)?;
            }
            data.insert(VALUES.to_owned(), text);
        }
    }
    data.retain(|key, _| !is_of_step(key, &removed.ids));
    Ok(*data != before)
}

/// Returns true for a key that KubeVela writes for a step: its id, a dot and a word.
fn is_of_step(key: &str, ids: &[String]) -> bool {
    key.split_once('.')
        .is_some_and(|(id, _)| ids.iter().any(|removed| removed == id))
}
