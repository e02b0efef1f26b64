//! Applications of a real API server, read with the token of the person.

use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use portolan::api::{self, oam};
use serde_json::{Value, json};

use super::accessibility::inspect;
use super::driver::Browser;
use super::sign_in::sign_in;
use crate::catalog::On;
use crate::serve::access::{Site, reader};
use crate::support::control_plane::control_plane;
use crate::support::eventually::{SOON, eventually};

const MARKUP: &str = "waits for <img src=x onerror=alert(1)> of \u{202e}another";

async fn create(namespace: &str, resource: &ApiResource, name: &str, spec: Value, status: Value) {
    let client = control_plane().await.client().await;
    let api: Api<DynamicObject> = Api::namespaced_with(client, namespace, resource);
    let object = json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": { "name": name, "namespace": namespace }, "spec": spec,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let status = Patch::Merge(json!({ "status": status }));
    api.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

/// Creates an Application of each kind, of which one part is not healthy.
async fn create_applications(namespace: &str) {
    let vela = json!({
        "status": "runningWorkflow",
        "conditions": [{ "type": "Ready", "status": "False", "reason": "Waiting", "message": MARKUP }],
        "services": [
            { "name": "frontend", "healthy": true, "message": "Ready: 2/2" },
            {
                "name": "backend", "healthy": false, "message": MARKUP,
                "traits": [{ "type": "gateway", "healthy": false, "message": "no address yet" }],
            },
        ],
        "workflow": {
            "mode": "DAG-DAG", "status": "executing", "suspend": false, "terminated": false, "finished": false,
            "steps": [
                { "id": "a", "name": "deploy-frontend", "type": "apply-component", "phase": "succeeded" },
                { "id": "b", "name": "deploy-backend", "type": "apply-component", "phase": "running", "message": MARKUP },
            ],
        },
    });
    let components = json!({ "components": [
        { "name": "frontend", "type": "webservice" }, { "name": "backend", "type": "webservice" },
    ]});
    let resource = ApiResource::erase::<oam::Application>(&());
    create(namespace, &resource, "web", components, vela).await;

    let status = json!({
        "componentsReady": "1/2",
        "conditions": [{ "type": "Ready", "status": "False", "reason": "ComponentsNotReady", "message": MARKUP }],
        "components": [
            { "group": "apps", "kind": "Deployment", "name": "shop-frontend", "status": "Ready" },
            { "group": "apps", "kind": "StatefulSet", "name": "shop-database", "status": "InProgress" },
        ],
    });
    let spec = json!({ "selector": { "matchLabels": { "app": "shop" } } });
    let resource = ApiResource::erase::<api::Application>(&());
    create(namespace, &resource, "shop", spec, status).await;
}

/// Allows the reader to see Applications of its namespace.
async fn allow_applications(namespace: &str) {
    let resources = "--resource=applications.app.k8s.io,applications.core.oam.dev";
    let account = format!("--serviceaccount={namespace}:reader");
    for arguments in [
        ["create", "role", "applications", "--verb=get,list", resources],
        ["create", "rolebinding", "applications", "--role=applications", &account],
    ] {
        let arguments = [&arguments[..], &["-n", namespace]].concat();
        control_plane().await.kubectl(&arguments).await;
    }
}

async fn assert_shown(browser: &Browser, parts: &[&str]) {
    let shown = browser.text("main").await;
    for part in parts {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    assert!(!shown.contains('\u{202e}'), "{shown}");
    assert_eq!(
        browser
            .js::<usize>("return document.querySelectorAll('main img, main script').length")
            .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_sees_the_applications_that_the_api_server_shows_them() {
    let site = Site::new(On::Sqlite).await;
    for crd in oam::crds() {
        control_plane().await.install_crd(&crd).await;
    }
    let (serving, namespace) = (site.serve(&[]).await, site.ours.as_str());
    let token = reader(namespace).await;
    create_applications(namespace).await;
    allow_applications(namespace).await;
    let browser = Browser::new(&serving.url).await;
    let list = format!("/applications?namespace={namespace}");
    browser.open("/login").await;
    sign_in(&browser, &token).await;
    // The API server knows the role after a moment.
    eventually(SOON, "the Applications", async || {
        browser.open(&list).await;
        let shown = browser.text("main").await;
        if shown.contains("web") && shown.contains("shop") {
            Ok(())
        } else {
            Err(shown)
        }
    })
    .await;

    for (name, path, parts) in [
        ("applications-list", list.clone(), vec!["web", "shop"]),
        (
            "application-vela",
            format!("/applications/{namespace}/vela/web"),
            vec![
                "frontend",
                "backend",
                "gateway",
                "no address yet",
                "deploy-backend",
                "waits for <img src=x",
            ],
        ),
        (
            "application-app",
            format!("/applications/{namespace}/app/shop"),
            vec!["shop-frontend", "shop-database", "waits for <img src=x"],
        ),
    ] {
        inspect(&browser, name, &path).await;
        assert_shown(&browser, &parts).await;
    }
    browser.resize(1280).await;
    browser.open(&list).await;
    browser
        .load(async || browser.click("main a[href$='/vela/web']").await)
        .await;
    assert_eq!(browser.path().await, format!("/applications/{namespace}/vela/web"));

    // Says the API server.
    let foreign = format!("/applications?namespace={}", site.theirs);
    inspect(&browser, "applications-forbidden", &foreign).await;
    assert_shown(&browser, &["cannot list", &site.theirs]).await;
}
