use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use sha2::{Digest as _, Sha256};

use super::ENDPOINT_TYPE;
use crate::controllers::oam::clusters::CREDENTIAL_TYPE;

/// A digest of the values and types in a Secret. Its annotations change more often than its credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    #[must_use]
    pub fn of(secret: &Secret) -> Self {
        let mut hash = Sha256::new();
        // The length makes the encoding unambiguous.
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for label in [CREDENTIAL_TYPE, ENDPOINT_TYPE] {
            add(secret.labels().get(label).map_or(&[][..], |value| value.as_bytes()));
        }
        for (key, value) in secret.data.iter().flatten() {
            add(key.as_bytes());
            add(&value.0);
        }
        Self(hash.finalize().into())
    }
}
