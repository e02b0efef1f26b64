use k8s_openapi::api::coordination::v1::Lease;

/// Grows whenever another process takes the Lease, and when the Lease is deleted and created again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation {
    /// The creation in seconds since 1970, by the clock of the API server: a new Lease starts its transitions again.
    pub created: i64,
    pub transitions: i64,
}

impl Generation {
    pub(super) fn of(lease: &Lease) -> Self {
        let created = lease.metadata.creation_timestamp.as_ref();
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        Self {
            created: created.map_or(0, |created| created.0.as_second()),
            transitions: transitions.unwrap_or_default().into(),
        }
    }
}
