//! Objects that an Application may see with the rights of this controller, which can read all.
//!
//! A user that the Application names has rights of their own, which the API server checks.

use serde_json::{Value, json};

use crate::api::oam::labels;
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::reconciler::pass::Pass;
use crate::controllers::oam::rights::SERVICE_ACCOUNT_ANNOTATION;

const SECRET: &str = "Secret";

impl Pass<'_> {
    /// Checks that the Application may read an object, or list objects of its kind and namespace. Applications in the
    /// namespace of the definitions, which belongs to the administrators, may read Secrets of all namespaces.
    pub(in crate::controllers::oam::reconciler) async fn check_read(&self, id: &ObjectId) -> Result<(), String> {
        let own = &self.name.namespace;
        if self.objects.has_user() {
            return Ok(());
        }
        if is_record(id, "ResourceTracker") || (is_record(id, "ApplicationRevision") && id.namespace != *own) {
            return Err(format!("{} {:?} is a record of this controller", id.kind, id.name));
        }
        if id.namespace == *own || self.objects.is_namespaced(id).await == Ok(false) {
            return Ok(());
        }
        if !self.reconciler.options.admission.allow_cross_namespace {
            return Err(format!(
                "{} {:?} is outside the namespace of application",
                id.kind, id.name
            ));
        }
        match id.kind == SECRET && !self.sees_all_secrets() {
            true => Err(foreign_secrets(&id.namespace)),
            false => Ok(()),
        }
    }

    pub(in crate::controllers::oam::reconciler) fn sees_all_secrets(&self) -> bool {
        self.objects.has_user() || self.name.namespace == self.reconciler.options.definition_namespace
    }

    /// Removes the data of a Secret in another namespace, which policies let the Application record without writing it. The
    /// data of its own ones is in their templates.
    pub(in crate::controllers::oam::reconciler) fn without_foreign_data(&self, id: &ObjectId, live: Value) -> Value {
        if id.kind != SECRET || id.namespace == self.name.namespace || self.sees_all_secrets() {
            return live;
        }
        let own = &live["metadata"]["labels"];
        json!({
            "apiVersion": live["apiVersion"], "kind": live["kind"], "type": live["type"],
            "metadata": {
                "name": id.name, "namespace": id.namespace, "uid": live["metadata"]["uid"],
                "labels": { labels::APP_NAME: own[labels::APP_NAME], labels::APP_NAMESPACE: own[labels::APP_NAMESPACE] },
            },
        })
    }
}

/// Returns the error for Secrets of another namespace.
pub(in crate::controllers::oam::reconciler) fn foreign_secrets(namespace: &str) -> String {
    format!(
        "Secrets of namespace {namespace:?} can't be used with the rights of this controller; set the annotation \
         {SERVICE_ACCOUNT_ANNOTATION} to a ServiceAccount that may read them"
    )
}

fn is_record(id: &ObjectId, kind: &str) -> bool {
    id.kind == kind && id.api_version.starts_with("core.oam.dev/")
}
