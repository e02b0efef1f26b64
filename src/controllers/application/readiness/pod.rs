use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{Conditions, decode, describe};
use super::{FieldSet, NotReady, ReadinessRule};

/// Ready by the condition Ready or its reason PodCompleted. A pod without conditions is not ready in any phase.
#[derive(Debug)]
pub struct Pod;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Conditions,
}

impl ReadinessRule for Pod {
    const FIELDS: FieldSet = FieldSet::Status;

    fn check(_: i64, _: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let Status { conditions } = decode("status", status)?;
        let ready = || conditions.of_type("Ready");
        if ready().any(|ready| ready.status == "True" || ready.reason == "PodCompleted") {
            return Ok(());
        }
        Err(NotReady::missing(match ready().next() {
            Some(ready) => describe("Ready", &ready.status, &ready.reason),
            None => "no condition Ready yet".to_owned(),
        }))
    }
}
