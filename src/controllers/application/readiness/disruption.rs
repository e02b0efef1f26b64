use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{decode, expect_generation};
use super::{FieldSet, NotReady, ReadinessRule};
use crate::api::lenient::integer;

#[derive(Debug)]
pub struct PodDisruptionBudget;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    #[serde(deserialize_with = "integer")]
    observed_generation: i64,
    #[serde(deserialize_with = "integer")]
    current_healthy: i64,
    #[serde(deserialize_with = "integer")]
    desired_healthy: i64,
}

impl ReadinessRule for PodDisruptionBudget {
    const FIELDS: FieldSet = FieldSet::Status;

    fn check(generation: i64, _: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let status: Status = decode("status", status)?;
        expect_generation(status.observed_generation, generation)?;
        if status.current_healthy < status.desired_healthy {
            return Err(NotReady::missing(format!(
                "{} of {} pods healthy",
                status.current_healthy, status.desired_healthy
            )));
        }
        Ok(())
    }
}
