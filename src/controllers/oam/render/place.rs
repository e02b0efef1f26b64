//! Objects of a component at the place where a step deploys it.

use serde_json::{Map, Value};

use crate::api::oam::labels;
use crate::controllers::oam::parse::ParsedComponent;
use crate::controllers::oam::placement::Place;
use crate::controllers::oam::trackers::LOCAL;

impl Place {
    /// Returns the fields of the context that differ from those of other places.
    pub(super) fn context(&self) -> Map<String, Value> {
        let cluster = if self.cluster.is_empty() { LOCAL } else { &self.cluster };
        let mut context = Map::from_iter([("cluster".to_owned(), cluster.into())]);
        let own = [("namespace", &self.namespace), ("replicaKey", &self.replica_key)];
        let own = own.into_iter().filter(|(_, value)| !value.is_empty());
        context.extend(own.map(|(name, value)| (name.to_owned(), value.as_str().into())));
        context
    }

    /// Moves an object to the namespace of the place, also from one that its template names. An object of a trait for the
    /// control plane stays with the Application.
    pub(super) fn move_object(
        &self,
        object: &mut Map<String, Value>,
        trait_type: &str,
        component: &ParsedComponent,
        own: &str,
    ) {
        if *self == Self::default() {
            return;
        }
        let definition = component.traits.iter().find(|one| one.type_label == trait_type);
        let is_control_plane_only = definition.is_some_and(|one| one.definition.spec.control_plane_only);
        let namespace = if is_control_plane_only { own } else { &self.namespace };
        let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
            return;
        };
        if !namespace.is_empty() {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        if is_control_plane_only && let Some(Value::Object(labels)) = metadata.get_mut("labels") {
            labels.insert(labels::CLUSTER.to_owned(), LOCAL.into());
        }
    }
}
