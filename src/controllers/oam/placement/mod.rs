//! The places in which a `deploy` step deploys the components of an application, and their values.
//!
//! ```text
//!  policies ─► topology ─► placements ──────────────────────────────┐
//!  components ─► override ─► replication ─► components and replicas ┴─► deployments
//!  deployments ─► progress: the health known so far ─► what may be applied, what waits
//! ```
//!
//! Pure. Policies and components are written by tenants, so their number and size are limited.

mod by_place;
mod deploy;
mod error;
mod limits;
mod overrides;
mod pattern;
mod progress;
mod properties;
mod replication;
mod services;
#[cfg(test)]
mod tests;
mod topology;

use std::sync::Arc;

use crate::api::oam::Component;

pub use by_place::ByPlace;
pub use deploy::{DeployParameters, Deployer, PlacementSettings, RemainingParameters, deployments};
pub use error::PlacementError;
pub use overrides::{NamedType, override_types};
pub use progress::{Applied, DeployEnd, PlacementCheck, PlacementProgress};
pub use services::{ServiceKey, merge_replicas, place_service, service_key};
pub use topology::cluster_selector;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Empty if a step names none. Both mean the controller's own cluster.
    pub cluster: String,
    /// Empty for the namespace of the application.
    pub namespace: String,
    /// Empty without a replication policy.
    pub replica_key: String,
}

/// A component as a step deploys it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedComponent {
    /// Shared by all places of the component.
    pub component: Arc<Component>,
    pub place: Place,
}

impl PlacedComponent {
    /// Returns the key that messages name: cluster, namespace, replica and name.
    #[must_use]
    pub fn key(&self) -> String {
        let Place {
            cluster,
            namespace,
            replica_key,
        } = &self.place;
        format!("{cluster}/{namespace}/{replica_key}/{}", self.component.name)
    }
}
