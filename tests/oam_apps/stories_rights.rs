//! Applications with the rights of a ServiceAccount: they get what it may, and the right that it lacks is named.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::accounts::{ALL, REVIEWS, allow, declare, forbid, forbidden};
use super::apps::{config, objects, spec};
use super::site::{Site, condition};
use super::{APPLICATION, CONFIG_MAP, TRACKER};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy, THROTTLED_FOR};

const SECRET: &str = "v1 Secret";
/// Steps that fail are tried again until the cause is gone.
const PATIENT: &str = "--max-workflow-step-error-retry-times=100000";
/// With this period, only an event can be the cause of a pass.
const SELDOM: &str = "--application-re-sync-period=1h";

fn has(value: &'static str) -> impl Fn(&Value) -> bool {
    move |object| object["data"]["key"] == value
}

fn secret(name: &str) -> Value {
    let object = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name } });
    objects(name, &[object])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_applies_what_its_service_account_may_and_nothing_else() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    allow(&site, "configmaps", &ALL).await;
    declare(&site, "allowed", spec(&[config("settings", "one")])).await;
    site.until_running("allowed").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await.unwrap()["data"]["key"], "one");

    declare(&site, "refused", spec(&[secret("token")])).await;
    let words = format!(
        "cannot get object: secrets \"token\" is forbidden: {}",
        forbidden(&site, "get", "secrets")
    );
    site.until_said("refused", &words).await;
    // Who may read may not create.
    allow(&site, "secrets", &["get"]).await;
    let words = forbidden(&site, "create", "secrets");
    site.until_said("refused", &words).await;
    assert_eq!(site.get(SECRET, "token").await, None);
    assert_eq!(
        site.trackers("refused").await,
        Vec::<Value>::new(),
        "nothing was recorded"
    );

    allow(&site, "secrets", &ALL).await;
    site.until_running("refused").await;
    assert!(site.get(SECRET, "token").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_namespace_is_closed_to_a_service_account() {
    let site = Site::new().await;
    let other = site.control_plane.namespace().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    allow(&site, "configmaps", &ALL).await;
    let object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings", "namespace": other } });
    declare(&site, "shop", spec(&[objects("settings", &[object])])).await;
    let words = forbidden(&site, "get", "configmaps");
    site.until_said(
        "shop",
        &format!("{words} in API group \"\" in the namespace \"{other}\""),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_reads_a_secret_only_with_the_right_to() {
    // Base64 of `confidential`.
    const DATA: &str = "Y29uZmlkZW50aWFs";
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.apply(SECRET, "token", json!({ "stringData": { "key": "confidential" } }))
        .await;
    let mut workflow = spec(&[]);
    workflow["workflow"]["steps"] = json!([{
        "name": "read",
        "type": "read-object",
        "properties": { "apiVersion": "v1", "kind": "Secret", "name": "token", "namespace": site.namespace },
        "outputs": [
            { "name": "key", "valueFrom": "output.$returns.value.data.key" },
            { "name": "cause", "valueFrom": "output.$returns.err" },
        ],
    }]);
    declare(&site, "shop", workflow).await;
    let app = site.until_running("shop").await;
    let values = site.get(CONFIG_MAP, "workflow-shop-context").await.unwrap();
    let text = values["data"]["vars"].as_str().unwrap().replace('\\', "");
    assert!(text.contains(&forbidden(&site, "get", "secrets")), "{text}");
    assert!(!text.contains(DATA) && !app.to_string().contains(DATA), "{app:#}");

    allow(&site, "secrets", &["get"]).await;
    let restart = json!({ "metadata": { "annotations": { "app.oam.dev/restart-workflow": "true" } } });
    site.edit(APPLICATION, "shop", restart).await;
    site.until(CONFIG_MAP, "workflow-shop-context", "the value", |values| {
        values["data"]["vars"].as_str().is_some_and(|text| text.contains(DATA))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_gets_no_secret_that_the_service_account_may_not_read() {
    const TEMPLATE: &str = r#"
        import "vela/http"
        send: http.#HTTPDo & {$params: {
            method: "GET"
            url:    "http://example.com"
            request: headersFromSecret: [{header: "Authorization", secret: "token", key: "key"}]
        }}
        parameter: {}
    "#;
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    site.apply(SECRET, "token", json!({ "stringData": { "key": "confidential" } }))
        .await;
    let definition = json!({ "spec": { "schematic": { "cue": { "template": TEMPLATE } } } });
    site.apply("core.oam.dev/v1beta1 WorkflowStepDefinition", "send", definition)
        .await;
    let mut workflow = spec(&[]);
    workflow["workflow"]["steps"] = json!([{ "name": "send", "type": "send" }]);
    declare(&site, "shop", workflow).await;
    site.until_said("shop", &forbidden(&site, "get", "secrets")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_is_undone_and_objects_are_collected_with_the_rights_of_the_service_account() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[SELDOM]).await;
    allow(&site, "configmaps", &["get", "create", "patch"]).await;
    let both = [config("kept", "one"), config("dropped", "one")];
    declare(&site, "shop", spec(&both)).await;
    site.until_running("shop").await;
    site.edit(CONFIG_MAP, "kept", json!({ "data": { "key": "drift" } }))
        .await;
    site.until(CONFIG_MAP, "kept", "restored", has("one")).await;
    site.delete(CONFIG_MAP, "kept").await;
    site.until(CONFIG_MAP, "kept", "created again", has("one")).await;

    // Without the right to delete, what is no longer declared stays, and the condition says why.
    declare(&site, "shop", spec(&both[..1])).await;
    site.until_said("shop", &forbidden(&site, "delete", "configmaps")).await;
    assert!(site.get(CONFIG_MAP, "dropped").await.is_some());
    allow(&site, "configmaps", &["get", "create", "delete"]).await;
    site.until_gone(CONFIG_MAP, "dropped").await;
    site.until_running("shop").await;

    site.edit(CONFIG_MAP, "kept", json!({ "data": { "key": "drift" } }))
        .await;
    let words = forbidden(&site, "patch", "configmaps");
    site.until(APPLICATION, "shop", "the missing right to patch", |app| {
        condition(app, "StateKeep")["message"]
            .as_str()
            .is_some_and(|message| message.contains(&words))
    })
    .await;
    assert_eq!(site.get(CONFIG_MAP, "kept").await.unwrap()["data"]["key"], "drift");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_names_the_missing_right_and_ends_when_it_is_granted() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    allow(&site, "configmaps", &["get", "create"]).await;
    declare(&site, "shop", spec(&[config("settings", "one")])).await;
    site.until_running("shop").await;
    site.delete(APPLICATION, "shop").await;
    let words = forbidden(&site, "delete", "configmaps");
    let app = site.until_said("shop", &words).await;
    for type_ in ["Synced", "Ready"] {
        let message = condition(&app, type_)["message"].as_str().unwrap();
        assert!(message.contains(&words), "{type_}: {message}");
    }
    assert!(site.get(CONFIG_MAP, "settings").await.is_some());
    allow(&site, "configmaps", &["get", "delete"]).await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_ends_when_the_objects_are_gone_together_with_all_rights() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    allow(&site, "configmaps", &ALL).await;
    declare(&site, "shop", spec(&[config("settings", "one")])).await;
    site.until_running("shop").await;
    // As in a namespace that is being deleted, while the controller does not run.
    drop(portolan);
    forbid(&site, "configmaps").await;
    site.delete(APPLICATION, "shop").await;
    site.delete(CONFIG_MAP, "settings").await;
    let _portolan = site.portolan(&[]).await;
    site.until_gone(APPLICATION, "shop").await;
    assert_eq!(site.trackers("shop").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_that_cannot_be_impersonated_is_named_and_nothing_is_applied() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let annotations = json!({ "app.oam.dev/service-account-name": "../admin" });
    let app = json!({ "metadata": { "annotations": annotations }, "spec": spec(&[config("settings", "one")]) });
    site.apply(APPLICATION, "shop", app).await;
    let words = "annotation app.oam.dev/service-account-name is not the name of a ServiceAccount";
    let app = site.until_said("shop", words).await;
    assert_eq!(condition(&app, "Parsed")["status"], "False");
    assert_eq!(site.get(CONFIG_MAP, "settings").await, None);

    allow(&site, "configmaps", &ALL).await;
    declare(&site, "shop", spec(&[config("settings", "one")])).await;
    site.until_running("shop").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_groups_have_rights_and_the_gate_gives_others_those_of_the_default_user() {
    let site = Site::new().await;
    let _portolan = site
        .portolan(&[
            PATIENT,
            "--feature-gates=AuthenticateApplication=true",
            "--trust-identity-annotations",
        ])
        .await;
    site.declare("others", spec(&[config("of-others", "one")])).await;
    site.until_said(
        "others",
        "User \"kubevela:vela-core\" cannot get resource \"configmaps\"",
    )
    .await;

    let group = format!("group-{}", site.namespace);
    let rules = json!([{ "apiGroups": [""], "resources": ["configmaps"], "verbs": ALL }]);
    site.apply("rbac.authorization.k8s.io/v1 Role", "group", json!({ "rules": rules }))
        .await;
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "group" });
    let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group });
    site.apply(
        "rbac.authorization.k8s.io/v1 RoleBinding",
        "group",
        json!({ "roleRef": role, "subjects": [subject] }),
    )
    .await;
    let annotations = json!({ "app.oam.dev/username": "alice", "app.oam.dev/group": format!("other,{group}") });
    let app = json!({ "metadata": { "annotations": annotations }, "spec": spec(&[config("settings", "one")]) });
    site.apply(APPLICATION, "shop", app).await;
    site.until_running("shop").await;
    assert_eq!(site.get(CONFIG_MAP, "of-others").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_whom_the_api_server_throttles_delays_no_other() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &[PATIENT]);
    portolan.ready(SOON).await;
    allow(&site, "configmaps", &ALL).await;
    let is_impersonated = |request: &ApiRequest| !request.user.is_empty();
    proxy.inject(usize::MAX, ApiFault::Throttled, is_impersonated);
    declare(&site, "throttled", spec(&[config("of-throttled", "one")])).await;
    let mut answers = 0;
    eventually(2 * SOON, "an Application to run while the user is paused", async || {
        let answered = eventually(SOON, "a request of the user", async || {
            let answered = proxy
                .requests()
                .iter()
                .filter(|request| is_impersonated(request))
                .count();
            (answered > answers).then_some(answered)
        });
        answers = answered.await;
        let paused = Instant::now();
        let name = format!("honest-{answers}");
        site.declare(&name, spec(&[config(&name, "one")])).await;
        site.until_running(&name).await;
        // On a busy machine, a pass may take as long as the pause.
        let took = paused.elapsed();
        (took < THROTTLED_FOR - Duration::from_secs(1))
            .then_some(())
            .ok_or(format!("{took:?}"))
    })
    .await;
    assert_eq!(site.get(CONFIG_MAP, "of-throttled").await, None);
    proxy.clear_faults();
    site.until_running("throttled").await;
}

/// Returns the requests for objects, trackers, revisions and Applications.
fn requests(proxy: &FaultProxy) -> Vec<ApiRequest> {
    let is_counted = |request: &ApiRequest| {
        let path = request.path.as_str();
        !request.is_watch() && (path.contains("/namespaces/") || path.contains("core.oam.dev")) && path != REVIEWS
    };
    proxy.requests().into_iter().filter(is_counted).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_rest_nothing_is_requested_and_lost_rights_are_noticed() {
    const WINDOW: Duration = Duration::from_secs(10);
    const QUIET: Duration = Duration::from_secs(2);
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.start(&kubeconfig, &["--application-re-sync-period=5s"]);
    portolan.ready(SOON).await;
    allow(&site, "configmaps", &ALL).await;
    declare(&site, "shop", spec(&[config("settings", "one")])).await;
    site.until_running("shop").await;
    eventually(2 * SOON, "no more requests", async || {
        let before = requests(&proxy).len();
        tokio::time::sleep(QUIET).await;
        let after = requests(&proxy);
        if after.len() == before {
            Ok(())
        } else {
            Err(format!("{:?}", after.last()))
        }
    })
    .await;
    let before = requests(&proxy).len();
    // The test asserts that nothing happens, so there is no condition to wait for.
    tokio::time::sleep(WINDOW).await;
    let after = requests(&proxy);
    assert!(after.len() == before, "{:#?}", &after[before..]);
    let reviews = proxy.requests().into_iter().filter(|request| request.path == REVIEWS);
    assert!((1..=2).contains(&reviews.count()), "one each minute");

    // Another process asks again, and does not use its cache.
    forbid(&site, "configmaps").await;
    drop(portolan);
    let portolan = site.start(&kubeconfig, &[]);
    portolan.ready(SOON).await;
    site.until_said("shop", &forbidden(&site, "get", "configmaps")).await;
    assert_eq!(site.managed(TRACKER).await.len(), 1);
}
