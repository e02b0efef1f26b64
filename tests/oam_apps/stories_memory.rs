//! A namespace beyond its share of memory loses speed and nothing else.

use serde_json::{Value, json};

use super::apps::{objects, spec};
use super::site::Site;
use super::{APPLICATION, CONFIG_MAP, DEFINITION};

const APPS: usize = 8;
/// Size of a ConfigMap: all together exceed the share of a namespace, which is three
/// sixteenths of the memory budget.
const BYTES: usize = 850 << 10;
const BUDGET: f64 = 32.0 * 1024.0 * 1024.0;
const CACHES: f64 = BUDGET * 3.0 / 8.0;

fn config_map(number: usize) -> String {
    format!("large-{number}")
}

/// Returns digits that hardly compress.
fn digits(number: usize) -> String {
    let digit = |index: usize| (index + number).wrapping_mul(2_654_435_761) >> 7 & 0xffff_ffff;
    (0..BYTES / 8).map(|index| format!("{:08x}", digit(index))).collect()
}

/// Returns an Application with a large ConfigMap.
fn large(number: usize, value: &str) -> Value {
    let text = digits(number);
    let name = config_map(number);
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": { "key": value, "text": text },
    });
    spec(&[objects(&name, &[object])])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_beyond_the_share_of_their_namespace_are_kept_changed_and_collected() {
    let site = Site::new().await;
    let portolan = site.portolan(&["--memory-budget=32Mi"]).await.with_probes();
    for number in 0..APPS {
        site.declare(&format!("app-{number}"), large(number, "one")).await;
    }
    for number in 0..APPS {
        site.until_running(&format!("app-{number}")).await;
    }
    let labels = [("resource", "oam_caches")];
    let metrics = portolan.metrics().await;
    assert_eq!(metrics.sum("portolan_budget_limit", &labels), Some(CACHES));
    let used = metrics.sum("portolan_budget_used", &labels).unwrap();
    assert!((BUDGET / 16.0..CACHES).contains(&used), "{used}");

    let has = |value: &'static str| move |object: &Value| object["data"]["key"] == value;
    for number in 0..APPS {
        site.edit(CONFIG_MAP, &config_map(number), json!({ "data": { "key": "drift" } }))
            .await;
    }
    for number in 0..APPS {
        site.until(CONFIG_MAP, &config_map(number), "restored", has("one"))
            .await;
    }
    site.declare("app-7", large(7, "two")).await;
    site.until(CONFIG_MAP, &config_map(7), "changed", has("two")).await;
    for number in 0..APPS {
        site.delete(APPLICATION, &format!("app-{number}")).await;
    }
    for number in 0..APPS {
        site.until_gone(CONFIG_MAP, &config_map(number)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_beyond_the_share_of_their_namespace_are_read_when_they_are_used() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--memory-budget=32Mi"]).await;
    let template =
        "output: {apiVersion: \"v1\", kind: \"ConfigMap\", data: key: parameter.value}\nparameter: {value: string}\n";
    for number in 0..APPS {
        let definition = json!({ "spec": {
            "workload": { "type": "autodetects.core.oam.dev" },
            "schematic": { "cue": { "template": template } },
            // Kept as text, as long as there is a share.
            "extension": { "list": vec![json!({ "a": 0 }); 500], "text": digits(number) },
        } });
        site.apply(DEFINITION, &format!("large-{number}"), definition).await;
    }
    for number in 0..APPS {
        let type_ = format!("large-{number}");
        let component = json!({ "name": config_map(number), "type": type_, "properties": { "value": "one" } });
        site.declare(&format!("app-{number}"), spec(&[component])).await;
    }
    for number in 0..APPS {
        site.until_running(&format!("app-{number}")).await;
        let object = site.get(CONFIG_MAP, &config_map(number)).await.unwrap();
        assert_eq!(object["data"]["key"], "one");
    }
}
