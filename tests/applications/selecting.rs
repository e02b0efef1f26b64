//! Selection of components: label selectors, and API groups as users write them.

use rstest::rstest;
use serde_json::{Value, json};

use super::{CONFIG_MAPS, Site, assert_error, assert_ready, components, selecting, shop};

fn expression(key: &str, operator: &str, values: Value) -> Value {
    json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_match_like_in_kubernetes() {
    let site = Site::new().await;
    for (name, labels) in [
        ("db", json!({ "tier": "back", "app": "shop" })),
        ("web", json!({ "tier": "front", "app": "shop" })),
        ("other", json!({ "app": "other" })),
    ] {
        site.config_map(name, &labels).await;
    }
    // The controller manager creates one in each namespace.
    let root = "kube-root-ca.crt";
    let api = site.api("v1 ConfigMap");
    crate::support::eventually::eventually(super::SOON, root, async || api.get(root).await).await;
    let cases = [
        ("nil", Value::Null, vec![]),
        ("empty", json!({}), vec!["db", root, "other", "web"]),
        (
            "empty-members",
            json!({ "matchLabels": {}, "matchExpressions": [] }),
            vec!["db", root, "other", "web"],
        ),
        ("is-in", expression("tier", "In", json!(["back", "middle"])), vec!["db"]),
        (
            "not-in",
            expression("tier", "NotIn", json!(["back"])),
            vec![root, "other", "web"],
        ),
        ("exists", expression("tier", "Exists", json!([])), vec!["db", "web"]),
        (
            "does-not-exist",
            expression("tier", "DoesNotExist", json!([])),
            vec![root, "other"],
        ),
        (
            "both",
            json!({ "matchLabels": { "app": "shop" }, "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["front"] }] }),
            vec!["db"],
        ),
    ];
    for (name, selector, _) in &cases {
        let mut spec = selecting(CONFIG_MAPS, selector.clone());
        if selector.is_null() {
            spec.as_object_mut().unwrap().remove("selector");
        }
        site.declare(name, spec).await;
    }
    let _portolan = site.portolan(&[]).await.with_probes();
    for (name, _, selected) in cases {
        let application = site.until_components(name, &format!("{0}/{0}", selected.len())).await;
        let selected: Vec<_> = selected.iter().map(|name| format!("ConfigMap/{name} Ready")).collect();
        assert_eq!(components(&application), selected, "{name}");
        assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
        assert_error(&application, ("False", "NoError"), "No error seen");
    }
}

#[rstest]
#[case::no_operator(expression("app", "Equals", json!(["shop"])), "operator Equals of label app")]
#[case::no_values(expression("app", "In", json!([])), "operator In of label app requires values")]
#[case::values(expression("app", "Exists", json!(["shop"])), "operator Exists of label app does not allow values")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_selector_selects_nothing_and_changes_no_owners(#[case] wrong: Value, #[case] words: &str) {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await.with_probes();
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;

    let mut spec = selecting(CONFIG_MAPS, wrong);
    spec["addOwnerRef"] = true.into();
    site.declare("shop", spec).await;
    let application = site.until_error("shop", words).await;
    let message = "failed to aggregate all components' statuses, check the Error condition for details";
    assert_ready(&application, ("Unknown", "ComponentsReadyUnknown", message));
    assert_error(&application, ("True", "ErrorSeen"), "invalid selector");
    assert!(components(&application).is_empty());
    // An invalid selector does not say which objects to own, so no owner changes.
    site.config_map("new", &json!({ "app": "shop" })).await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    site.until_owned("v1 ConfigMap", "new", &[]).await;

    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_error("shop", "").await;
    site.until_owned("v1 ConfigMap", "new", &["shop"]).await;
}

/// As in kubernetes-sigs/application, the version is stripped. An invalid group is reported and the rest is still
/// counted.
#[rstest]
#[case::nothing(&[("", "ConfigMap"), ("apps", "Deployment")], "1/2", "")]
#[case::versions(&[("v1", "ConfigMap"), ("apps/v1", "Deployment")], "1/2", "")]
#[case::an_old_version(&[("/v1", "ConfigMap"), ("apps/v1beta1", "Deployment")], "1/2", "")]
#[case::core(&[("core", "ConfigMap"), ("apps", "Deployment")], "0/1", "kind ConfigMap.core not found")]
#[case::core_with_its_version(&[("core/v1", "ConfigMap"), ("apps", "Deployment")], "0/1", "kind ConfigMap.core not found")]
#[case::upper_case(&[("", "ConfigMap"), ("Apps", "Deployment")], "1/1", "kind Deployment.Apps not found")]
#[case::the_plural(&[("", "ConfigMap"), ("apps", "deployments")], "1/1", "kind deployments.apps not found")]
#[case::twice(&[("", "ConfigMap"), ("v1", "ConfigMap"), ("apps", "Deployment"), ("apps/v1", "Deployment")], "1/2", "")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_stripped_from_api_groups(
    #[case] kinds: &[(&str, &str)],
    #[case] ready: &str,
    #[case] words: &str,
) {
    let site = Site::new().await;
    let labels = json!({ "app": "shop" });
    site.config_map("web", &labels).await;
    site.apply("apps/v1 Deployment", "web", super::deployment(&labels))
        .await;
    site.declare("shop", shop(kinds, false)).await;
    let _portolan = site.portolan(&[]).await.with_probes();
    let application = site.until_components("shop", ready).await;
    let error = if words.is_empty() {
        ("False", "NoError")
    } else {
        ("True", "ErrorSeen")
    };
    assert_error(&application, error, words);
    // An unknown kind does not affect readiness.
    match ready {
        "1/1" => assert_ready(&application, ("True", "ComponentsReady", "all components ready")),
        _ => assert_ready(
            &application,
            ("False", "ComponentsNotReady", "1 components not ready: Deployment/web"),
        ),
    }
}
