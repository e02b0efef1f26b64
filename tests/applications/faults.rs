//! Failures of each API request in turn: the condition is correct or the request is retried, nothing is written twice,
//! and no other Application is blocked.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::http::Method;
use futures::future::{join, join_all};
use rstest::rstest;
use serde_json::json;

use super::{
    APPLICATION, CONFIG_MAPS, SOON, Site, assert_error, assert_no_panic, assert_ready, count, is_owner_patch,
    is_status_patch, shop,
};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;

/// Permanent and transient failures.
const CODES: [u16; 5] = [403, 409, 410, 429, 500];
/// Number of consecutive failures where the next request must be the last.
const TIMES: usize = 4;
const UNKNOWN: &str = "failed to aggregate all components' statuses, check the Error condition for details";

/// Portolan behind a proxy, with an Application that is not affected by the failures.
struct Fixture {
    site: Site<'static>,
    proxy: FaultProxy,
    kubeconfig: std::path::PathBuf,
    bystanders: AtomicUsize,
}

impl Fixture {
    async fn new() -> Self {
        let site = Site::new().await;
        let (proxy, kubeconfig) = site.proxy().await;
        let by = json!({ "componentKinds": [{ "group": "", "kind": "Secret" }], "selector": {}, "addOwnerRef": true });
        site.declare("bystander", by).await;
        let bystanders = AtomicUsize::new(0);
        Self {
            site,
            proxy,
            kubeconfig,
            bystanders,
        }
    }

    async fn portolan(&self) -> Portolan {
        self.site.portolan_with(&self.kubeconfig, &["--sync-period=1"]).await
    }

    /// Adds a component to the bystander, which must be counted and owned without delay.
    async fn assert_bystander_is_reconciled(&self) {
        let number = self.bystanders.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("by-{number}");
        let started = Instant::now();
        self.site.apply("v1 Secret", &name, json!({})).await;
        self.site
            .until_components("bystander", &format!("{number}/{number}"))
            .await;
        self.site.until_owned("v1 Secret", &name, &["bystander"]).await;
        assert!(started.elapsed().as_secs() < 10, "delayed by {:?}", started.elapsed());
    }

    /// Fails all matching requests from now on.
    fn inject(&self, code: u16, fits: impl Fn(&ApiRequest) -> bool + Send + 'static) {
        self.proxy.inject(usize::MAX, ApiFault::Status(code), fits);
    }

    /// Waits until `times` requests match.
    async fn until_requested(&self, times: usize, fits: impl Fn(&ApiRequest) -> bool) {
        eventually(SOON, &format!("{times} requests"), async || {
            let seen = count(&self.proxy, &fits);
            if seen >= times { Ok(()) } else { Err(format!("{seen}")) }
        })
        .await;
    }
}

fn is_list(request: &ApiRequest, plural: &str) -> bool {
    request.is_of(plural) && !request.is_watch()
}

fn is_watch(request: &ApiRequest, plural: &str) -> bool {
    request.is_of(plural) && request.is_watch()
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_list_of_applications_is_retried(#[values(403, 409, 410, 429, 500)] code: u16) {
    let fixture = Fixture::new().await;
    fixture.inject(code, |request| is_list(request, "applications"));
    let portolan = fixture.portolan().await;
    fixture
        .until_requested(2, |request| is_list(request, "applications"))
        .await;
    fixture.proxy.clear_faults();
    fixture.assert_bystander_is_reconciled().await;
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_watch_of_applications_is_retried() {
    let fixture = Fixture::new().await;
    let portolan = fixture.portolan().await;
    for code in CODES {
        fixture.assert_bystander_is_reconciled().await;
        let before = count(&fixture.proxy, |request| is_watch(request, "applications"));
        fixture.inject(code, |request| is_watch(request, "applications"));
        fixture.proxy.gate.disconnect();
        fixture
            .until_requested(before + 2, |request| is_watch(request, "applications"))
            .await;
        // Applications already known are still reconciled.
        fixture.assert_bystander_is_reconciled().await;
        let name = format!("new-{code}");
        fixture.site.declare(&name, shop(CONFIG_MAPS, false)).await;
        fixture.proxy.clear_faults();
        fixture.site.until_components(&name, "0/0").await;
    }
    assert_no_panic(&portolan);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_discovery_is_reported_and_retried(#[values(403, 409, 410, 429, 500)] code: u16) {
    let fixture = Fixture::new().await;
    let site = &fixture.site;
    let is_discovery = |request: &ApiRequest| request.path == "/api" || request.path == "/apis";
    fixture.inject(code, is_discovery);
    site.declare("shop", shop(CONFIG_MAPS, false)).await;
    let portolan = fixture.portolan().await;
    let application = site.until_error("shop", "API discovery failed").await;
    assert_ready(&application, ("Unknown", "ComponentsReadyUnknown", UNKNOWN));
    fixture.proxy.clear_faults();
    let application = site.until_error("shop", "").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    fixture.assert_bystander_is_reconciled().await;

    // Known kinds stay known; new ones are found later.
    fixture.inject(code, is_discovery);
    let before = count(&fixture.proxy, is_discovery);
    let kind = site.define("Widget", "Namespaced").await;
    site.declare("widgets", shop(&[(&site.group(), "Widget")], false)).await;
    fixture.until_requested(before + 2, is_discovery).await;
    fixture.assert_bystander_is_reconciled().await;
    fixture.proxy.clear_faults();
    site.apply(&kind, "one", json!({ "metadata": { "labels": { "app": "shop" } } }))
        .await;
    site.until_components("widgets", "1/1").await;
    site.undefine(&kind).await;
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_discovery_does_not_delay_known_kinds() {
    let fixture = Fixture::new().await;
    let site = &fixture.site;
    let portolan = fixture.portolan().await;
    fixture.assert_bystander_is_reconciled().await;
    let is_discovery = |request: &ApiRequest| request.path == "/api" || request.path == "/apis";
    let before = count(&fixture.proxy, is_discovery);
    fixture.proxy.inject(usize::MAX, ApiFault::Stalled, is_discovery);
    site.declare("widgets", shop(&[(&site.group(), "Widget")], false)).await;
    fixture.until_requested(before + 1, is_discovery).await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    let started = Instant::now();
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_components("shop", "1/1").await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    fixture.assert_bystander_is_reconciled().await;
    assert!(started.elapsed().as_secs() < 10, "delayed by {:?}", started.elapsed());
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_list_of_components_is_reported_and_retried() {
    let fixture = Fixture::new().await;
    let site = &fixture.site;
    let portolan = fixture.portolan().await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    for code in CODES {
        fixture.inject(code, |request| is_list(request, "configmaps"));
        site.declare("shop", shop(CONFIG_MAPS, true)).await;
        let application = site.until_error("shop", "failed to list configmaps in namespace").await;
        assert_ready(&application, ("Unknown", "ComponentsReadyUnknown", UNKNOWN));
        fixture.assert_bystander_is_reconciled().await;
        fixture.proxy.clear_faults();
        let application = site.until_components("shop", "1/1").await;
        assert_error(&application, ("False", "NoError"), "");
        assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
        // Nothing uses the kind any more, so the next iteration begins with a list.
        site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
        site.declare("shop", shop(&[], true)).await;
        site.until_owned("v1 ConfigMap", "web", &[]).await;
        site.until_components("shop", "0/0").await;
        eventually(SOON, "the watch to stop", async || {
            match portolan.metrics().await.sum("portolan_component_watches", &[]) {
                Some(1.0) => Ok(()),
                other => Err(format!("{other:?} watches")),
            }
        })
        .await;
    }
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_that_cannot_be_watched_are_counted_by_polling() {
    let fixture = Fixture::new().await;
    let site = &fixture.site;
    let portolan = fixture.portolan().await;
    site.declare("shop", shop(CONFIG_MAPS, false)).await;
    for (round, code) in CODES.into_iter().enumerate() {
        let total = format!("{0}/{0}", round + 1);
        site.until_error("shop", "").await;
        let before = count(&fixture.proxy, |request| is_watch(request, "configmaps"));
        fixture.inject(code, |request| is_watch(request, "configmaps"));
        fixture.proxy.gate.disconnect();
        fixture
            .until_requested(before + 2, |request| is_watch(request, "configmaps"))
            .await;
        site.config_map(&format!("web-{round}"), &json!({ "app": "shop" }))
            .await;
        if code == 403 {
            let application = site
                .until_error("shop", "failed to watch configmaps in namespace")
                .await;
            assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
            site.until_components("shop", &total).await;
        }
        fixture.assert_bystander_is_reconciled().await;
        let opened = count(&fixture.proxy, |request| is_watch(request, "configmaps")) - before;
        assert!(opened < 40, "{opened} watches of ConfigMaps were opened");
        fixture.proxy.clear_faults();
        let application = site.until_components("shop", &total).await;
        assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    }
    assert_no_panic(&portolan);
}

/// Requests get lost when the client sends them on a closing connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_without_a_response_are_reopened_soon() {
    let fixture = Fixture::new().await;
    let site = &fixture.site;
    let portolan = fixture.portolan().await;
    fixture.assert_bystander_is_reconciled().await;
    for plural in ["secrets", "applications"] {
        let before = count(&fixture.proxy, |request| is_watch(request, plural));
        let fits = move |request: &ApiRequest| is_watch(request, plural);
        fixture.proxy.inject(1, ApiFault::Stalled, fits);
        fixture.proxy.gate.disconnect();
        fixture.until_requested(before + 1, fits).await;
        match plural {
            "secrets" => {
                site.apply("v1 Secret", "by-2", json!({})).await;
                site.until_components("bystander", "2/2").await;
            }
            _ => {
                site.declare("shop", shop(CONFIG_MAPS, false)).await;
                site.until_components("shop", "0/0").await;
            }
        }
    }
    assert_no_panic(&portolan);
}

/// Reads and writes of one component's owner references.
#[rstest]
#[case::read(Method::GET)]
#[case::write(Method::PATCH)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_owner_changes_are_retried_and_made_once(#[case] method: Method) {
    let fixture = Fixture::new().await;
    let site = &fixture.site;
    let portolan = fixture.portolan().await;
    // Side by side, since each waits for its backoff.
    let cases = CODES.map(async |code| {
        let (name, labels) = (format!("web-{code}"), json!({ "app": format!("shop-{code}") }));
        let path = format!("/configmaps/{name}");
        let fits = {
            let (path, method) = (path.clone(), method.clone());
            move |request: &ApiRequest| request.path.ends_with(&path) && request.method == method
        };
        fixture.proxy.inject(TIMES, ApiFault::Status(code), fits.clone());
        let is_write =
            move |request: &ApiRequest| is_owner_patch(request, "configmaps") && request.path.ends_with(&path);
        if method == Method::GET {
            // An object is read only after a conflict.
            fixture.proxy.inject(TIMES, ApiFault::Status(409), is_write.clone());
        }
        site.config_map(&name, &labels).await;
        site.config_map(&format!("well-{code}"), &labels).await;
        let mut spec = shop(CONFIG_MAPS, true);
        spec["selector"]["matchLabels"] = labels;
        let application = format!("shop-{code}");
        site.declare(&application, spec).await;
        if matches!(code, 403 | 410) {
            let words = format!("failed to set owner reference on ConfigMap/{name}: injected by the test");
            let application = site.until_error(&application, &words).await;
            assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
        }
        // Failing objects do not block others.
        site.until_owned("v1 ConfigMap", &format!("well-{code}"), &[&application])
            .await;
        site.until_owned("v1 ConfigMap", &name, &[&application]).await;
        let application = site.until_error(&application, "").await;
        assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
        assert_eq!(
            count(&fixture.proxy, is_write),
            TIMES + 1,
            "writes of the owners, {code}"
        );
    });
    join(join_all(cases), fixture.assert_bystander_is_reconciled()).await;
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_status_write_is_retried_and_written_once() {
    let fixture = Fixture::new().await;
    let site = &fixture.site;
    let portolan = fixture.portolan().await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    let name_of = |code: u16| format!("shop-{code}");
    let fits = |code: u16| move |request: &ApiRequest| is_status_patch(request, &name_of(code));
    // Side by side, since each waits for its backoff.
    for code in CODES {
        fixture.proxy.inject(TIMES, ApiFault::Status(code), fits(code));
        site.declare(&name_of(code), shop(CONFIG_MAPS, false)).await;
    }
    for code in CODES {
        fixture.until_requested(2, fits(code)).await;
    }
    fixture.assert_bystander_is_reconciled().await;
    for code in CODES {
        site.until_components(&name_of(code), "1/1").await;
    }
    // No further writes until a later change is processed.
    fixture.assert_bystander_is_reconciled().await;
    for code in CODES {
        let writes = count(&fixture.proxy, fits(code));
        assert_eq!(writes, TIMES + 1, "writes of the status, {code}");
        site.delete(APPLICATION, &name_of(code)).await;
    }
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_write_with_a_lost_response_causes_no_conflict_loop() {
    let fixture = Fixture::new().await;
    let site = &fixture.site;
    let portolan = fixture.portolan().await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    fixture
        .proxy
        .inject(2, ApiFault::ResponseLost, |request| is_status_patch(request, "shop"));
    fixture.proxy.inject(2, ApiFault::ResponseLost, |request| {
        is_owner_patch(request, "configmaps")
    });
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_components("shop", "1/1").await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    fixture.assert_bystander_is_reconciled().await;
    // The retry repeats the patch unless the watch has delivered the change before.
    let patches = count(&fixture.proxy, |request| is_owner_patch(request, "configmaps"));
    assert!((1..=3).contains(&patches), "{patches}");
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_events_block_nothing_and_later_ones_are_published() {
    let fixture = Fixture::new().await;
    let site = &fixture.site;
    let portolan = fixture.portolan().await;
    let is_event = |request: &ApiRequest| request.method == Method::POST && request.path.ends_with("/events");
    for code in CODES {
        let name = format!("shop-{code}");
        let labels = json!({ "app": name });
        let mut spec = shop(&[("apps", "Deployment")], false);
        spec["selector"]["matchLabels"] = labels.clone();
        let before = count(&fixture.proxy, is_event);
        fixture.inject(code, is_event);
        site.declare(&name, spec).await;
        site.until_components(&name, "0/0").await;
        fixture.until_requested(before + 1, is_event).await;
        fixture.assert_bystander_is_reconciled().await;
        fixture.proxy.clear_faults();
        // The next change of readiness is reported.
        site.apply("apps/v1 Deployment", &name, super::deployment(&labels))
            .await;
        site.until_components(&name, "0/1").await;
        let what = "the second event, the first of which is lost";
        eventually(SOON, what, async || {
            let events = site.events(&name).await;
            if events.contains(&"ComponentsNotReady".to_owned()) {
                Ok(events)
            } else {
                Err(format!("{events:?}"))
            }
        })
        .await;
        assert!(!site.events(&name).await.contains(&"ComponentsReady".to_owned()));
    }
    assert_no_panic(&portolan);
}
