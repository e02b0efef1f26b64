//! Which objects are components: selectors of each form, and groups as users write them.

use rstest::rstest;
use serde_json::{Value, json};

use super::{Site, assert_error, assert_ready, components, selecting, shop};

const CONFIG_MAPS: &[(&str, &str)] = &[("", "ConfigMap")];

fn expression(key: &str, operator: &str, values: Value) -> Value {
    json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_select_what_kubernetes_would_select() {
    let site = Site::new().await;
    for (name, labels) in [
        ("db", json!({ "tier": "back", "app": "shop" })),
        ("web", json!({ "tier": "front", "app": "shop" })),
        ("other", json!({ "app": "other" })),
    ] {
        site.config_map(name, &labels).await;
    }
    // The controller manager puts one into each namespace.
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
    let _portolan = site.portolan(&[]).await;
    for (name, _, selected) in cases {
        let application = site.until_components(name, &format!("{0}/{0}", selected.len())).await;
        let selected: Vec<_> = selected.iter().map(|name| format!("ConfigMap/{name} Ready")).collect();
        assert_eq!(components(&application), selected, "{name}");
        assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
        assert_error(&application, ("False", "NoError"), "No error seen");
    }
}

#[rstest]
#[case::no_operator(expression("app", "Equals", json!(["shop"])), "the operator Equals for the label app")]
#[case::no_values(expression("app", "In", json!([])), "In for the label app needs values")]
#[case::values(expression("app", "Exists", json!(["shop"])), "Exists for the label app can't have values")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selector_that_is_wrong_selects_and_owns_nothing_and_lets_go_of_nothing(
    #[case] wrong: Value,
    #[case] words: &str,
) {
    let site = Site::new().await;
    let _portolan = site.portolan(&[]).await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;

    let mut spec = selecting(CONFIG_MAPS, wrong);
    spec["addOwnerRef"] = true.into();
    site.declare("shop", spec).await;
    let application = site.until_error("shop", words).await;
    let message = "failed to aggregate all components' statuses, check the Error condition for details";
    assert_ready(&application, ("Unknown", "ComponentsReadyUnknown", message));
    assert_error(&application, ("True", "ErrorSeen"), "the selector can't be used");
    assert!(components(&application).is_empty());
    // What is to be owned is not known: neither is anything more, nor is it any less.
    site.config_map("new", &json!({ "app": "shop" })).await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    site.until_owned("v1 ConfigMap", "new", &[]).await;

    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_error("shop", "").await;
    site.until_owned("v1 ConfigMap", "new", &["shop"]).await;
}

/// application.md A2.2: the version is taken off; what is no group is told, and leaves the rest as it is counted.
#[rstest]
#[case::nothing(&[("", "ConfigMap"), ("apps", "Deployment")], "1/2", "")]
#[case::versions(&[("v1", "ConfigMap"), ("apps/v1", "Deployment")], "1/2", "")]
#[case::an_old_version(&[("/v1", "ConfigMap"), ("apps/v1beta1", "Deployment")], "1/2", "")]
#[case::core(&[("core", "ConfigMap"), ("apps", "Deployment")], "0/1", "no kind ConfigMap.core")]
#[case::core_with_its_version(&[("core/v1", "ConfigMap"), ("apps", "Deployment")], "0/1", "no kind ConfigMap.core")]
#[case::upper_case(&[("", "ConfigMap"), ("Apps", "Deployment")], "1/1", "no kind Deployment.Apps")]
#[case::the_plural(&[("", "ConfigMap"), ("apps", "deployments")], "1/1", "no kind deployments.apps")]
#[case::twice(&[("", "ConfigMap"), ("v1", "ConfigMap"), ("apps", "Deployment"), ("apps/v1", "Deployment")], "1/2", "")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_taken_as_users_write_them(
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
    let _portolan = site.portolan(&[]).await;
    let application = site.until_components("shop", ready).await;
    let error = if words.is_empty() {
        ("False", "NoError")
    } else {
        ("True", "ErrorSeen")
    };
    assert_error(&application, error, words);
    // An unknown kind leaves the readiness as it is counted.
    match ready {
        "1/1" => assert_ready(&application, ("True", "ComponentsReady", "all components ready")),
        _ => assert_ready(
            &application,
            ("False", "ComponentsNotReady", "1 components not ready: Deployment/web"),
        ),
    }
}
