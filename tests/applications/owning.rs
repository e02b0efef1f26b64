//! Owner references: additions, removals, and objects that are never changed.

use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::{APPLICATION, CONFIG_MAPS, SOON, Site, assert_error, assert_ready, condition, count, is_owner_patch, shop};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, ApiRequest};

const APPLICATIONS: &[(&str, &str)] = &[("app.k8s.io", "Application")];

fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid })
}

/// A ConfigMap that owns objects in addition to the Application.
async fn foreign(site: &Site<'_>) -> Value {
    let foreign = site.config_map("foreign", &json!({})).await;
    owner("v1", "ConfigMap", "foreign", &foreign.uid().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_reference_is_replaced_and_other_owners_stay() {
    let site = Site::new().await;
    let foreign = foreign(&site).await;
    let mut stale = owner(
        "app.k8s.io/v1beta1",
        "Application",
        "shop",
        "11111111-2222-3333-4444-555555555555",
    );
    stale["controller"] = true.into();
    stale["blockOwnerDeletion"] = false.into();
    let object = json!({ "metadata": { "labels": { "app": "shop" }, "ownerReferences": [stale, foreign] } });
    site.apply("v1 ConfigMap", "web", object).await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    let uid = site.applications().get("shop").await.unwrap().uid().unwrap();
    let _portolan = site.portolan(&[]).await;
    let api = site.api("v1 ConfigMap");
    let owners = eventually(SOON, "the stale reference to be removed", async || {
        let owners = api
            .get("web")
            .await
            .map_err(|error| error.to_string())?
            .owner_references()
            .to_vec();
        if owners.iter().any(|owner| owner.uid == uid) {
            Ok(owners)
        } else {
            Err(format!("{owners:?}"))
        }
    })
    .await;
    let ours = json!({ "apiVersion": "app.k8s.io/v1beta1", "kind": "Application", "name": "shop", "uid": uid, "controller": false, "blockOwnerDeletion": true });
    assert_eq!(serde_json::to_value(owners).unwrap(), json!([foreign, ours]));

    // Other owners stay when the Application releases the object.
    site.declare("shop", shop(CONFIG_MAPS, false)).await;
    site.until_owned("v1 ConfigMap", "web", &["foreign"]).await;
}

/// kubernetes-sigs' controller never removes references: same name and our UID.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_left_by_kubernetes_sigs_application_are_removed_from_non_components() {
    let site = Site::new().await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    let uid = site.applications().get("shop").await.unwrap().uid().unwrap();
    let left = owner("app.k8s.io/v1beta1", "Application", "shop", &uid);
    let foreign = foreign(&site).await;
    let object = json!({ "metadata": { "labels": { "app": "other" }, "ownerReferences": [left, foreign] } });
    site.apply("v1 ConfigMap", "left", object).await;
    let _portolan = site.portolan(&[]).await;
    site.until_owned("v1 ConfigMap", "left", &["foreign"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_on_kinds_removed_from_the_spec_are_removed_even_after_a_restart() {
    let site = Site::new().await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    let portolan = site.portolan(&[]).await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    site.until_components("shop", "1/1").await;
    drop(portolan);
    // No Application needs the kind any more, but references are left to remove.
    let mut spec = shop(CONFIG_MAPS, true);
    spec.as_object_mut().unwrap().remove("selector");
    site.declare("shop", spec).await;
    let _portolan = site.portolan(&[]).await;
    site.until_components("shop", "0/0").await;
    site.until_owned("v1 ConfigMap", "web", &[]).await;
}

/// `kubectl replace` also removes the record of owned kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_on_kinds_removed_by_a_replacement_are_removed() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    eventually(SOON, "the Application to be replaced", async || {
        let mut application = site.applications().get("shop").await?;
        application.metadata.annotations = None;
        application.spec.component_kinds.clear();
        let parameters = kube::api::PostParams::default();
        site.applications().replace("shop", &parameters, &application).await
    })
    .await;
    site.until_owned("v1 ConfigMap", "web", &[]).await;
    site.until("shop", "an empty record", |application| {
        application.annotations().is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_is_followed_by_another_look_at_the_labels() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.portolan_with(&kubeconfig, &[]).await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(CONFIG_MAPS, false)).await;
    site.until_components("shop", "1/1").await;
    // From now on Portolan receives no events of components.
    proxy.inject(usize::MAX, ApiFault::Stalled, |request| request.is_of("configmaps"));
    proxy.gate.disconnect();
    site.config_map("web", &json!({ "app": "other" })).await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    let is_read = |request: &ApiRequest| request.method == "GET" && request.path.ends_with("/configmaps/web");
    eventually(SOON, "the object to be read after the conflict", async || {
        (count(&proxy, is_read) > 0).then_some(())
    })
    .await;
    // The read updates the cache.
    site.until_components("shop", "0/0").await;
    site.until_owned("v1 ConfigMap", "web", &[]).await;
    assert_eq!(count(&proxy, |request| is_owner_patch(request, "configmaps")), 1);
    super::assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_selects_itself_is_not_its_own_owner() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    for name in ["above", "below"] {
        let mut object = json!({ "metadata": { "labels": { "app": "shop" } }, "spec": {} });
        if name == "above" {
            object["spec"] = shop(APPLICATIONS, true);
        }
        site.apply(APPLICATION, name, object).await;
    }
    let application = site.until_components("above", "2/2").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    assert_error(&application, ("False", "NoError"), "");
    site.until_owned(APPLICATION, "below", &["above"]).await;
    site.until_owned(APPLICATION, "above", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_that_select_each_other_never_own_each_other() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let object =
        |adopts: bool| json!({ "metadata": { "labels": { "app": "shop" } }, "spec": shop(APPLICATIONS, adopts) });
    for name in ["one", "two"] {
        site.apply(APPLICATION, name, object(true)).await;
    }
    for (name, other) in [("one", "two"), ("two", "one")] {
        let application = site.until_error(name, &format!("ownership cycle: {other}")).await;
        assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
        site.until_owned(APPLICATION, name, &[]).await;
    }
    site.apply(APPLICATION, "two", object(false)).await;
    site.until_owned(APPLICATION, "two", &["one"]).await;
    site.until_error(
        "one",
        "counted as ready, as they select this Application themselves: two",
    )
    .await;
    site.until_owned(APPLICATION, "one", &[]).await;
    // Also in the other direction: they never own each other at the same time.
    site.apply(APPLICATION, "two", object(true)).await;
    site.until_owned(APPLICATION, "two", &[]).await;
    site.until_error("one", "ownership cycle: two").await;
    site.until_owned(APPLICATION, "one", &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_application_owns_the_components_of_the_first() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    let foreign = foreign(&site).await;
    let object = json!({ "metadata": { "labels": { "app": "shop" }, "ownerReferences": [foreign] } });
    site.apply("v1 ConfigMap", "web", object).await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_owned("v1 ConfigMap", "web", &["foreign", "shop"]).await;
    let first = site.applications().get("shop").await.unwrap().uid();
    site.applications()
        .delete("shop", &DeleteParams::background())
        .await
        .unwrap();
    eventually(SOON, "the first to be deleted", async || {
        site.applications()
            .get_opt("shop")
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    let second = site.until_components("shop", "1/1").await.uid();
    assert_ne!(first, second);
    let api = site.api("v1 ConfigMap");
    eventually(SOON, "the ConfigMap to be owned by the second", async || {
        let owners = api
            .get("web")
            .await
            .map_err(|error| error.to_string())?
            .owner_references()
            .to_vec();
        let uids: Vec<_> = owners.iter().map(|owner| Some(owner.uid.clone())).skip(1).collect();
        if uids == [second.clone()] {
            Ok(())
        } else {
            Err(format!("{owners:?}"))
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_during_adoption_are_not_lost() {
    let site = Site::new().await;
    let (proxy, kubeconfig) = site.proxy().await;
    let portolan = site.portolan_with(&kubeconfig, &[]).await;
    site.config_maps(0..20).await;
    let foreign = foreign(&site).await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    // Data, annotations and owners are edited during adoption.
    let edits = (0..20).map(|number| {
        let (site, foreign) = (&site, &foreign);
        async move {
            for edit in 0..5 {
                let change = json!({ "metadata": { "annotations": { format!("edit-{edit}"): "x" } }, "data": { format!("edit-{edit}"): "x" } });
                site.edit("v1 ConfigMap", &format!("many-{number:05}"), change).await;
            }
            // Added with an optimistic lock, as well-behaved clients do.
            let api = site.api("v1 ConfigMap");
            eventually(SOON, "the foreign owner to be written", async || {
                let mut object = api.get(&format!("many-{number:05}")).await?;
                object.owner_references_mut().insert(0, serde_json::from_value(foreign.clone()).unwrap());
                api.replace(&format!("many-{number:05}"), &kube::api::PostParams::default(), &object).await
            })
            .await;
        }
    });
    futures::future::join_all(edits).await;
    site.until_components("shop", "20/20").await;
    for number in 0..20 {
        let name = format!("many-{number:05}");
        site.until_owned("v1 ConfigMap", &name, &["foreign", "shop"]).await;
        let object = site.api("v1 ConfigMap").get(&name).await.unwrap();
        assert_eq!(
            (
                object.annotations().len(),
                object.data["data"].as_object().map(|data| data.len())
            ),
            (5, Some(5))
        );
    }
    assert!(count(&proxy, |request| is_owner_patch(request, "configmaps")) >= 20);
    super::assert_no_panic(&portolan);
}

/// An admission policy that rejects changes of ConfigMaps whose names begin with `prefix`, such as `name`.
pub async fn guard(site: &Site<'_>, name: &str, prefix: &str) {
    let policy = format!("guard-{}", site.namespace);
    let spec = json!({ "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": site.namespace } },
            "resourceRules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["configmaps"] }]
        },
        "validations": [{ "expression": format!("!object.metadata.name.startsWith('{prefix}')"), "message": "object is guarded" }]
    } });
    site.apply_to_cluster(
        "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy",
        &policy,
        spec,
    )
    .await;
    let binding = json!({ "spec": { "policyName": policy, "validationActions": ["Deny"] } });
    site.apply_to_cluster(
        "admissionregistration.k8s.io/v1 ValidatingAdmissionPolicyBinding",
        &policy,
        binding,
    )
    .await;
    // The API server activates the policy with a delay.
    let (api, patch) = (
        site.api("v1 ConfigMap"),
        json!({ "metadata": { "annotations": { "guard": "tried" } } }),
    );
    let (parameters, patch) = (kube::api::PatchParams::default(), kube::api::Patch::Merge(patch));
    eventually(SOON, "the policy to be enforced", async || {
        api.patch(name, &parameters, &patch).await.err()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_may_not_be_changed_does_not_block_others_of_its_kind() {
    let site = Site::new().await;
    // It is the first by name, and there are more objects than one batch.
    site.config_map("aaa-guarded", &json!({ "app": "shop" })).await;
    site.config_maps(0..30).await;
    guard(&site, "aaa-guarded", "aaa-guarded").await;
    let _portolan = site.portolan(&[]).await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    for number in 0..30 {
        site.until_owned("v1 ConfigMap", &format!("many-{number:05}"), &["shop"])
            .await;
    }
    let application = site
        .until_error("shop", "failed to set owner reference on ConfigMap/aaa-guarded")
        .await;
    assert!(condition(&application, "Error").2.contains("object is guarded"));
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    site.until_components("shop", "31/31").await;
    site.until_owned("v1 ConfigMap", "aaa-guarded", &[]).await;
}
