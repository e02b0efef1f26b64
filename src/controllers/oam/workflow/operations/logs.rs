//! The places of the logs of steps, which `util.#Log` records in the context ConfigMap.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::lenient::{self, is_false, null_as_default};

/// Key of the ConfigMap: JSON by the name of the step.
pub const LOG_CONFIG: &str = "logConfig";
/// Largest size of the records of all steps. The ConfigMap holds the values too.
const MAX_BYTES: usize = 64 << 10;

/// The places of the logs of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogConfig {
    /// True if the step has written to the log of the controller.
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "is_false")]
    pub data: bool,
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "Option::is_none")]
    pub source: Option<LogSource>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogSource {
    #[serde(deserialize_with = "lenient::or_default", skip_serializing_if = "String::is_empty")]
    pub url: String,
    #[serde(deserialize_with = "lenient::valid_elements", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<LogResource>,
}

/// Pods, by name or labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogResource {
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub label_selector: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogConfigError {
    #[error("arguments of a log are not a struct")]
    NotAStruct,
    #[error("sources of logs exceed {} KiB for all steps", MAX_BYTES >> 10)]
    TooLarge,
}

/// Returns the logs of steps by name. Invalid entries are left out.
#[must_use]
pub fn log_configs(data: &BTreeMap<String, String>) -> BTreeMap<String, LogConfig> {
    let text = data.get(LOG_CONFIG).map_or("", String::as_str);
    let entries: BTreeMap<String, Value> = serde_json::from_str(text).unwrap_or_default();
    let valid = entries
        .into_iter()
        .filter_map(|(step, config)| Some((step, serde_json::from_value(config).ok()?)));
    valid.collect()
}

impl LogConfig {
    /// Adds the arguments of `util.#Log`: data, level and source. Only the source is kept, not the data. Later parts replace
    /// earlier parts.
    ///
    /// # Errors
    /// The arguments have another form, or are too large; nothing is added then.
    pub fn add(&mut self, arguments: &Value) -> Result<(), LogConfigError> {
        let arguments = arguments.as_object().ok_or(LogConfigError::NotAStruct)?;
        let has = |name: &str| arguments.get(name).filter(|value| !value.is_null());
        let source = has("source").map(LogSource::deserialize).transpose();
        let mut sum = self.clone();
        sum.merge(Self {
            data: has("data").is_some(),
            source: source.map_err(|_| LogConfigError::NotAStruct)?,
        });
        encode(&sum)?;
        *self = sum;
        Ok(())
    }

    /// Takes the parts that `other` has.
    fn merge(&mut self, other: Self) {
        self.data |= other.data;
        let Some(source) = other.source else {
            return;
        };
        let recorded = self.source.get_or_insert_default();
        if !source.url.is_empty() {
            recorded.url = source.url;
        }
        if !source.resources.is_empty() {
            recorded.resources = source.resources;
        }
    }
}

/// Records where the logs of a step are. Parts that are absent stay as they were recorded. Returns true if this changes the
/// data.
///
/// # Errors
/// The records of all steps are too large; nothing is recorded then.
pub fn record_log_config(
    data: &mut BTreeMap<String, String>,
    step: &str,
    config: LogConfig,
) -> Result<bool, LogConfigError> {
    let mut configs = log_configs(data);
    configs.entry(step.to_owned()).or_default().merge(config);
    let text = encode(&configs)?;
    Ok(data.insert(LOG_CONFIG.to_owned(), text.clone()) != Some(text))
}

fn encode(records: &impl Serialize) -> Result<String, LogConfigError> {
    let text = serde_json::to_string(records).unwrap_or_default();
    if text.len() > MAX_BYTES {
        Err(LogConfigError::TooLarge)
    } else {
        Ok(text)
    }
}
