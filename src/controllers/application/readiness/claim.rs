use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::decode;
use super::{FieldSet, NotReady, ReadinessRule};
use crate::api::lenient::null_as_default;

#[derive(Debug)]
pub struct PersistentVolumeClaim;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "null_as_default")]
    phase: String,
}

impl ReadinessRule for PersistentVolumeClaim {
    const FIELDS: FieldSet = FieldSet::Status;

    fn check(_: i64, _: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let Status { phase } = decode("status", status)?;
        match phase.as_str() {
            "Bound" => Ok(()),
            "" => Err(NotReady::missing("no phase yet")),
            _ => Err(NotReady::missing(format!("phase {phase}"))),
        }
    }
}
