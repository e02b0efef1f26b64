//! A list of objects at the size limit of the API server.

use futures::{StreamExt, stream};
use serde_json::json;

use super::{Site, assert_no_panic, shop};
use crate::support::portolan::peak_memory;

/// Objects of 1 MiB; a page of all of them would be in memory twice.
const OBJECTS: usize = 100;
/// Additional memory allowed, in MiB: four responses of 16 MiB, each in memory twice. The whole list has 100 MiB, and
/// would be in memory twice and decoded.
const MORE: u64 = 128;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_large_objects_is_read_in_small_pages() {
    let site = Site::new().await;
    let kind = site.define("Widget", "Namespaced").await;
    let filling = "x".repeat(1 << 20);
    let make = |number: usize| {
        let object = json!({ "metadata": { "labels": { "app": "shop" } }, "spec": { "filling": filling } });
        let (site, kind) = (&site, &kind);
        async move { site.apply(kind, &format!("large-{number}"), object).await }
    };
    stream::iter(0..OBJECTS)
        .map(make)
        .buffer_unordered(4)
        .for_each(async |_| {})
        .await;
    let portolan = site.portolan(&[]).await.with_probes();
    let before = peak_memory(&portolan);
    site.declare("shop", shop(&[(&site.group(), "Widget")], false)).await;
    site.until_components("shop", &format!("{OBJECTS}/{OBJECTS}")).await;
    let after = peak_memory(&portolan);
    assert!(after < before + MORE, "{after} MiB after {before} MiB");
    assert_no_panic(&portolan);
    site.undefine(&kind).await;
}
