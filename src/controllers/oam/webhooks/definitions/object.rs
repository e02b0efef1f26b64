//! The definition of a review.

use std::time::Duration;

use kube::Resource;
use serde::de::DeserializeOwned;

use super::super::review::{AdmissionRequest, Operation, Verdict};
use super::super::serve::OWNER;
use crate::api::Raw;
use crate::api::oam::{Definition, GROUP};
use crate::budget::{Budgets, Reservation, parsed_bytes};
use crate::runtime::watch::{MAX_DECODED_BYTES, too_large};

const VERSION: &str = "v1beta1";
/// Memory of an object that is decoded without a reservation, on the threads of the runtime.
const SMALL_BYTES: u64 = 1 << 20;
/// Time to wait for memory, within the time-out of the webhook.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// An object with the memory that it takes.
pub(super) struct Decoded<D> {
    pub(super) object: D,
    _memory: Option<Reservation>,
}

/// Returns the object of a review, or nothing if it needs none.
pub(super) async fn object_of<D>(request: &AdmissionRequest, budgets: &Budgets) -> Result<Option<Decoded<D>>, Verdict>
where
    D: Definition + Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
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
    let raw = request
        .object::<Raw<D>>()
        .map_err(|error| Verdict::Invalid(format!("invalid {}: {error}", D::KIND)))?;
    // The removal of a finalizer.
    if raw.metadata().deletion_timestamp.is_some() {
        return Ok(None);
    }
    decode(raw, budgets).await.map(Some).map_err(|error| match error {
        DecodeError::Invalid(error) => Verdict::Invalid(format!("invalid {}: {error}", D::KIND)),
        DecodeError::Work(error) => Verdict::Failed(format!("failed to decode {}: {error}", D::KIND)),
    })
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Work(String),
}

/// Decodes an object of a limited size, with memory of all reviews.
pub(super) async fn decode<K>(raw: Raw<K>, budgets: &Budgets) -> Result<Decoded<K>, DecodeError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
{
    let bytes = parsed_bytes(raw.text());
    if bytes > MAX_DECODED_BYTES {
        return Err(DecodeError::Invalid(too_large(bytes, MAX_DECODED_BYTES)));
    }
    let (decoded, memory) = if bytes <= SMALL_BYTES {
        (raw.decode().0, None)
    } else {
        let memory = budgets.memory.reserve(OWNER, bytes, MAX_WAIT).await;
        let memory = memory.map_err(|error| DecodeError::Work(error.to_string()))?;
        let decoded = budgets.compute(OWNER, move || raw.decode().0).await;
        (
            decoded.map_err(|error| DecodeError::Work(error.to_string()))?,
            Some(memory),
        )
    };
    let object = decoded.map_err(|invalid| DecodeError::Invalid(invalid.error))?;
    Ok(Decoded {
        object,
        _memory: memory,
    })
}
