use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{Conditions, decode, joined};
use super::{FieldSet, NotReady, ReadinessRule};
use crate::api::lenient::null_as_default;

/// Ready when complete. The kubernetes-sigs controller reports a Job ready as soon as it starts, even if it fails.
#[derive(Debug)]
pub struct Job;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "null_as_default")]
    start_time: String,
    conditions: Conditions,
}

impl ReadinessRule for Job {
    const FIELDS: FieldSet = FieldSet::Status;

    fn check(_: i64, _: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let Status { start_time, conditions } = decode("status", status)?;
        if conditions.holding("Complete").is_some() {
            return Ok(());
        }
        Err(NotReady::missing(if let Some(failed) = conditions.holding("Failed") {
            joined(&["failed", &failed.reason, &failed.message])
        } else if conditions.holding("Suspended").is_some() {
            "suspended".to_owned()
        } else if start_time.is_empty() {
            "not started yet".to_owned()
        } else {
            "running".to_owned()
        }))
    }
}
