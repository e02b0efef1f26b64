//! Kinds that are added, removed, or cluster-scoped.

use serde_json::json;

use super::{Site, assert_error, assert_ready, components, count, selecting, shop};
use crate::support::eventually::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_are_discovered_when_defined_and_dropped_when_deleted() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let group = site.group();
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap"), (&group, "Widget")], false))
        .await;
    let unknown = format!("kind Widget.{group} not found");
    let application = site.until_error("shop", &unknown).await;
    assert_eq!(components(&application), ["ConfigMap/web Ready"]);
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));

    let kind = site.define("Widget", "Namespaced").await;
    site.until_error("shop", "").await;
    let unready = json!({ "metadata": { "labels": { "app": "shop" } }, "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    site.apply(&kind, "one", unready).await;
    let application = site.until_components("shop", "1/2").await;
    assert_eq!(
        components(&application),
        ["ConfigMap/web Ready", "Widget/one InProgress"]
    );

    site.undefine(&kind).await;
    let application = site.until_error("shop", &unknown).await;
    assert_eq!(components(&application), ["ConfigMap/web Ready"]);
    // A recreated definition does not inherit the state of the first one.
    site.define("Widget", "Namespaced").await;
    let application = site.until_error("shop", "").await;
    assert_eq!(components(&application), ["ConfigMap/web Ready"]);
    site.undefine(&kind).await;
    super::assert_no_panic(&portolan);
}

/// The record of owned kinds names the kind while it is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_is_deleted_while_it_is_adopted_disturbs_nothing_and_returns() {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let (kind, group) = (site.define("Widget", "Namespaced").await, site.group());
    let labels = json!({ "metadata": { "labels": { "app": "shop" } } });
    site.apply(&kind, "one", labels.clone()).await;
    site.config_map("one", &json!({ "app": "shop" })).await;
    for name in ["first", "second"] {
        let adopts = name == "first";
        site.declare(name, shop(&[("", "ConfigMap"), (&group, "Widget")], adopts))
            .await;
    }
    site.declare("neighbor", shop(&[("", "ConfigMap")], false)).await;
    site.until_owned(&kind, "one", &["first"]).await;

    site.undefine(&kind).await;
    for name in ["first", "second"] {
        let application = site.until_error(name, &format!("kind Widget.{group} not found")).await;
        assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
        assert_eq!(components(&application), ["ConfigMap/one Ready"]);
    }
    site.config_map("two", &json!({ "app": "shop" })).await;
    site.until_owned("v1 ConfigMap", "two", &["first"]).await;
    site.until_components("neighbor", "2/2").await;

    site.define("Widget", "Namespaced").await;
    site.apply(&kind, "two", labels).await;
    for name in ["first", "second"] {
        site.until_components(name, "3/3").await;
        site.until_error(name, "").await;
    }
    site.until_owned(&kind, "two", &["first"]).await;
    site.undefine(&kind).await;
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_of_unknown_kinds_delay_no_other_and_cause_no_requests() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let group = site.group();
    for number in 0..10 {
        site.declare(
            &format!("unknown-{number}"),
            shop(&[(&group, &format!("Kind{number}"))], false),
        )
        .await;
    }
    let portolan = site.portolan_with(&kubeconfig, &[]).await;
    for number in 0..10 {
        site.until_error(&format!("unknown-{number}"), "not found: install its CRD")
            .await;
    }
    let is_discovery = |request: &crate::support::fault_proxy::ApiRequest| request.path == "/apis";
    let discoveries = count(&proxy, is_discovery);
    assert!(discoveries <= 12, "{discoveries} discoveries");
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(&[("", "ConfigMap")], false)).await;
    site.until_components("shop", "1/1").await;
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_scoped_objects_are_counted_and_never_owned() {
    let site = Site::new().await;
    let group = site.group();
    let kind = site.define("Ship", "Cluster").await;
    let name = format!("ship-{}", site.namespace);
    site.apply_to_cluster(&kind, &name, json!({ "metadata": { "labels": { "app": "shop" } } }))
        .await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    let kinds = [(&*group, "Ship"), ("", "ConfigMap")];
    site.declare("adopts", shop(&kinds, true)).await;
    site.declare("selects", shop(&kinds, false)).await;
    site.declare(
        "others",
        selecting(&kinds, json!({ "matchLabels": { "app": "other" } })),
    )
    .await;
    let kinds = format!("--application-kinds=+{group}/Ship");
    let _portolan = site.portolan(&[&kinds]).await;
    let listed = [format!("Ship/{name} Ready"), "ConfigMap/web Ready".to_owned()];

    let application = site.until_components("selects", "2/2").await;
    assert_eq!(components(&application), listed);
    assert_error(&application, ("False", "NoError"), "");
    let application = site.until_components("adopts", "2/2").await;
    assert_eq!(components(&application), listed);
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    assert_error(
        &application,
        ("True", "ErrorSeen"),
        &format!("1 Ship.{group} objects not adopted"),
    );
    site.until_owned("v1 ConfigMap", "web", &["adopts"]).await;
    let ships = kube::Api::<kube::api::DynamicObject>::all_with(site.client.clone(), &super::resource(&kind));
    assert_eq!(ships.get(&name).await.unwrap().metadata.owner_references, None);

    // Applications of all namespaces are notified of changes.
    let unready = json!({ "metadata": { "labels": { "app": "shop" } }, "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    site.apply_to_cluster(&kind, &name, unready).await;
    site.until_components("selects", "1/2").await;
    site.undefine(&kind).await;
    eventually(super::SOON, "its deletion to be reported", async || {
        let application = site
            .applications()
            .get("selects")
            .await
            .map_err(|error| error.to_string())?;
        let components = components(&application);
        if components == ["ConfigMap/web Ready"] {
            Ok(())
        } else {
            Err(format!("{components:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readiness_leaves_out_the_checks_of_disabled_controllers() {
    let site = Site::new().await;
    let portolan = site.portolan(&["--controllers=application"]).await;
    let (status, checks) = portolan.get("/readyz?verbose").await.unwrap();
    assert_eq!(
        (status, checks.as_str()),
        (200, "[+]caches ok\n[+]shutdown ok\nreadyz check passed\n")
    );
    let (status, checks) = portolan.get("/livez?verbose").await.unwrap();
    assert_eq!(
        (status, checks.as_str()),
        (200, "[+]runtime ok\n[+]tasks ok\nlivez check passed\n")
    );
}
