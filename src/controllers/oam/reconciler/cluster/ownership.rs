use serde_json::Value;

use super::Cluster;
use crate::api::oam::labels;
use crate::controllers::oam::dispatch::bookkeeping::label;
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::trackers::Inventory;

impl Cluster<'_> {
    /// Refuses objects of other Applications. Without a user, whose rights the API server checks, an object outside the
    /// namespace of the Application must be one that it applied.
    pub fn check_owner(&self, inventory: &Inventory, id: &ObjectId, live: &Value) -> Result<(), String> {
        self.check_record(&id.cluster, live)?;
        let name = label(live, labels::APP_NAME).unwrap_or_default();
        let namespace = label(live, labels::APP_NAMESPACE).unwrap_or_default();
        let app = self.env.name;
        let is_own = name == app.name && (namespace.is_empty() || namespace == app.namespace);
        if !name.is_empty() && !is_own {
            return Err(format!("the object belongs to application {namespace}/{name}"));
        }
        let is_inside = id.namespace == app.namespace;
        if is_inside || self.objects.has_user(&id.cluster) || (is_own && inventory.records(&id.key())) {
            return Ok(());
        }
        Err(format!(
            "{} {}/{} is outside the namespace of application, which has not applied it",
            id.kind, id.namespace, id.name
        ))
    }
}
