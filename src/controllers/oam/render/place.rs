//! Objects of a component at the place where a step deploys it.

use serde_json::{Map, Value};

use crate::api::oam::labels;
use crate::controllers::oam::placement::Place;
use crate::controllers::oam::trackers::LOCAL;

impl Place {
    /// Returns the fields of the context that differ between places.
    pub(super) fn context(&self) -> Map<String, Value> {
        let cluster = if self.cluster.is_empty() { LOCAL } else { &self.cluster };
        let mut context = Map::from_iter([("cluster".to_owned(), cluster.into())]);
        let fields = [("namespace", &self.namespace), ("replicaKey", &self.replica_key)];
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        context.extend(fields.map(|(name, value)| (name.to_owned(), value.as_str().into())));
        context
    }

    /// Moves an object to the namespace of the place, whatever its template names. An object that is local stays with the
    /// Application.
    pub(super) fn move_object(&self, object: &mut Map<String, Value>, is_local: bool, app_namespace: &str) {
        if *self == Self::default() {
            return;
        }
        let namespace = if is_local { app_namespace } else { &self.namespace };
        let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
            return;
        };
        if !namespace.is_empty() {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        if is_local && let Some(Value::Object(labels)) = metadata.get_mut("labels") {
            labels.insert(labels::CLUSTER.to_owned(), LOCAL.into());
        }
    }
}
