//! Applications on pages: a real API server decides which of them a caller may read.

use futures::{StreamExt, stream};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::access::{Site, reader};
use super::{Answer, SOON, Serving, fill};
use crate::catalog::On;
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;
use crate::support::world::World;

const VELA: &str = "core.oam.dev";
const APP: &str = "app.k8s.io";

async fn install_crds() {
    let control_plane = control_plane().await;
    let kinds = ["Application", "ApplicationRevision"];
    for crd in portolan::api::oam::crds() {
        if kinds.contains(&crd.spec.names.kind.as_str()) {
            control_plane.install_crd(&crd).await;
        }
    }
}

async fn objects(group: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(group, "v1beta1", kind);
    let client = control_plane().await.client().await;
    Api::namespaced_with(client, namespace, &ApiResource::from_gvk(&kind))
}

async fn create(api: &Api<DynamicObject>, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Creates an Application with this status.
async fn declare(group: &str, namespace: &str, name: &str, spec: Value, status: Value) {
    let api = objects(group, "Application", namespace).await;
    let object = json!({
        "apiVersion": format!("{group}/v1beta1"), "kind": "Application", "metadata": { "name": name }, "spec": spec,
    });
    create(&api, object).await;
    let status = Patch::Merge(json!({ "status": status }));
    api.patch_status(name, &PatchParams::default(), &status).await.unwrap();
}

/// Declares an Application of KubeVela whose workflow runs and whose texts are markup.
async fn declare_shop(namespace: &str) {
    let spec = json!({ "components": [
        { "name": "db", "type": "statefulset" },
        { "name": "web", "type": "webservice", "dependsOn": ["db"] },
        { "name": "one", "type": "webservice", "dependsOn": ["two"] },
        { "name": "two", "type": "webservice", "dependsOn": ["one"] },
    ]});
    let step =
        |name: &str, phase: &str, steps: Value| json!({ "id": name, "name": name, "phase": phase, "subSteps": steps });
    let status = json!({
        "status": "runningWorkflow",
        "services": [{
            "name": "db", "namespace": namespace, "healthy": false,
            "message": "<script>alert(1)</script>\u{202e}", "traits": [{ "type": "storage", "healthy": true }],
        }],
        "workflow": {
            "status": "executing", "mode": "DAG-DAG", "finished": false, "suspend": false, "terminated": false,
            "steps": [step("deploy-all", "running", json!([{ "id": "deploy-db", "name": "deploy-db", "phase": "failed" }]))],
        },
        "conditions": [{ "type": "Workflow", "status": "False", "reason": "Running", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        "latestRevision": { "name": "shop-v1", "revision": 1 },
        "appliedResources": [{ "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "namespace": namespace, "name": "child" }],
    });
    declare(VELA, namespace, "shop", spec, status).await;
    let revisions = objects(VELA, "ApplicationRevision", namespace).await;
    let application = json!({ "metadata": { "name": "shop" }, "spec": { "components": [] } });
    create(
        &revisions,
        json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "ApplicationRevision",
            "metadata": { "name": "shop-v1", "labels": { "app.oam.dev/name": "shop" } },
            "spec": { "application": application },
        }),
    )
    .await;
}

async fn declare_suite(namespace: &str) {
    let spec = json!({ "descriptor": { "type": "office", "version": "1.2.3" } });
    let status = json!({
        "componentsReady": "1/1", "conditions": [{ "type": "Ready", "status": "True" }],
        "components": [{ "kind": "Deployment", "group": "apps", "name": "editor", "status": "Ready" }],
    });
    declare(APP, namespace, "suite", spec, status).await;
}

/// Allows the ServiceAccount of [`reader`] to read Applications and their revisions, but no events.
async fn allow(namespace: &str) {
    let control_plane = control_plane().await;
    let resources = "--resource=applications.core.oam.dev,applications.app.k8s.io,applicationrevisions.core.oam.dev";
    let role = [
        "create",
        "role",
        "applications",
        "--verb=get,list",
        resources,
        "-n",
        namespace,
    ];
    control_plane.kubectl(&role).await;
    let account = format!("--serviceaccount={namespace}:reader");
    let binding = [
        "create",
        "rolebinding",
        "applications",
        "--role=applications",
        &account,
        "-n",
        namespace,
    ];
    control_plane.kubectl(&binding).await;
}

async fn page(serving: &Serving, token: &str, path: &str) -> Answer {
    let token = format!("Bearer {token}");
    let headers = [("authorization", token.as_str()), ("accept", "text/html")];
    serving.request(path, &headers).await
}

/// Waits until the API server knows the role.
async fn until_listed(serving: &Serving, token: &str, path: &str) -> Answer {
    eventually(SOON, "a list of Applications", async || {
        let answer = page(serving, token, path).await;
        if answer.status == 200 {
            Ok(answer)
        } else {
            Err(answer.text())
        }
    })
    .await
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_reads_the_applications_that_the_api_server_allows() {
    let site = Site::new(On::Sqlite).await;
    let (ours, theirs) = (site.ours.as_str(), site.theirs.as_str());
    install_crds().await;
    declare_shop(ours).await;
    declare_suite(ours).await;
    declare(
        VELA,
        theirs,
        "hidden",
        json!({ "components": [] }),
        json!({ "status": "running" }),
    )
    .await;
    // The process has the rights of an administrator, which must not count.
    let serving = site.serve(&[]).await;
    let token = reader(ours).await;
    allow(ours).await;

    let list = until_listed(&serving, &token, &format!("/applications?namespace={ours}")).await;
    assert_eq!(list.header("refresh"), "30");
    let text = list.text();
    assert_has(
        &text,
        &[
            &format!("href=\"/applications/{ours}/vela/shop\""),
            &format!("href=\"/applications/{ours}/app/suite\""),
            "Workflow running",
            "aria-current=\"page\">Applications</a>",
        ],
    );
    assert!(
        !text.contains("hidden</a>") && !text.contains("<script>alert"),
        "{text}"
    );

    // In the words of the API server.
    let all = page(&serving, &token, "/applications").await;
    assert_eq!((all.status, all.header("refresh")), (200, ""));
    assert_has(
        &all.text(),
        &["You may not list", "cannot list resource", "name=\"namespace\""],
    );
    let refused = page(&serving, &token, &format!("/applications?namespace={theirs}")).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_has(&refused.text(), &["cannot list resource", theirs]);
    let refused = page(&serving, &token, &format!("/applications/{theirs}/vela/hidden")).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_has(&refused.text(), &["cannot get resource", theirs]);

    let all = page(&serving, ADMIN_TOKEN, &format!("/applications?namespace={theirs}")).await;
    assert_eq!((all.status, all.header("refresh")), (200, ""), "{all:?}");
    assert_has(&all.text(), &["hidden</a>", "Running"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_is_shown_with_its_components_workflow_and_revisions() {
    let site = Site::new(On::Sqlite).await;
    let ours = site.ours.as_str();
    install_crds().await;
    declare_shop(ours).await;
    declare_suite(ours).await;
    let serving = site.serve(&["--external-url=https://charts.example/catalog"]).await;
    let token = reader(ours).await;
    allow(ours).await;

    let path = format!("/catalog/applications/{ours}/vela/shop");
    let shown = until_listed(&serving, &token, &path).await;
    assert_eq!(shown.header("refresh"), "30");
    let text = shown.text();
    assert_has(
        &text,
        &[
            // The component that waits stands below the other one.
            "<strong>db</strong>",
            "<strong>web</strong>",
            "Waits for db.",
            "Waits for two.",
            "storage",
            "deploy-db",
            "shop-v1",
            "&#60;script&#62;alert(1)&#60;/script&#62;",
            &format!("href=\"/catalog/applications/{ours}/vela/child\""),
            // Events are of the core group.
            "The events can't be read",
            "cannot list resource",
        ],
    );
    assert!(!text.contains("<script>alert") && !text.contains('\u{202e}'), "{text}");
    assert_eq!(text.matches("<ul").count(), text.matches("</ul>").count());
    assert_eq!(text.matches("<li>").count(), text.matches("</li>").count());
    let stopped = page(&serving, &token, &format!("{path}?reload=off")).await;
    assert_eq!((stopped.status, stopped.header("refresh")), (200, ""));

    let suite = page(&serving, &token, &format!("/catalog/applications/{ours}/app/suite")).await;
    assert_eq!((suite.status, suite.header("refresh")), (200, ""), "{suite:?}");
    assert_has(&suite.text(), &["editor", "Deployment", "1/1", "office", "1.2.3"]);
    for path in [
        "vela/suite",
        "app/nothing",
        "other/shop",
        "vela/..%2F..",
        "vela/%3Cb%3E",
    ] {
        let answer = page(&serving, &token, &format!("/catalog/applications/{ours}/{path}")).await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
        assert!(!answer.text().contains("<b>"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_applications_are_shown_in_pages() {
    const COUNT: usize = 5_000;
    const PAGE: usize = 250;
    let site = Site::new(On::Sqlite).await;
    let ours = site.ours.as_str();
    let api = objects(APP, "Application", ours).await;
    let application = |number: usize| {
        let metadata = json!({ "name": format!("suite-{number:04}") });
        json!({ "apiVersion": "app.k8s.io/v1beta1", "kind": "Application", "metadata": metadata, "spec": {} })
    };
    let created = stream::iter(0..COUNT).map(|number| create(&api, application(number)));
    created.buffer_unordered(16).for_each(async |()| {}).await;
    let serving = site.serve(&[]).await;
    let mut next = Some(format!("/applications?namespace={ours}"));
    let mut pages: Vec<Vec<String>> = Vec::new();
    while let Some(path) = next {
        let answer = page(&serving, ADMIN_TOKEN, &path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let text = answer.text();
        let links = text.split("/app/").skip(1).filter_map(|rest| rest.split('"').next());
        pages.push(links.map(str::to_owned).collect());
        assert!(pages.len() <= COUNT / PAGE, "{path} continues the last page");
        let before = text.split_once("\" rel=\"next\"").map(|(before, _)| before);
        let link = before.and_then(|before| before.rsplit('"').next());
        next = link.map(|link| link.replace("&#38;", "&"));
    }
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [PAGE; COUNT / PAGE]);
    let listed = api.list(&ListParams::default()).await.unwrap();
    let expected: Vec<String> = listed.iter().map(ResourceExt::name_any).collect();
    assert_eq!(pages.concat(), expected);
    // Processes of other tests watch all namespaces.
    let (delete, all) = (DeleteParams::default(), ListParams::default());
    api.delete_collection(&delete, &all).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_token_or_a_cluster_the_page_says_so() {
    let site = Site::new(On::Sqlite).await;
    let anonymous = format!("--anonymous={}", site.ours);
    let serving = site.serve(&[&anonymous]).await;
    let html = [("accept", "text/html")];
    let closed = serving.request("/applications", &html).await;
    assert_eq!(closed.status, 200, "{closed:?}");
    assert_has(
        &closed.text(),
        &["with your own token", "href=\"/login?next=%2Fapplications\""],
    );
    let forged = page(&serving, "forged", "/applications").await;
    assert!(
        forged.text().contains("name=\"token\"") || forged.status == 401,
        "{forged:?}"
    );
    let invalid = page(&serving, ADMIN_TOKEN, "/applications?namespace=..").await;
    assert_eq!(invalid.status, 400, "{invalid:?}");

    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    let closed = serving.request("/applications", &html).await;
    assert_has(&closed.text(), &["There is no cluster"]);
    let start = serving.request("/", &html).await.text();
    assert!(!start.contains("/applications"), "{start}");
}
