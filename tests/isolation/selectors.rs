//! Applications whose selectors take much time delay neither probes nor other tenants.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::BESIDE;
use crate::applications::{APPLICATION, Site};

/// Values of a selector near the size limit of the API server.
const VALUES: usize = 100_000;
/// The most values of a selector.
const MAX_VALUES: usize = 1_000;
const CONFIG_MAPS: usize = 1_500;
const HOSTILE: usize = 8;

fn application(namespace: &str, selector: &Value) -> Value {
    json!({
        "metadata": { "labels": { "story": namespace } },
        "spec": { "componentKinds": [{ "group": "", "kind": "ConfigMap" }], "selector": selector },
    })
}

pub fn not_in(values: usize) -> Value {
    let values: Vec<_> = (0..values).map(|number| number.to_string()).collect();
    json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": values }] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_with_many_values_delay_no_other_namespace() {
    let (hostile, honest) = (Site::new().await, Site::new().await);
    hostile.config_maps(0..CONFIG_MAPS).await;
    let story = format!("--watch-label-selector=story={}", hostile.namespace);
    let kubeconfig = hostile.control_plane.kubeconfig();
    let portolan = hostile.portolan_with_one_thread(&kubeconfig, &[&story]).await;
    for number in 0..HOSTILE {
        let values = if number % 2 == 0 { VALUES } else { MAX_VALUES };
        let object = application(&hostile.namespace, &not_in(values));
        hostile.apply(APPLICATION, &format!("app-{number}"), object).await;
    }

    let declared = Instant::now();
    honest.config_map("web", &json!({ "app": "shop" })).await;
    let selector = json!({ "matchLabels": { "app": "shop" } });
    let object = application(&hostile.namespace, &selector);
    honest.apply(APPLICATION, "shop", object).await;
    honest.until_components("shop", "1/1").await;
    let elapsed = declared.elapsed();
    assert!(elapsed < BESIDE, "{elapsed:?}");

    for number in 0..HOSTILE {
        let name = format!("app-{number}");
        if number % 2 == 0 {
            let message = format!("invalid selector: {VALUES} values, more than {MAX_VALUES}");
            hostile.until_error(&name, &message).await;
        } else {
            // The namespace has a ConfigMap of Kubernetes' own.
            let all = CONFIG_MAPS + 1;
            hostile.until_components(&name, &format!("{all}/{all}")).await;
        }
    }
    let (polls, long) = portolan.polls().await;
    assert!(polls > 0.0);
    println!("an honest Application was ready after {elapsed:?}; {long} of {polls} polls took more than 10 ms");
}
