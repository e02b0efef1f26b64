//! Secrets whose data a revision leaves out. They are read again when the revision is deployed.

use serde_json::{Map, Value, json};

use super::objects::{cluster, source};
use super::select::fetch_one;
use super::{FetchObjects, ObjectKind, ObjectRequest, ObjectSelector, ReferenceError};
use crate::api::oam::labels::{KUBECTL_LAST_APPLIED, REDACTED};

/// Removes the data of existing Secrets. Secrets of manifests at URLs stay: they were public before.
#[must_use]
pub fn redacted(mut objects: Vec<Value>) -> Vec<Value> {
    for object in &mut objects {
        let is_secret = object["apiVersion"] == "v1" && object["kind"] == "Secret";
        if !is_secret || source(object).is_some() {
            continue;
        }
        let Some(fields) = object.as_object_mut() else {
            continue;
        };
        for field in ["data", "stringData"] {
            Map::remove(fields, field);
        }
        let annotations = &mut object["metadata"]["annotations"];
        if !annotations.is_object() {
            *annotations = json!({});
        }
        if let Some(annotations) = annotations.as_object_mut() {
            // kubectl has the data there, too.
            annotations.remove(KUBECTL_LAST_APPLIED);
            annotations.insert(REDACTED.to_owned(), "true".into());
        }
    }
    objects
}

#[must_use]
pub fn has_redacted(objects: &[Value]) -> bool {
    objects.iter().any(is_redacted)
}

/// A manifest at a URL may have the annotation, too.
fn is_redacted(object: &Value) -> bool {
    object["metadata"]["annotations"][REDACTED] == "true" && source(object).is_none()
}

pub async fn complete(objects: &[Value], source: &impl FetchObjects) -> Result<Vec<Value>, ReferenceError> {
    let mut complete = Vec::new();
    for object in objects {
        if is_redacted(object) {
            complete.extend(fetch_one(&request(object), source).await?)
        } else {
            complete.push(object.clone())
        }
    }
    Ok(complete)
}

fn request(object: &Value) -> ObjectRequest {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    ObjectRequest {
        cluster: cluster(object).to_owned(),
        kind: ObjectKind {
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
        },
        namespace: text("namespace"),
        selector: ObjectSelector::Name(text("name")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(annotations: Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": { "key": "c2VjcmV0" },
            "metadata": { "name": "token", "namespace": "team", "annotations": annotations },
        })
    }

    /// Has one Secret.
    struct Cluster(Option<Value>);

    impl FetchObjects for Cluster {
        async fn fetch(&self, request: &ObjectRequest) -> Result<Vec<Value>, String> {
            assert_eq!(
                (request.namespace.as_str(), request.kind.kind.as_str()),
                ("team", "Secret")
            );
            Ok(self.0.iter().cloned().collect())
        }

        async fn load(&self, url: &str) -> Result<Vec<Value>, String> {
            Err(url.to_owned())
        }
    }

    #[tokio::test]
    async fn data_of_secrets_is_left_out_and_read_again() {
        let kubectl = json!({ "kubectl.kubernetes.io/last-applied-configuration": "c2VjcmV0" });
        let map =
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "key": "b" } });
        let objects = vec![map, secret(kubectl), secret(json!(null))];
        let recorded = redacted(objects.clone());
        assert_eq!(recorded[0], objects[0]);
        assert!(has_redacted(&recorded) && !has_redacted(&objects));
        assert!(!json!(recorded).to_string().contains("c2VjcmV0"), "{recorded:#?}");

        let live = secret(json!({ "kept": "yes" }));
        let deployed = complete(&recorded, &Cluster(Some(live.clone()))).await.unwrap();
        assert_eq!(deployed, [objects[0].clone(), live.clone(), live]);
        let error = complete(&recorded, &Cluster(None)).await.unwrap_err().to_string();
        assert_eq!(error, "failed to load ref object Secret team/token: not found");
    }

    #[tokio::test]
    async fn data_of_a_secret_is_read_again_in_its_cluster() {
        let annotations = json!({ "portolan.dev/resource-cluster": "east" });
        let recorded = redacted(vec![secret(annotations.clone())]);
        let live = secret(json!(null));
        let deployed = complete(&recorded, &Cluster(Some(live.clone()))).await.unwrap();
        assert_eq!(deployed, [secret(annotations)]);
        let error = complete(&recorded, &Cluster(None)).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "failed to load ref object Secret team/token in cluster east: not found"
        );
    }

    #[test]
    fn secrets_of_manifests_at_urls_stay() {
        let objects = vec![secret(json!({ "app.oam.dev/resource-url": "https://example.com" }))];
        assert_eq!(redacted(objects.clone()), objects);
    }
}
