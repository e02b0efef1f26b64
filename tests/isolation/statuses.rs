//! An Application that leaves little room for its status.

use futures::{StreamExt, stream};
use serde_json::json;

use crate::applications::{APPLICATION, Site, assert_ready, count, is_status_patch};

/// Size of the spec in bytes; the API server stores objects of up to 1.5 MiB.
const SPEC: usize = 1_440_000;
/// Their names alone take more than what is left.
const COMPONENTS: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_are_cut_from_a_status_that_would_not_fit_beside_the_spec() {
    let site = Site::new().await;
    let labels = json!({ "app": "shop" });
    let names = (0..COMPONENTS).map(|number| format!("{number:0250}"));
    let made = stream::iter(names).map(|name| {
        let (site, labels) = (&site, &labels);
        async move { site.config_map(&name, labels).await }
    });
    made.buffer_unordered(16).for_each(async |_| {}).await;
    let (proxy, kubeconfig) = site.proxy().await;
    let here = ["--watch-namespace", &site.namespace];
    let _portolan = site.portolan_with_one_thread(&kubeconfig, &here).await;
    let object = json!({ "spec": {
        "componentKinds": [{ "group": "", "kind": "ConfigMap" }],
        "selector": { "matchLabels": labels },
        "descriptor": { "description": "x".repeat(SPEC) },
    } });
    site.apply(APPLICATION, "shop", object).await;

    let application = site
        .until_components("shop", &format!("{COMPONENTS}/{COMPONENTS}"))
        .await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    let listed = application.status.as_ref().map_or(0, |status| status.components.len());
    let message = format!(
        "{} components omitted from status: size limit reached",
        COMPONENTS - listed
    );
    let application = site.until_error("shop", &message).await;
    let bytes = serde_json::to_vec(&application).unwrap().len();
    assert!(
        0 < listed && listed < COMPONENTS && bytes > SPEC,
        "{listed} listed, {bytes} bytes"
    );
    let writes = count(&proxy, |request| is_status_patch(request, "shop"));
    assert!(writes <= 2, "{writes} writes");
}
