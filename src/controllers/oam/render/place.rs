//! The place where a component is deployed.

use serde_json::{Map, Value};

use crate::api::oam::Definition;
use crate::controllers::oam::parse::ParsedComponent;
use crate::controllers::oam::trackers::LOCAL;

/// The place of a component. The default is that of components which no policy places.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Empty if no step or policy names one.
    pub cluster: String,
    /// Empty for the namespace of the Application.
    pub namespace: String,
    /// Empty without the policy replication.
    pub replica_key: String,
}

impl Place {
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the fields of the context that differ from those of other places.
    pub(super) fn context(&self) -> Map<String, Value> {
        let cluster = if self.cluster.is_empty() { LOCAL } else { &self.cluster };
        let mut context = Map::from_iter([("cluster".to_owned(), cluster.into())]);
        let own = [("namespace", &self.namespace), ("replicaKey", &self.replica_key)];
        let own = own.into_iter().filter(|(_, value)| !value.is_empty());
        context.extend(own.map(|(name, value)| (name.to_owned(), value.as_str().into())));
        context
    }

    /// Moves an object to the namespace of the place; one of a trait for the control plane to the Application's own.
    pub(super) fn set_namespace(
        &self,
        object: &mut Map<String, Value>,
        trait_type: &str,
        component: &ParsedComponent,
        own: &str,
    ) {
        let mut traits = component.traits.iter();
        let is_for_control_plane = traits.any(|one| {
            one.definition.spec.control_plane_only && one.definition.metadata().name.as_deref() == Some(trait_type)
        });
        let namespace = match (is_for_control_plane, self.namespace.is_empty()) {
            (true, _) => own,
            (false, false) => &self.namespace,
            (false, true) => return,
        };
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
    }
}
