//! ServiceAccounts with whose rights Applications are applied.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::APPLICATION;
use super::site::Site;
use crate::support::eventually::{SOON, eventually};

const ACCOUNT: &str = "deployer";
const ROLE: &str = "rbac.authorization.k8s.io/v1 Role";
const BINDING: &str = "rbac.authorization.k8s.io/v1 RoleBinding";

pub const ALL: [&str; 6] = ["get", "list", "create", "update", "patch", "delete"];
/// A path of the requests that ask for rights.
pub const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Returns the words of the API server about a right that the account lacks.
pub fn forbidden(site: &Site, verb: &str, resource: &str) -> String {
    let namespace = &site.namespace;
    format!("User \"system:serviceaccount:{namespace}:{ACCOUNT}\" cannot {verb} resource \"{resource}\"")
}

/// Allows the account these verbs on a resource of the core group, and no others.
pub async fn allow(site: &Site, resource: &str, verbs: &[&str]) {
    let rules = json!([{ "apiGroups": [""], "resources": [resource], "verbs": verbs }]);
    site.apply(ROLE, resource, json!({ "rules": rules })).await;
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": resource });
    let account = json!({ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": site.namespace });
    site.apply(BINDING, resource, json!({ "roleRef": role, "subjects": [account] }))
        .await;
    for verb in ALL {
        until_reviewed(site, resource, verb, verbs.contains(&verb)).await;
    }
}

pub async fn forbid(site: &Site, resource: &str) {
    site.delete(BINDING, resource).await;
    until_reviewed(site, resource, "get", false).await;
}

/// Waits until the API server knows about a change of roles.
async fn until_reviewed(site: &Site, resource: &str, verb: &str, is_allowed: bool) {
    let reviews: Api<SubjectAccessReview> = Api::all(site.control_plane.client().await);
    let namespace = &site.namespace;
    let review = json!({ "metadata": {}, "spec": {
        "user": format!("system:serviceaccount:{namespace}:{ACCOUNT}"),
        "resourceAttributes": { "namespace": namespace, "verb": verb, "resource": resource },
    }});
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    eventually(SOON, &format!("{verb} on {resource} to be {is_allowed}"), async || {
        let reviewed = reviews.create(&PostParams::default(), &review).await.unwrap();
        let status = reviewed.status.unwrap();
        if status.allowed == is_allowed {
            Ok(())
        } else {
            Err(format!("{status:?}"))
        }
    })
    .await;
}

/// Creates or updates an Application that is applied with the rights of the account.
pub async fn declare(site: &Site, name: &str, spec: Value) {
    let annotations = json!({ "app.oam.dev/service-account-name": ACCOUNT });
    let app = json!({ "metadata": { "annotations": annotations }, "spec": spec });
    site.apply(APPLICATION, name, app).await;
}
