//! Garbage collection of components when their Application is deleted.

use std::time::Duration;

use futures::StreamExt;
use kube::api::{DeleteParams, DynamicObject, PropagationPolicy};
use kube::{Api, ResourceExt};
use portolan::api::Application;
use rstest::rstest;
use serde_json::json;

use super::{SOON, Site, count, is_owner_patch, shop};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, ApiRequest};
use crate::support::portolan::{command, run};

async fn gone(api: &Api<DynamicObject>, name: &str) {
    eventually(SOON, &format!("{name} to be gone"), async || {
        match api.get_opt(name).await {
            Ok(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

#[rstest]
#[case::in_the_background(DeleteParams::background())]
#[case::in_the_foreground(DeleteParams::foreground())]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_components_are_deleted_with_their_application(#[case] how: DeleteParams) {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let names = ["one", "shared", "two"];
    for name in names {
        site.config_map(name, &json!({ "app": "shop" })).await;
    }
    site.config_map("other", &json!({ "app": "other" })).await;
    // The object has another owner and stays.
    let another = site.config_map("another", &json!({})).await;
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "another", "uid": another.uid().unwrap() });
    site.edit(
        "v1 ConfigMap",
        "shared",
        json!({ "metadata": { "ownerReferences": [owner] } }),
    )
    .await;
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
    for name in ["one", "two"] {
        site.until_owned("v1 ConfigMap", name, &["shop"]).await;
    }
    site.until_owned("v1 ConfigMap", "shared", &["another", "shop"]).await;

    let is_foreground = how.propagation_policy == Some(PropagationPolicy::Foreground);
    site.applications().delete("shop", &how).await.unwrap();
    let api = site.api("v1 ConfigMap");
    gone(&site.api(super::APPLICATION), "shop").await;
    if is_foreground {
        // Foreground deletion waits for all owned objects.
        assert!(api.get_opt("one").await.unwrap().is_none() && api.get_opt("two").await.unwrap().is_none());
    }
    gone(&api, "one").await;
    gone(&api, "two").await;
    site.until_owned("v1 ConfigMap", "shared", &["another"]).await;
    assert!(api.get("other").await.is_ok());
    // No watch is left.
    eventually(SOON, "the watches to stop", async || {
        let metrics = portolan.metrics().await;
        let seen = [
            metrics.sum("portolan_component_watches", &[]),
            metrics.sum("portolan_applications", &[]),
        ];
        if seen == [Some(0.0), Some(0.0)] {
            Ok(())
        } else {
            Err(format!("{seen:?}"))
        }
    })
    .await;
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphaned_components_stay_without_an_owner() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    for number in 0..5 {
        site.config_map(&format!("web-{number}"), &json!({ "app": "shop" }))
            .await;
    }
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
    for number in 0..5 {
        site.until_owned("v1 ConfigMap", &format!("web-{number}"), &["shop"])
            .await;
    }
    site.applications().delete("shop", &orphaning()).await.unwrap();
    gone(&site.api(super::APPLICATION), "shop").await;
    for number in 0..5 {
        site.until_owned("v1 ConfigMap", &format!("web-{number}"), &[]).await;
    }
}

/// Deletions with `--cascade=orphan` at various moments of an adoption.
const ROUNDS: usize = 50;
const AT_ONCE: usize = 10;

fn orphaning() -> DeleteParams {
    DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    }
}

fn finalizers(application: &Application) -> &[String] {
    application.metadata.finalizers.as_deref().unwrap_or_default()
}

/// Creates components, lets an Application adopt them, deletes it after `delay`, and asserts that all remain.
async fn adopt_and_orphan(site: &Site<'_>, round: usize, delay: Duration) {
    let name = format!("shop-{round}");
    let component = |number: usize| format!("{name}-{number}");
    for number in 0..6 {
        site.config_map(&component(number), &json!({ "app": name })).await;
    }
    let mut spec = shop(&[("", "ConfigMap")], true);
    spec["selector"]["matchLabels"] = json!({ "app": name });
    site.declare(&name, spec).await;
    // The moment of the deletion is the input of the test.
    tokio::time::sleep(delay).await;
    site.applications().delete(&name, &orphaning()).await.unwrap();
    gone(&site.api(super::APPLICATION), &name).await;
    for number in 0..6 {
        // Without an owner, the garbage collector never deletes it.
        site.until_owned("v1 ConfigMap", &component(number), &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_component_is_lost_if_its_application_is_orphaned_during_adoption() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let rounds = (0..ROUNDS).map(|round| {
        let delay = Duration::from_millis(7 * round as u64);
        adopt_and_orphan(&site, round, delay)
    });
    futures::stream::iter(rounds)
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_has_a_finalizer_only_around_adoptions() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("selects", shop(&[("", "ConfigMap")], false)).await;
    site.declare("adopts", shop(&[("", "ConfigMap")], true)).await;
    site.until_owned("v1 ConfigMap", "web", &["adopts"]).await;
    let adopting = site.applications().get("adopts").await.unwrap();
    assert_eq!(finalizers(&adopting), ["portolan.dev/adoption"]);
    let selecting = site.until_components("selects", "1/1").await;
    assert!(finalizers(&selecting).is_empty());
    site.until("adopts", "no finalizer", |application| {
        finalizers(application).is_empty()
    })
    .await;
    site.until_owned("v1 ConfigMap", "web", &["adopts"]).await;
    // Without addOwnerRef there is no reason to wait.
    site.config_map("new", &json!({ "app": "shop" })).await;
    site.until_owned("v1 ConfigMap", "new", &["adopts"]).await;
    site.declare("adopts", shop(&[("", "ConfigMap")], false)).await;
    site.until_owned("v1 ConfigMap", "new", &[]).await;
    site.until("adopts", "no finalizer", |application| {
        finalizers(application).is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_survive_an_orphaning_deletion_while_no_process_runs() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    drop(portolan);
    site.applications().delete("shop", &orphaning()).await.unwrap();
    let is_orphaned = |application: &Application| finalizers(application) == ["portolan.dev/adoption"];
    site.until("shop", "the garbage collector to be done", is_orphaned)
        .await;
    // A reference that the garbage collector did not know.
    let uid = site.applications().get("shop").await.unwrap().uid().unwrap();
    let owner = json!({ "apiVersion": "app.k8s.io/v1beta1", "kind": "Application", "name": "shop", "uid": uid });
    site.edit(
        "v1 ConfigMap",
        "web",
        json!({ "metadata": { "ownerReferences": [owner] } }),
    )
    .await;
    let _portolan = site.portolan(&[]).await;
    gone(&site.api(super::APPLICATION), "shop").await;
    site.until_owned("v1 ConfigMap", "web", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uninstalling_removes_the_finalizer_and_releases_the_components_of_deleted_applications() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    for name in ["deleted", "stays"] {
        site.config_map(name, &json!({ "app": name })).await;
        let mut spec = shop(&[("", "ConfigMap")], true);
        spec["selector"]["matchLabels"] = json!({ "app": name });
        site.declare(name, spec).await;
        site.until_owned("v1 ConfigMap", name, &[name]).await;
    }
    drop(portolan);
    site.applications()
        .delete("deleted", &DeleteParams::background())
        .await
        .unwrap();
    let mut command = command(["uninstall", "--namespace", &site.namespace, "--kubeconfig"]);
    command.arg(site.control_plane.kubeconfig());
    let output = run(command).await;
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("finalizer removed from 2 Applications\n"), "{printed}");
    gone(&site.api(super::APPLICATION), "deleted").await;
    site.until_owned("v1 ConfigMap", "deleted", &[]).await;
    site.until("stays", "no finalizer", |application| {
        finalizers(application).is_empty()
    })
    .await;
    site.until_owned("v1 ConfigMap", "stays", &["stays"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_with_an_unobserved_deletion_adopts_nothing() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.portolan_with(&kubeconfig, &[]).await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], true)).await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    site.until_components("shop", "1/1").await;

    // From now on Portolan receives events of components, but none of Applications.
    proxy.inject(usize::MAX, ApiFault::Stalled, |request| request.is_of("applications"));
    proxy.gate.disconnect();
    let reads = |request: &ApiRequest| request.method == "GET" && request.path.ends_with("/applications/shop");
    let (read, adopted) = (
        count(&proxy, reads),
        count(&proxy, |request| is_owner_patch(request, "configmaps")),
    );
    site.applications().delete("shop", &orphaning()).await.unwrap();
    let is_orphaned = |application: &Application| finalizers(application) == ["portolan.dev/adoption"];
    site.until("shop", "the garbage collector to be done", is_orphaned)
        .await;
    // Portolan observes that the garbage collector has removed the reference, as if it needed to be restored.
    eventually(SOON, "the Application to be read again", async || {
        if count(&proxy, reads) > read {
            Ok(())
        } else {
            Err("no further read")
        }
    })
    .await;
    site.until_owned("v1 ConfigMap", "web", &[]).await;
    assert_eq!(count(&proxy, |request| is_owner_patch(request, "configmaps")), adopted);
    proxy.clear_faults();
    proxy.gate.disconnect();
    gone(&site.api(super::APPLICATION), "shop").await;
    site.until_owned("v1 ConfigMap", "web", &[]).await;
    super::assert_no_panic(&portolan);
}
