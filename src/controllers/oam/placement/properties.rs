//! Properties of policies, in which unknown keys are errors.

use serde::de::DeserializeOwned;

use super::PlacementError;
use crate::api::oam::AppPolicy;
use crate::text;

/// Decodes the properties of a policy. `type_` names its type in errors.
pub(super) fn decode<T: DeserializeOwned>(policy: &AppPolicy, type_: &'static str) -> Result<T, PlacementError> {
    let properties = policy.properties.as_ref().filter(|properties| !properties.is_null());
    let Some(properties) = properties else {
        return Err(PlacementError::Empty {
            type_,
            name: policy.name.clone(),
        });
    };
    serde_path_to_error::deserialize(properties).map_err(|error| PlacementError::Invalid {
        type_,
        name: policy.name.clone(),
        // The error quotes the value.
        cause: text::sanitize(&error.to_string()),
    })
}
