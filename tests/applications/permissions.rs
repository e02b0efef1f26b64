//! Missing permissions: reported, worked around, and noticed when granted.

use serde_json::{Value, json};

use super::{SOON, Site, assert_error, assert_no_panic, assert_ready, components, condition, shop};
use crate::support::eventually::eventually;

const UNKNOWN: &str = "failed to aggregate all components' statuses, check the Error condition for details";

/// A service account that may watch Applications but no components.
struct ServiceAccount<'a> {
    site: &'a Site<'static>,
    token: String,
}

impl<'a> ServiceAccount<'a> {
    async fn new(site: &'a Site<'static>) -> Self {
        let account = Self::without_writes(site).await;
        account.allow_status_writes().await;
        account.allow_events().await;
        account
    }

    /// Allows neither writes of statuses nor events.
    async fn without_writes(site: &'a Site<'static>) -> Self {
        let token = site.control_plane.token_for(&site.namespace, "portolan").await;
        let account = Self { site, token };
        let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
        let all = &["get", "list", "watch", "patch", "update"];
        account
            .allow(
                "base",
                json!([
                    rule("kubeapps.com", &["apprepositories", "apprepositories/status"], all),
                    rule("app.k8s.io", &["applications", "applications/finalizers"], all),
                    rule("", &["secrets"], &["get", "list", "watch"]),
                ]),
            )
            .await;
        account.allow_cluster_identification().await;
        account
    }

    /// Grants permissions in the namespace.
    async fn allow(&self, name: &str, rules: Value) {
        self.site
            .apply("rbac.authorization.k8s.io/v1 Role", name, json!({ "rules": rules }))
            .await;
        let binding = json!({ "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name }, "subjects": [self.subject()] });
        self.site
            .apply("rbac.authorization.k8s.io/v1 RoleBinding", name, binding)
            .await;
    }

    async fn allow_status_writes(&self) {
        let rule = json!({ "apiGroups": ["app.k8s.io"], "resources": ["applications/status"], "verbs": ["patch"] });
        self.allow("statuses", json!([rule])).await;
    }

    async fn allow_events(&self) {
        let rule = json!({ "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"] });
        self.allow("events", json!([rule])).await;
    }

    /// Grants permissions on a resource of the core group.
    async fn allow_of(&self, resource: &str, verbs: &[&str]) {
        let name = format!("{resource}-{}", verbs.join("-"));
        self.allow(
            &name,
            json!([{ "apiGroups": [""], "resources": [resource], "verbs": verbs }]),
        )
        .await;
    }

    /// The database belongs to a cluster, identified by a namespace that every cluster has.
    async fn allow_cluster_identification(&self) {
        let name = format!("origin-{}", self.site.namespace);
        let rules = json!([{ "apiGroups": [""], "resources": ["namespaces"], "resourceNames": ["kube-system"], "verbs": ["get"] }]);
        let role = json!({ "rules": rules });
        self.site
            .apply_to_cluster("rbac.authorization.k8s.io/v1 ClusterRole", &name, role)
            .await;
        let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
        let binding = json!({ "roleRef": reference, "subjects": [self.subject()] });
        self.site
            .apply_to_cluster("rbac.authorization.k8s.io/v1 ClusterRoleBinding", &name, binding)
            .await;
    }

    fn subject(&self) -> Value {
        json!({ "kind": "ServiceAccount", "name": "portolan", "namespace": self.site.namespace })
    }

    async fn portolan(&self) -> crate::support::portolan::Portolan {
        let control_plane = self.site.control_plane;
        let kubeconfig = control_plane.kubeconfig_for(&control_plane.url(), &self.token);
        self.site.portolan_with(&kubeconfig, &["--sync-period=1"]).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_may_only_be_listed_is_polled_until_watching_is_permitted() {
    let site = Site::new().await;
    let account = ServiceAccount::new(&site).await;
    account.allow_of("configmaps", &["list"]).await;
    let portolan = account.portolan().await;
    site.config_map("one", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], false)).await;

    let application = site
        .until_error("shop", "failed to watch configmaps in namespace")
        .await;
    assert_error(&application, ("True", "ErrorSeen"), "polling every 1s instead");
    let application = site.until_components("shop", "1/1").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    let reported = condition(&application, "Error");
    site.config_map("two", &json!({ "app": "shop" })).await;
    let application = site.until_components("shop", "2/2").await;
    assert_eq!(condition(&application, "Error"), reported);
    site.config_map("two", &json!({ "app": "other" })).await;
    site.until_components("shop", "1/1").await;

    account.allow_of("configmaps", &["watch"]).await;
    site.until_error("shop", "").await;
    site.config_map("two", &json!({ "app": "shop" })).await;
    site.until_components("shop", "2/2").await;
    assert_no_panic(&portolan);
}

/// A watch that delivers events is not denied, so it counts as healthy without a probation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_watch_counts_as_healthy() {
    let site = Site::new().await;
    let account = ServiceAccount::new(&site).await;
    account.allow_of("configmaps", &["list"]).await;
    let _portolan = account.portolan().await;
    site.config_map("busy", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], false)).await;
    site.until_error("shop", "failed to watch configmaps in namespace")
        .await;
    account.allow_of("configmaps", &["watch"]).await;
    let mut number = 0;
    crate::support::eventually::eventually(super::SOON, "the watch to be healthy", async || {
        number += 1;
        site.config_map("busy", &json!({ "app": "shop", "number": number.to_string() }))
            .await;
        let application = site.applications().get("shop").await.unwrap();
        match condition(&application, "Error") {
            (status, ..) if status == "False" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_may_not_be_listed_makes_readiness_unknown_until_permitted() {
    let site = Site::new().await;
    let account = ServiceAccount::new(&site).await;
    account.allow_of("services", &["list", "watch"]).await;
    let portolan = account.portolan().await;
    site.config_map("one", &json!({ "app": "shop" })).await;
    let service = json!({ "metadata": { "labels": { "app": "shop" } }, "spec": { "ports": [{ "port": 80 }] } });
    site.apply("v1 Service", "web", service).await;
    site.declare("shop", shop(&[("", "ConfigMap"), ("", "Service")], false))
        .await;
    site.declare("services", shop(&[("", "Service")], false)).await;

    let application = site.until_error("shop", "failed to list configmaps in namespace").await;
    assert_ready(&application, ("Unknown", "ComponentsReadyUnknown", UNKNOWN));
    assert_error(&application, ("True", "ErrorSeen"), "cannot list resource");
    let application = site.until_components("shop", "1/1").await;
    assert_eq!(components(&application), ["Service/web Ready"]);
    let application = site.until_components("services", "1/1").await;
    assert_error(&application, ("False", "NoError"), "");

    account.allow_of("configmaps", &["list", "watch"]).await;
    let application = site.until_components("shop", "2/2").await;
    assert_error(&application, ("False", "NoError"), "");
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_to_write_is_logged_once_with_verb_and_resource() {
    let site = Site::new().await;
    let account = ServiceAccount::without_writes(&site).await;
    account.allow_of("configmaps", &["list", "watch"]).await;
    let portolan = account.portolan().await;
    for name in ["one", "two", "three"] {
        site.declare(name, shop(&[("", "ConfigMap")], false)).await;
    }
    let lines = |verb: &str, resource: &str| {
        let all = portolan.lines().into_iter();
        let found: Vec<_> = all
            .filter(|line| line.contains(verb) && line.contains(resource))
            .collect();
        assert!(found.len() <= 1, "{found:#?}");
        found.len()
    };
    let failed = async |at_least: f64| {
        eventually(SOON, "failed writes", async || {
            let metrics = portolan.metrics().await;
            let failed = metrics.sum("portolan_application_reconciles_total", &[("result", "error")]);
            if failed >= Some(at_least) {
                Ok(())
            } else {
                Err(format!("{failed:?}"))
            }
        })
        .await;
    };
    failed(9.0).await;
    assert_eq!(lines("cannot patch", "applications/status"), 1);
    account.allow_status_writes().await;
    for name in ["one", "two", "three"] {
        site.until_components(name, "0/0").await;
    }
    portolan.line_with("failed to publish event", SOON).await;
    assert_eq!(lines("cannot create", "events"), 1);
    account.allow_events().await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.until_components("one", "1/1").await;
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn denied_owner_changes_are_reported_and_made_when_permitted() {
    let site = Site::new().await;
    let account = ServiceAccount::new(&site).await;
    account.allow_of("configmaps", &["get", "list", "watch"]).await;
    let portolan = account.portolan().await;
    site.config_maps(0..20).await;
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
    let application = site
        .until_error("shop", "failed to set owner reference on ConfigMap/many-")
        .await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    site.until_components("shop", "20/20").await;
    let (_, _, message) = condition(&application, "Error");
    assert!(message.len() < 2000, "{message}");
    assert!(message.contains(r#"cannot patch resource "configmaps""#), "{message}");

    account.allow_of("configmaps", &["patch"]).await;
    site.until_error("shop", "").await;
    for number in [0, 19] {
        site.until_owned("v1 ConfigMap", &format!("many-{number:05}"), &["shop"])
            .await;
    }
    assert_no_panic(&portolan);
}
