//! The definition of a review.

use kube::Resource;
use serde::de::DeserializeOwned;

use super::super::review::{AdmissionRequest, Operation, Verdict};
use crate::api::Raw;
use crate::api::oam::{Definition, GROUP};
use crate::budget::parsed_bytes;
use crate::runtime::watch::{MAX_DECODED_BYTES, too_large};

const VERSION: &str = "v1beta1";

/// Returns the object of a review, or nothing if it needs none.
pub(super) fn object_of<D>(request: &AdmissionRequest) -> Result<Option<D>, Verdict>
where
    D: Definition + Resource<DynamicType = ()> + DeserializeOwned,
{
    let (resource, expected) = (&request.resource, D::plural(&()));
    if resource.group != GROUP || resource.version != VERSION || resource.resource != expected {
        // As Kubernetes writes a resource.
        let message = format!("expect resource to be {GROUP}/{VERSION}, Resource={expected}");
        return Err(Verdict::Invalid(message));
    }
    if !matches!(request.operation, Operation::Create | Operation::Update) {
        return Ok(None);
    }
    let invalid = |error: String| Verdict::Invalid(format!("invalid {}: {error}", D::KIND));
    let raw = request.object::<Raw<D>>().map_err(|error| invalid(error.to_string()))?;
    // The removal of a finalizer.
    if raw.metadata().deletion_timestamp.is_some() {
        return Ok(None);
    }
    decode(raw).map(Some).map_err(invalid)
}

/// Decodes an object of a limited size.
pub(super) fn decode<K>(raw: Raw<K>) -> Result<K, String>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let bytes = parsed_bytes(raw.text());
    if bytes > MAX_DECODED_BYTES {
        return Err(too_large(bytes, MAX_DECODED_BYTES));
    }
    raw.decode().0.map_err(|invalid| invalid.error)
}
