//! API server faults: charts are synced regardless, and status updates are retried.

use std::time::Duration;

use axum::http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::discovery::ApiResource;
use portolan::api::{self, AppRepository, crds};
use rstest::rstest;
use serde_json::json;

use super::rows::Postgres;
use super::{SOON, World, condition, finalizers, index};
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane, control_plane};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;

/// Deadline for recovery, including the backoff.
const RECOVERY: Duration = Duration::from_secs(75);
/// Window and maximum for counting retries: backoff from 5 ms allows about ten, and the client retries each a few
/// times.
const WINDOW: Duration = Duration::from_secs(4);
const NO_STORM: usize = 60;

/// Portolan behind a proxy to the shared API server.
struct ProxiedWorld {
    world: World,
    postgres: Postgres,
    proxy: FaultProxy,
    portolan: Portolan,
}

impl ProxiedWorld {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(arguments: &[&str]) -> Self {
        let (world, postgres) = (World::new().await, Postgres::new().await);
        let control_plane = control_plane().await;
        let proxy = FaultProxy::in_front_of(control_plane).await;
        let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
        let portolan = world.portolan_with(&kubeconfig, postgres.url(), arguments).await;
        Self {
            world,
            postgres,
            proxy,
            portolan,
        }
    }

    /// Declares a repository with one version of the chart `web`.
    async fn declare(&self, name: &str, version: &str) {
        let url = self.world.serve(name, index(&[("web", &[version])]));
        self.world.declare(name, &url).await;
    }

    /// Number of requests that `chooser` selects.
    fn count(&self, chooser: impl Fn(&ApiRequest) -> bool) -> usize {
        self.proxy.requests().iter().filter(|request| chooser(request)).count()
    }

    /// Fails if there are more requests than backoff allows, to the API server or for an index.
    async fn assert_no_storm(&self, names: &[&str]) {
        let before = self.proxy.requests().len();
        // A fixed window: the test checks that few requests are sent.
        tokio::time::sleep(WINDOW).await;
        let during = self.proxy.requests().len() - before;
        assert!(during <= NO_STORM, "{during} requests to the API server in {WINDOW:?}");
        for name in names {
            let fetched = self.world.server.requests(&format!("/{name}/index.yaml")).len();
            assert!(fetched <= 4, "{fetched} downloads of {name}");
        }
    }

    async fn until_ready(&self, name: &str) -> AppRepository {
        let ready = |object: &AppRepository| {
            super::is_current(object)
                && condition(object, "Ready") == Some(("True", "Synced"))
                && condition(object, "Reconciling").is_none()
        };
        self.world.until_within(RECOVERY, name, "Ready to be True", ready).await
    }
}

fn is_status_patch(request: &ApiRequest) -> bool {
    request.method == Method::PATCH && request.path.ends_with("/status")
}

/// Patches of the object itself, i.e. its finalizers.
fn is_object_patch(request: &ApiRequest) -> bool {
    request.method == Method::PATCH && request.path.contains("/apprepositories/") && !request.path.ends_with("/status")
}

fn is_event(request: &ApiRequest) -> bool {
    request.method != Method::GET && request.path.contains("/events")
}

fn is_repository_watch(request: &ApiRequest) -> bool {
    request.is_watch() && request.path.ends_with("/apprepositories")
}

#[rstest]
#[case::cut(None)]
#[case::expired_before_an_event(Some(ApiFault::WatchExpired))]
#[case::expired_as_an_answer(Some(ApiFault::Status(410)))]
#[case::ended_in_the_middle_of_an_event(Some(ApiFault::WatchTruncated))]
#[case::refused(Some(ApiFault::Refused))]
#[case::failing(Some(ApiFault::Status(500)))]
#[case::asked_to_slow_down(Some(ApiFault::Status(429)))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_watch_is_restarted_and_misses_nothing(#[case] fault: Option<ApiFault>) {
    let proxied = ProxiedWorld::new().await;
    for name in ["changes", "vanishes"] {
        proxied.declare(name, "1.0.0").await;
        proxied.until_ready(name).await;
    }
    let watches = proxied.count(is_repository_watch);
    // While the API server is unreachable, one object changes, one is deleted and one is created.
    proxied.proxy.gate.close().await;
    proxied.world.delete_without_finalizer("vanishes").await;
    proxied.world.serve("changes", index(&[("web", &["2.0.0"])]));
    proxied.world.resync("changes", "now").await;
    proxied.declare("comes", "1.0.0").await;
    if let Some(fault) = fault {
        proxied.proxy.inject(2, fault, is_repository_watch);
    }
    proxied.proxy.gate.open().await;

    let expected = ["changes/web 2.0.0", "comes/web 1.0.0"];
    proxied.postgres.rows.until_charts_within(RECOVERY, &expected).await;
    for name in ["changes", "comes"] {
        proxied.until_ready(name).await;
    }
    proxied.assert_no_storm(&["changes", "comes", "vanishes"]).await;
    let opened = proxied.count(is_repository_watch) - watches;
    assert!((1..20).contains(&opened), "{opened} watches");
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_are_synced_if_the_status_fails_and_it_is_written_later(#[values(500, 429, 403)] code: u16) {
    let proxied = ProxiedWorld::new().await;
    proxied
        .proxy
        .inject(usize::MAX, ApiFault::Status(code), is_status_patch);
    proxied.declare("stable", "1.0.0").await;
    let expected = ["stable/web 1.0.0"];
    proxied.postgres.rows.until_charts_within(RECOVERY, &expected).await;
    proxied.assert_no_storm(&["stable"]).await;
    assert!(proxied.count(is_status_patch) >= 2, "the write is retried");
    proxied.proxy.clear_faults();
    proxied.until_ready("stable").await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_and_status_are_written_if_events_fail(#[values(500, 429, 403)] code: u16) {
    let proxied = ProxiedWorld::new().await;
    proxied.proxy.inject(usize::MAX, ApiFault::Status(code), is_event);
    proxied.declare("stable", "1.0.0").await;
    proxied.until_ready("stable").await;
    proxied.postgres.rows.until_charts(&["stable/web 1.0.0"]).await;
    proxied.assert_no_storm(&["stable"]).await;
    assert!(proxied.count(is_event) >= 1);
    proxied.proxy.clear_faults();
    proxied.world.serve("stable", index(&[("web", &["2.0.0"])]));
    proxied.world.resync("stable", "now").await;
    proxied.world.event("stable", "SyncSucceeded").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_and_a_status_that_are_too_many_requests_are_sent_again_after_the_pause() {
    let proxied = ProxiedWorld::new().await;
    let is_write = |request: &ApiRequest| is_event(request) || is_status_patch(request);
    proxied.proxy.inject(4, ApiFault::TooManyRequests, is_write);
    proxied.declare("stable", "1.0.0").await;
    proxied.until_ready("stable").await;
    proxied.world.event("stable", "SyncSucceeded").await;
    let lines = proxied.portolan.lines();
    assert!(!lines.iter().any(|line| line.contains("failed to")), "{lines:?}");
}

/// The finalizer is written before the first row, so that no deletion can leave rows behind.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adding_a_finalizer_is_retried_until_it_succeeds(#[values(500, 429, 403)] code: u16) {
    let proxied = ProxiedWorld::new().await;
    proxied.declare("before", "1.0.0").await;
    proxied.until_ready("before").await;
    proxied
        .proxy
        .inject(usize::MAX, ApiFault::Status(code), is_object_patch);
    proxied.declare("stable", "1.0.0").await;
    // Other repositories have their finalizer.
    proxied.world.serve("before", index(&[("web", &["2.0.0"])]));
    proxied.world.resync("before", "now").await;
    eventually(SOON, "the other repository to be synced", async || {
        let charts = proxied
            .postgres
            .rows
            .charts()
            .await
            .map_err(|error| error.to_string())?;
        let synced = charts.iter().any(|chart| chart == "before/web 2.0.0");
        if synced { Ok(()) } else { Err(format!("{charts:?}")) }
    })
    .await;
    proxied.assert_no_storm(&["stable", "before"]).await;
    assert!(proxied.count(is_object_patch) >= 3, "the write is retried");
    proxied.proxy.clear_faults();
    let object = proxied.until_ready("stable").await;
    assert_eq!(finalizers(&object), [api::FINALIZER]);

    // The same for its removal, after the rows.
    proxied
        .proxy
        .inject(usize::MAX, ApiFault::Status(code), is_object_patch);
    proxied.world.delete("stable").await;
    proxied.postgres.rows.until_charts(&["before/web 2.0.0"]).await;
    assert!(proxied.world.repositories.get_opt("stable").await.unwrap().is_some());
    proxied.assert_no_storm(&["stable"]).await;
    proxied.proxy.clear_faults();
    eventually(RECOVERY, "the object to be deleted", async || {
        proxied
            .world
            .repositories
            .get_opt("stable")
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
    drop(proxied.portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_with_lost_responses_do_not_conflict() {
    let proxied = ProxiedWorld::new().await;
    let is_write = |request: &ApiRequest| request.method == Method::PATCH && request.path.contains("/apprepositories/");
    proxied.proxy.inject(3, ApiFault::ResponseLost, is_write);
    proxied.declare("stable", "1.0.0").await;
    let object = proxied.until_ready("stable").await;
    assert_eq!(finalizers(&object), [api::FINALIZER]);
    proxied.proxy.inject(2, ApiFault::ResponseLost, is_write);
    proxied.world.delete("stable").await;
    proxied.world.gone("stable").await;
    proxied.postgres.rows.assert_empty().await;
}

/// Our CRD without validation.
fn loose(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut crd = serde_json::to_value(crd).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    serde_json::from_value(crd).unwrap()
}

/// An object that can't be decoded blocks no others, reports the error, and can be repaired.
async fn undecodable_objects_block_no_others(world: &World, postgres: &Postgres, portolan: &Portolan) {
    let broken: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository", "metadata": { "name": "broken" },
        "spec": { "type": "helm", "url": ["no", "text"] },
    }))
    .unwrap();
    let resource = ApiResource::erase::<AppRepository>(&());
    let raw: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    raw.create(&PostParams::default(), &broken).await.unwrap();
    let url = world.serve("whole", index(&[("web", &["1.0.0"])]));
    world.declare("whole", &url).await;
    world.until_ready("whole").await;
    postgres
        .rows
        .until_charts(&["stable/web 2.0.0", "whole/web 1.0.0"])
        .await;

    let note = world.event("broken", "InvalidObject").await;
    assert!(note.contains("string"), "{note}");
    eventually(SOON, "the status of the broken object", async || {
        let object = raw.get("broken").await.map_err(|error| error.to_string())?;
        let conditions = object.data["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let stalled = conditions.iter().any(|condition| condition["type"] == "Stalled");
        if stalled { Ok(()) } else { Err(object.data.to_string()) }
    })
    .await;

    // The error is reported once and not retried. A fixed window: the test checks that few requests are sent.
    tokio::time::sleep(WINDOW).await;
    let reported = world.events("broken").await;
    assert_eq!(reported.len(), 1, "{reported:?}");
    let is_retry = |line: &&String| line.contains("name=broken") && line.contains("retrying");
    let retries: Vec<String> = portolan.lines().iter().filter(is_retry).cloned().collect();
    assert!(retries.is_empty(), "{retries:#?}");

    let edit = json!({ "spec": { "url": url } });
    raw.patch("broken", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    world.until_ready("broken").await;
    let all = ["broken/web 1.0.0", "stable/web 2.0.0", "whole/web 1.0.0"];
    postgres.rows.until_charts(&all).await;

    // Invalid again: its charts stay until it is deleted.
    let edit = json!({ "spec": { "url": ["no", "text"] } });
    raw.patch("broken", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .unwrap();
    eventually(SOON, "the object to be rejected again", async || {
        let events = world.events("broken").await;
        let object = raw.get("broken").await.map_err(|error| error.to_string())?;
        let reason = &object.data["status"]["conditions"][0]["reason"];
        if reason == "InvalidObject" {
            Ok(())
        } else {
            Err(format!("{events:?} {}", object.data))
        }
    })
    .await;
    let all = ["broken/web 1.0.0", "stable/web 2.0.0", "whole/web 1.0.0"];
    postgres.rows.until_charts(&all).await;
    raw.delete("broken", &DeleteParams::default()).await.unwrap();
    eventually(SOON, "the broken object to be deleted", async || {
        raw.get_opt("broken").await.unwrap().is_none().then_some(())
    })
    .await;
    postgres
        .rows
        .until_charts(&["stable/web 2.0.0", "whole/web 1.0.0"])
        .await;
}

/// Pending updates are written once the API server is back.
async fn portolan_survives_a_killed_api_server(control_plane: &ControlPlane, world: &World, portolan: &Portolan) {
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    portolan.forget_lines();
    control_plane.stop_api_server();
    portolan.line_with("the API server does not respond", SOON).await;
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    control_plane.start_api_server().await;
    eventually(RECOVERY, "the API server to accept a resync", async || {
        let patch = json!({ "metadata": { "annotations": { api::REQUESTED_AT: "now" } } });
        world
            .repositories
            .patch("stable", &PatchParams::default(), &Patch::Merge(patch))
            .await
    })
    .await;
    world
        .until_within(RECOVERY, "stable", "the sync to be reported", |object| {
            let handled = object
                .status
                .as_ref()
                .and_then(|status| status.last_handled_reconcile_at.as_deref());
            handled == Some("now") && condition(object, "Ready") == Some(("True", "Synced"))
        })
        .await;
    portolan.line_with("the API server responds again", SOON).await;
    let warnings: Vec<String> = (portolan.lines().into_iter())
        .filter(|line| line.contains("WARN"))
        .collect();
    assert!(warnings.len() <= 6, "{warnings:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_crd_a_killed_api_server_and_invalid_objects_are_handled() {
    let control_plane = ControlPlane::start().await;
    let (world, postgres) = (World::on(&control_plane).await, Postgres::new().await);
    let portolan = Portolan::start(world.command(&world.kubeconfig, postgres.url(), &[]));
    let line = portolan
        .line_with("apprepositories.kubeapps.com is not installed", SOON)
        .await;
    assert!(
        line.contains("WARN") && line.contains("portolan crds --apply"),
        "{line}"
    );
    let (status, body) = portolan.get("/readyz").await.unwrap();
    assert_eq!(status, 503, "{body}");
    for crd in crds() {
        control_plane.install_crd(&loose(crd)).await;
    }
    portolan.ready(SOON).await;

    portolan_survives_a_killed_api_server(&control_plane, &world, &portolan).await;
    postgres.rows.until_charts(&["stable/web 2.0.0"]).await;
    undecodable_objects_block_no_others(&world, &postgres, &portolan).await;
    portolan.ready(SOON).await;
}

/// A change before the sync is registered can't cancel it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_replaced_during_its_first_status_update_is_not_synced() {
    let proxied = ProxiedWorld::new().await;
    let (world, rows) = (&proxied.world, &proxied.postgres.rows);
    proxied.proxy.inject(1, ApiFault::Stalled, is_status_patch);
    proxied.declare("stable", "1.0.0").await;
    eventually(SOON, "the first status write", async || {
        (proxied.count(is_status_patch) > 0).then_some(())
    })
    .await;
    world.delete_without_finalizer("stable").await;
    let url = world.serve("other", index(&[("job", &["2.0.0"])]));
    world.declare("stable", &url).await;

    rows.until_charts_within(RECOVERY, &["stable/job 2.0.0"]).await;
    let object = world.until_ready("stable").await;
    assert_eq!(finalizers(&object), [api::FINALIZER]);
    assert_eq!(
        world.server.requests("/stable/index.yaml").len(),
        0,
        "the replaced object was synced"
    );
    world.delete("stable").await;
    world.gone("stable").await;
    rows.assert_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_is_written_once_even_if_the_watch_is_late() {
    let proxied = ProxiedWorld::with(&["--min-interval=1s"]).await;
    let url = proxied.world.serve("stable", index(&[("web", &["1.0.0"])]));
    let spec = json!({ "type": "helm", "url": url, "interval": "* * * * * *" });
    proxied.world.declare_with("stable", json!({ "spec": spec })).await;
    proxied.until_ready("stable").await;
    let requests = || proxied.world.server.requests("/stable/index.yaml").len();
    eventually(SOON, "the second sync", async || (requests() > 1).then_some(())).await;
    let is_watch = |request: &ApiRequest| request.is_watch() && request.is_of("apprepositories");
    proxied.proxy.inject(usize::MAX, ApiFault::Stalled, is_watch);
    proxied.proxy.gate.disconnect();
    let before = proxied.count(is_status_patch);
    proxied.world.serve("stable", index(&[("web", &["2.0.0", "1.0.0"])]));
    let rows = &proxied.postgres.rows;
    rows.until_charts(&["stable/web 2.0.0 1.0.0"]).await;
    let synced = requests();
    eventually(SOON, "three more syncs", async || {
        (requests() > synced + 3).then_some(())
    })
    .await;
    assert_eq!(proxied.count(is_status_patch) - before, 1);
}
