//! Applications that fail delay no others.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::owning::guard;
use super::{CONFIG_MAPS, Site, assert_error, assert_no_panic, assert_ready, selecting, shop};

/// An honest Application is Ready within this time although others fail.
const IN_TIME: Duration = Duration::from_secs(10);

async fn assert_honest_application_is_reconciled(site: &Site<'_>) {
    let started = Instant::now();
    let mut spec = shop(CONFIG_MAPS, true);
    spec["selector"]["matchLabels"] = json!({ "app": "honest" });
    site.config_map("honest", &json!({ "app": "honest" })).await;
    site.declare("honest", spec).await;
    let application = site.until_components("honest", "1/1").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    site.until_owned("v1 ConfigMap", "honest", &["honest"]).await;
    assert!(started.elapsed() < IN_TIME, "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_applications_whose_adoption_fails_delay_no_other() {
    let site = Site::new().await;
    for number in 0..20 {
        site.config_map(&format!("guarded-{number}"), &json!({ "app": "shop" }))
            .await;
    }
    guard(&site, "guarded-0", "guarded").await;
    let portolan = site.portolan(&["--sync-period=1"]).await;
    for number in 0..8 {
        site.declare(&format!("shop-{number}"), shop(CONFIG_MAPS, true)).await;
    }
    for number in 0..8 {
        let name = format!("shop-{number}");
        let words = "failed to set owner reference on ConfigMap/guarded-";
        let application = site.until_error(&name, words).await;
        assert_error(&application, ("True", "ErrorSeen"), "object is guarded");
        site.until_components(&name, "20/20").await;
    }
    assert_honest_application_is_reconciled(&site).await;
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eleven_invalid_selectors_delay_no_other() {
    let expression = |key: &str, operator: &str, values: Value| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
    let label = |key: &str, value: &str| json!({ "matchLabels": { key: value } });
    let selectors = [
        expression("app", "Equals", json!(["shop"])),
        expression("app", "in", json!(["shop"])),
        expression("app", "In", json!([])),
        expression("app", "NotIn", json!([])),
        expression("app", "Exists", json!(["shop"])),
        expression("app", "DoesNotExist", json!(["shop"])),
        expression("app", "In", json!(["not valid"])),
        expression("", "Exists", json!([])),
        label("not valid", "shop"),
        label("app", "-shop"),
        label("Example.com/app", "shop"),
    ];
    let site = Site::new().await;
    let portolan = site.portolan(&["--sync-period=1"]).await;
    for (number, selector) in selectors.iter().enumerate() {
        let mut spec = selecting(CONFIG_MAPS, selector.clone());
        spec["addOwnerRef"] = true.into();
        site.declare(&format!("invalid-{number}"), spec).await;
    }
    for number in 0..selectors.len() {
        let application = site.until_error(&format!("invalid-{number}"), "invalid selector").await;
        assert_eq!(super::condition(&application, "Ready").0, "Unknown");
        assert!(super::components(&application).is_empty());
    }
    assert_honest_application_is_reconciled(&site).await;
    site.until_owned("v1 ConfigMap", "honest", &["honest"]).await;
    assert_no_panic(&portolan);
}
