//! Objects in other clusters are written with the rights of the Application's user where the credential may impersonate.

use axum::http::Method;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::fleet::{Fleet, PATIENT, TOKEN, assert_kept, cluster_scoped, credential, has, placed};
use crate::oam_apps::accounts::{ALL, allow, declare, forbidden};
use crate::oam_apps::apps::config;
use crate::oam_apps::{APPLICATION, CONFIG_MAP};
use crate::support::fault_proxy::FaultProxy;

const CLUSTER_ROLE: &str = "rbac.authorization.k8s.io/v1 ClusterRole";
const CLUSTER_BINDING: &str = "rbac.authorization.k8s.io/v1 ClusterRoleBinding";
/// The ServiceAccount of a credential.
const GATEWAY: &str = "gateway";

/// Returns the users that wrote ConfigMaps, each once.
fn writers(proxy: &FaultProxy) -> Vec<String> {
    let requests = proxy.requests().into_iter();
    let writes = requests.filter(|request| request.method != Method::GET && request.path.contains("/configmaps"));
    let mut users: Vec<_> = writes.map(|request| request.user).collect();
    users.sort();
    users.dedup();
    users
}

impl Fleet {
    /// Returns the credential of a ServiceAccount in `east` that has these rights in all namespaces there.
    async fn limited(&self, endpoint: &str, rules: Value) -> Value {
        let namespace = &self.east.namespace;
        let token = self.east.control_plane.token_for(namespace, GATEWAY).await;
        let subject = json!({ "kind": "ServiceAccount", "name": GATEWAY, "namespace": namespace });
        let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": namespace });
        self.put(CLUSTER_ROLE, json!({ "rules": rules })).await;
        self.put(CLUSTER_BINDING, json!({ "roleRef": role, "subjects": [subject] }))
            .await;
        let mut data = credential(&self.east, endpoint);
        data["token"] = token.into();
        data
    }

    /// Applies an object of `east` that is not in a namespace, under the name of that of the test.
    async fn put(&self, kind: &str, mut object: Value) {
        let (version, word) = kind.split_once(' ').unwrap();
        let name = &self.east.namespace;
        object["apiVersion"] = version.into();
        object["kind"] = word.into();
        object["metadata"]["name"] = name.as_str().into();
        let apply = PatchParams::apply("tests").force();
        let api = cluster_scoped(&self.east, kind).await;
        api.patch(name, &apply, &Patch::Apply(object)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_account_gets_in_another_cluster_what_it_may_there() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let proxy = fleet.join_proxy("east", east).await;
    let _portolan = fleet.portolan(&[PATIENT]).await;
    // Rights in the controller's own cluster do not count there.
    allow(site, "configmaps", &ALL).await;
    declare(site, "shop", placed(&[config("settings", "one")], &["east"])).await;
    site.until_said("shop", &forbidden(east, "get", "configmaps")).await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);

    allow(east, "configmaps", &ALL).await;
    site.until_running("shop").await;
    assert_kept(east, "settings", "one").await;
    let user = format!("system:serviceaccount:{}:deployer", site.namespace);
    assert_eq!(writers(&proxy), [user]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_may_not_impersonate_writes_with_its_own_rights() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let proxy = FaultProxy::in_front_of_tls(east.control_plane).await;
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] }]);
    let data = fleet.limited(&proxy.url(), rules).await;
    fleet.join_with("east", TOKEN, json!({}), data).await;
    let _portolan = fleet.portolan(&[PATIENT]).await;
    declare(site, "shop", placed(&[config("settings", "one")], &["east"])).await;
    site.until_running("shop").await;
    assert_kept(east, "settings", "one").await;
    site.delete(APPLICATION, "shop").await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
    assert_eq!(writers(&proxy), [""]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_the_credential_lacks_is_named_until_it_is_granted() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let rules = |verbs: &[&str]| json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": verbs }]);
    let read = rules(&["get", "list", "watch"]);
    let data = fleet.limited(&east.control_plane.url(), read).await;
    fleet.join_with("east", TOKEN, json!({}), data).await;
    let _portolan = fleet.portolan(&[PATIENT]).await;
    site.declare("shop", placed(&[config("settings", "one")], &["east"]))
        .await;
    let user = format!("system:serviceaccount:{}:{GATEWAY}", site.namespace);
    site.until_said(
        "shop",
        &format!("User \"{user}\" cannot create resource \"configmaps\""),
    )
    .await;

    fleet.put(CLUSTER_ROLE, json!({ "rules": rules(&["*"]) })).await;
    site.until_running("shop").await;
    assert!(has("one")(&east.get(CONFIG_MAP, "settings").await.unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_may_impersonate_users_only_does_not_act_for_service_accounts() {
    let fleet = Fleet::without_clusters().await;
    let (site, east) = (&fleet.site, &fleet.east);
    let rules = json!([
        { "apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"] },
        { "apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"] },
    ]);
    let data = fleet.limited(&east.control_plane.url(), rules).await;
    fleet.join_with("east", TOKEN, json!({}), data).await;
    let _portolan = fleet.portolan(&[PATIENT]).await;
    declare(site, "shop", placed(&[config("settings", "one")], &["east"])).await;
    let words = "the credential of cluster east may impersonate other identities, but no serviceaccounts";
    site.until_said("shop", words).await;
    assert_eq!(east.get(CONFIG_MAP, "settings").await, None);
    // Without an identity, the credential's rights count.
    site.declare("other", placed(&[config("other", "one")], &["east"]))
        .await;
    site.until_running("other").await;
    assert!(has("one")(&east.get(CONFIG_MAP, "other").await.unwrap()));
}
