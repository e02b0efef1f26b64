//! Claims of persistent volumes.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::decode;
use super::{Reads, Rule, Shortfall};
use crate::api::lenient::null_as_default;

/// PersistentVolumeClaim: it is bound.
#[derive(Debug)]
pub struct PersistentVolumeClaim;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "null_as_default")]
    phase: String,
}

impl Rule for PersistentVolumeClaim {
    const READS: Reads = Reads::Status;

    fn check(_: i64, _: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), Shortfall> {
        let Status { phase } = decode("status", status)?;
        match phase.as_str() {
            "Bound" => Ok(()),
            "" => Err(Shortfall::missing("no phase yet")),
            _ => Err(Shortfall::missing(format!("phase {phase}"))),
        }
    }
}
