//! What a service account may not do: told, worked around, and done as soon as it may.

use serde_json::{Value, json};

use super::{Site, assert_error, assert_no_panic, assert_ready, components, condition, shop};

const UNKNOWN: &str = "failed to aggregate all components' statuses, check the Error condition for details";

/// A service account that may follow Applications, and of components nothing yet.
struct ChartStats<'a> {
    site: &'a Site<'static>,
    token: String,
}

impl<'a> ChartStats<'a> {
    async fn new(site: &'a Site<'static>) -> Self {
        let token = site.control_plane.token_for(&site.namespace, "portolan").await;
        let account = Self { site, token };
        let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
        let all = &["get", "list", "watch", "patch", "update"];
        account
            .allow(
                "base",
                json!([
                    rule("kubeapps.com", &["apprepositories", "apprepositories/status"], all),
                    rule(
                        "app.k8s.io",
                        &["applications", "applications/status", "applications/finalizers"],
                        all
                    ),
                    rule("events.k8s.io", &["events"], &["create", "patch"]),
                    rule("", &["secrets"], &["get", "list", "watch"]),
                ]),
            )
            .await;
        account.allow_to_know_the_cluster().await;
        account
    }

    /// Gives rights in the namespace under a name.
    async fn allow(&self, name: &str, rules: Value) {
        self.site
            .apply("rbac.authorization.k8s.io/v1 Role", name, json!({ "rules": rules }))
            .await;
        let binding = json!({ "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name }, "subjects": [self.subject()] });
        self.site
            .apply("rbac.authorization.k8s.io/v1 RoleBinding", name, binding)
            .await;
    }

    /// Gives rights to a resource of the core.
    async fn allow_of(&self, resource: &str, verbs: &[&str]) {
        let name = format!("{resource}-{}", verbs.join("-"));
        self.allow(
            &name,
            json!([{ "apiGroups": [""], "resources": [resource], "verbs": verbs }]),
        )
        .await;
    }

    /// The database belongs to a cluster, which is known by a namespace that every cluster has.
    async fn allow_to_know_the_cluster(&self) {
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
async fn a_kind_that_may_be_listed_only_is_counted_every_period_and_watched_as_soon_as_it_may_be() {
    let site = Site::new().await;
    let account = ChartStats::new(&site).await;
    account.allow_of("configmaps", &["list"]).await;
    let portolan = account.portolan().await;
    site.config_map("one", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], false)).await;

    let application = site.until_error("shop", "can't watch configmaps in namespace").await;
    assert_error(&application, ("True", "ErrorSeen"), "they are listed every 1 s instead");
    let application = site.until_components("shop", "1/1").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    let told = condition(&application, "Error");
    site.config_map("two", &json!({ "app": "shop" })).await;
    let application = site.until_components("shop", "2/2").await;
    assert_eq!(condition(&application, "Error"), told);
    site.config_map("two", &json!({ "app": "other" })).await;
    site.until_components("shop", "1/1").await;

    account.allow_of("configmaps", &["watch"]).await;
    site.until_error("shop", "").await;
    site.config_map("two", &json!({ "app": "shop" })).await;
    site.until_components("shop", "2/2").await;
    assert_no_panic(&portolan);
}

/// A watch that tells something is no watch that may not be: it need not be silent for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_changes_all_the_time_is_known_to_be_watched_too() {
    let site = Site::new().await;
    let account = ChartStats::new(&site).await;
    account.allow_of("configmaps", &["list"]).await;
    let _portolan = account.portolan().await;
    site.config_map("busy", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], false)).await;
    site.until_error("shop", "can't watch configmaps in namespace").await;
    account.allow_of("configmaps", &["watch"]).await;
    let mut number = 0;
    crate::support::eventually::eventually(super::SOON, "the watch to be known for one", async || {
        number += 1;
        site.config_map("busy", &json!({ "app": "shop", "number": number.to_string() }))
            .await;
        let application = site.applications().get("shop").await.unwrap();
        match condition(&application, "Error") {
            (status, ..) if status == "False" => Ok(()),
            told => Err(format!("{told:?}")),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_may_not_even_be_listed_makes_readiness_unknown_until_it_may() {
    let site = Site::new().await;
    let account = ChartStats::new(&site).await;
    account.allow_of("services", &["list", "watch"]).await;
    let portolan = account.portolan().await;
    site.config_map("one", &json!({ "app": "shop" })).await;
    let service = json!({ "metadata": { "labels": { "app": "shop" } }, "spec": { "ports": [{ "port": 80 }] } });
    site.apply("v1 Service", "web", service).await;
    site.declare("shop", shop(&[("", "ConfigMap"), ("", "Service")], false))
        .await;
    site.declare("services", shop(&[("", "Service")], false)).await;

    let application = site.until_error("shop", "can't list configmaps in namespace").await;
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
async fn components_that_may_not_be_changed_are_counted_and_owned_as_soon_as_they_may() {
    let site = Site::new().await;
    let account = ChartStats::new(&site).await;
    account.allow_of("configmaps", &["get", "list", "watch"]).await;
    let portolan = account.portolan().await;
    site.config_maps(0..20).await;
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
    let application = site.until_error("shop", "can't adopt ConfigMap/many-").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    site.until_components("shop", "20/20").await;
    let (_, _, message) = condition(&application, "Error");
    assert!(message.len() < 2000, "{message}");

    account.allow_of("configmaps", &["patch"]).await;
    site.until_error("shop", "").await;
    for number in [0, 19] {
        site.until_owned("v1 ConfigMap", &format!("many-{number:05}"), &["shop"])
            .await;
    }
    assert_no_panic(&portolan);
}
