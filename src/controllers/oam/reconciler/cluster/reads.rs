//! Objects that an Application may see with the rights of this controller. The API server checks the rights of users.

use serde_json::{Value, json};

use super::Cluster;
use crate::api::oam::labels;
use crate::api::oam::labels::SERVICE_ACCOUNT_ANNOTATION;
use crate::controllers::oam::objects::ObjectId;

const SECRET: &str = "Secret";

impl Cluster<'_> {
    /// Checks the right to read an object, or to list its kind. [`Self::check_record`] checks what was read.
    pub async fn check_read(&self, id: &ObjectId) -> Result<(), String> {
        let namespace = &self.env.name.namespace;
        if self.objects.has_user(&id.cluster) {
            return Ok(());
        }
        if is_record(id, "ResourceTracker") || (is_record(id, "ApplicationRevision") && id.namespace != *namespace) {
            return Err(format!("{} {:?} is a record of this controller", id.kind, id.name));
        }
        if id.namespace == *namespace || self.objects.is_namespaced(id).await == Ok(false) {
            return Ok(());
        }
        if !self.env.options().admission.allow_cross_namespace {
            return Err(format!(
                "{} {:?} is outside the namespace of application",
                id.kind, id.name
            ));
        }
        if id.kind == SECRET && !self.sees_all_secrets(&id.cluster) {
            Err(foreign_secrets(&id.namespace))
        } else {
            Ok(())
        }
    }

    /// Returns true if the rights of a user, or an administrator, decide what the Application may use.
    pub fn sees_all_secrets(&self, cluster: &str) -> bool {
        self.objects.has_user(cluster) || self.is_privileged()
    }

    pub fn is_privileged(&self) -> bool {
        let namespaces = &self.env.options().identity.privileged_namespaces;
        namespaces.contains(&self.env.name.namespace)
    }

    /// Checks that an object is no record of another Application: values of its steps may hold data of Secrets.
    pub fn check_record(&self, cluster: &str, live: &Value) -> Result<(), String> {
        if self.objects.has_user(cluster) || !is_record_of_other(live, self.uid.as_deref()) {
            Ok(())
        } else {
            Err(format!(
                "{} {}/{} is a record of another application",
                text(live, "/kind"),
                text(live, "/metadata/namespace"),
                text(live, "/metadata/name")
            ))
        }
    }

    pub fn without_records(&self, cluster: &str, mut listed: Vec<Value>) -> Vec<Value> {
        listed.retain(|object| self.check_record(cluster, object).is_ok());
        listed
    }

    /// Removes the data of a Secret in another namespace, which policies let the Application record without writing it.
    /// The data of its own Secrets is in their templates.
    pub fn without_foreign_data(&self, id: &ObjectId, live: Value) -> Value {
        if id.kind != SECRET || id.namespace == self.env.name.namespace || self.sees_all_secrets(&id.cluster) {
            return live;
        }
        let all = &live["metadata"]["labels"];
        json!({
            "apiVersion": live["apiVersion"], "kind": live["kind"], "type": live["type"],
            "metadata": {
                "name": id.name, "namespace": id.namespace, "uid": live["metadata"]["uid"],
                "labels": { labels::APP_NAME: all[labels::APP_NAME], labels::APP_NAMESPACE: all[labels::APP_NAMESPACE] },
            },
        })
    }
}

pub fn foreign_secrets(namespace: &str) -> String {
    format!(
        "Secrets of namespace {namespace:?} can't be used with the rights of this controller; set the annotation \
         {SERVICE_ACCOUNT_ANNOTATION} to a ServiceAccount that may read them"
    )
}

/// Returns true for the values of a workflow, or a revision, that belongs to an Application or a WorkflowRun with
/// another UID.
fn is_record_of_other(live: &Value, uid: Option<&str>) -> bool {
    let kind = (text(live, "/apiVersion"), text(live, "/kind"));
    let is_kind =
        kind == ("v1", "ConfigMap") || (kind.0.starts_with("core.oam.dev/") && kind.1 == "ApplicationRevision");
    let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    let is_other = |owner: &Value| {
        let is_workflow = ["Application", "WorkflowRun"].contains(&text(owner, "/kind"));
        let is_oam = text(owner, "/apiVersion").starts_with("core.oam.dev/");
        is_workflow && is_oam && owner["uid"].as_str() != uid
    };
    is_kind && owners.is_some_and(|owners| owners.iter().any(is_other))
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn is_record(id: &ObjectId, kind: &str) -> bool {
    id.kind == kind && id.api_version.starts_with("core.oam.dev/")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn owned(api_version: &str, kind: &str, owner: (&str, &str, &str)) -> Value {
        let owner = json!({ "apiVersion": owner.0, "kind": owner.1, "name": "shop", "uid": owner.2 });
        let metadata = json!({ "name": "workflow-shop-context", "namespace": "team", "ownerReferences": [owner] });
        json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata })
    }

    #[rstest]
    #[case::values_of_another("v1", "ConfigMap", ("core.oam.dev/v1beta1", "Application", "other"), true)]
    #[case::of_a_run("v1", "ConfigMap", ("core.oam.dev/v1alpha1", "WorkflowRun", "other"), true)]
    #[case::revision("core.oam.dev/v1beta1", "ApplicationRevision", ("core.oam.dev/v1beta1", "Application", "other"), true)]
    #[case::own_values("v1", "ConfigMap", ("core.oam.dev/v1beta1", "Application", "own"), false)]
    #[case::of_another_controller("v1", "ConfigMap", ("example.com/v1", "Application", "other"), false)]
    #[case::another_kind("v1", "Service", ("core.oam.dev/v1beta1", "Application", "other"), false)]
    fn records_belong_to_the_application_that_owns_them(
        #[case] api_version: &str,
        #[case] kind: &str,
        #[case] owner: (&str, &str, &str),
        #[case] is_of_other: bool,
    ) {
        assert_eq!(
            is_record_of_other(&owned(api_version, kind, owner), Some("own")),
            is_of_other
        );
    }

    #[test]
    fn an_object_without_owners_is_no_record() {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" } });
        assert!(!is_record_of_other(&object, Some("own")));
    }
}
