//! An API server that fails at each call in turn: the right condition or another try, nothing written twice, and no other
//! Application is held up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::http::Method;
use rstest::rstest;
use serde_json::json;

use super::{
    APPLICATION, SOON, Site, assert_error, assert_no_panic, assert_ready, count, is_owner_patch, is_status_patch, shop,
};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;

/// What refuses, and what may pass by itself.
const CODES: [u16; 5] = [403, 409, 410, 429, 500];
/// How many requests in a row fail, where exactly the next is to be the last.
const TIMES: usize = 4;
const UNKNOWN: &str = "failed to aggregate all components' statuses, check the Error condition for details";
const CONFIG_MAPS: &[(&str, &str)] = &[("", "ConfigMap")];

/// Portolan over a proxy, with an Application that has nothing to do with what fails.
struct Through {
    site: Site<'static>,
    proxy: FaultProxy,
    kubeconfig: std::path::PathBuf,
    bystanders: AtomicUsize,
}

impl Through {
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

    /// Gives the bystander another component, which has to be counted and owned as soon as ever.
    async fn bystander_goes_on(&self) {
        let number = self.bystanders.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("by-{number}");
        let started = Instant::now();
        self.site.apply("v1 Secret", &name, json!({})).await;
        self.site
            .until_components("bystander", &format!("{number}/{number}"))
            .await;
        self.site.until_owned("v1 Secret", &name, &["bystander"]).await;
        assert!(
            started.elapsed().as_secs() < 10,
            "it was held up for {:?}",
            started.elapsed()
        );
    }

    /// Spoils all requests that fit from now on.
    fn spoil(&self, code: u16, fits: impl Fn(&ApiRequest) -> bool + Send + 'static) {
        self.proxy.spoil(usize::MAX, ApiFault::Status(code), fits);
    }

    /// Waits until so many requests fit.
    async fn until_asked(&self, times: usize, fits: impl Fn(&ApiRequest) -> bool) {
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
async fn applications_that_can_t_be_listed_are_seen_as_soon_as_they_can(#[values(403, 409, 410, 429, 500)] code: u16) {
    let through = Through::new().await;
    through.spoil(code, |request| is_list(request, "applications"));
    let portolan = through.portolan().await;
    through.until_asked(2, |request| is_list(request, "applications")).await;
    through.proxy.repair();
    through.bystander_goes_on().await;
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applications_that_can_t_be_watched_are_followed_as_soon_as_they_can() {
    let through = Through::new().await;
    let portolan = through.portolan().await;
    for code in CODES {
        through.bystander_goes_on().await;
        let before = count(&through.proxy, |request| is_watch(request, "applications"));
        through.spoil(code, |request| is_watch(request, "applications"));
        through.proxy.gate.cut();
        through
            .until_asked(before + 2, |request| is_watch(request, "applications"))
            .await;
        // What is known of Applications goes on being followed.
        through.bystander_goes_on().await;
        let name = format!("new-{code}");
        through.site.declare(&name, shop(CONFIG_MAPS, false)).await;
        through.proxy.repair();
        through.site.until_components(&name, "0/0").await;
    }
    assert_no_panic(&portolan);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_can_t_be_asked_for_are_told_and_known_as_soon_as_they_can(
    #[values(403, 409, 410, 429, 500)] code: u16,
) {
    let through = Through::new().await;
    let site = &through.site;
    let is_discovery = |request: &ApiRequest| request.path == "/api" || request.path == "/apis";
    through.spoil(code, is_discovery);
    site.declare("shop", shop(CONFIG_MAPS, false)).await;
    let portolan = through.portolan().await;
    let application = site.until_error("shop", "can't ask the API server for its kinds").await;
    assert_ready(&application, ("Unknown", "ComponentsReadyUnknown", UNKNOWN));
    through.proxy.repair();
    let application = site.until_error("shop", "").await;
    assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    through.bystander_goes_on().await;

    // What was known stays known, and what was not known is found later.
    through.spoil(code, is_discovery);
    let before = count(&through.proxy, is_discovery);
    let kind = site.define("Widget", "Namespaced").await;
    site.declare("widgets", shop(&[(&site.group(), "Widget")], false)).await;
    through.until_asked(before + 2, is_discovery).await;
    through.bystander_goes_on().await;
    through.proxy.repair();
    site.apply(&kind, "one", json!({ "metadata": { "labels": { "app": "shop" } } }))
        .await;
    site.until_components("widgets", "1/1").await;
    site.undefine(&kind).await;
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_are_asked_for_without_an_answer_hold_up_none_that_is_known() {
    let through = Through::new().await;
    let site = &through.site;
    let portolan = through.portolan().await;
    through.bystander_goes_on().await;
    let is_discovery = |request: &ApiRequest| request.path == "/api" || request.path == "/apis";
    let before = count(&through.proxy, is_discovery);
    through.proxy.spoil(usize::MAX, ApiFault::Stalled, is_discovery);
    site.declare("widgets", shop(&[(&site.group(), "Widget")], false)).await;
    through.until_asked(before + 1, is_discovery).await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    let started = Instant::now();
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_components("shop", "1/1").await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    through.bystander_goes_on().await;
    assert!(
        started.elapsed().as_secs() < 10,
        "it was held up for {:?}",
        started.elapsed()
    );
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn components_that_can_t_be_listed_are_told_and_counted_as_soon_as_they_can() {
    let through = Through::new().await;
    let site = &through.site;
    let portolan = through.portolan().await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    for code in CODES {
        through.spoil(code, |request| is_list(request, "configmaps"));
        site.declare("shop", shop(CONFIG_MAPS, true)).await;
        let application = site.until_error("shop", "can't list configmaps in namespace").await;
        assert_ready(&application, ("Unknown", "ComponentsReadyUnknown", UNKNOWN));
        through.bystander_goes_on().await;
        through.proxy.repair();
        let application = site.until_components("shop", "1/1").await;
        assert_error(&application, ("False", "NoError"), "");
        assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
        // Nobody looks at the kind any more, so that the next round begins with a list.
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
async fn components_that_can_t_be_watched_are_counted_as_they_are_listed() {
    let through = Through::new().await;
    let site = &through.site;
    let portolan = through.portolan().await;
    site.declare("shop", shop(CONFIG_MAPS, false)).await;
    for (round, code) in CODES.into_iter().enumerate() {
        let total = format!("{0}/{0}", round + 1);
        site.until_error("shop", "").await;
        let before = count(&through.proxy, |request| is_watch(request, "configmaps"));
        through.spoil(code, |request| is_watch(request, "configmaps"));
        through.proxy.gate.cut();
        through
            .until_asked(before + 2, |request| is_watch(request, "configmaps"))
            .await;
        site.config_map(&format!("web-{round}"), &json!({ "app": "shop" }))
            .await;
        if code == 403 {
            let application = site.until_error("shop", "can't watch configmaps in namespace").await;
            assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
            site.until_components("shop", &total).await;
        }
        through.bystander_goes_on().await;
        let opened = count(&through.proxy, |request| is_watch(request, "configmaps")) - before;
        assert!(opened < 40, "{opened} watches of ConfigMaps were opened");
        through.proxy.repair();
        let application = site.until_components("shop", &total).await;
        assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
    }
    assert_no_panic(&portolan);
}

/// As requests get lost that the client hands to a connection which is being closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_are_never_answered_are_opened_again_soon() {
    let through = Through::new().await;
    let site = &through.site;
    let portolan = through.portolan().await;
    through.bystander_goes_on().await;
    for plural in ["secrets", "applications"] {
        let before = count(&through.proxy, |request| is_watch(request, plural));
        let fits = move |request: &ApiRequest| is_watch(request, plural);
        through.proxy.spoil(1, ApiFault::Stalled, fits);
        through.proxy.gate.cut();
        through.until_asked(before + 1, fits).await;
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

/// Reads and writes of one component's owners.
#[rstest]
#[case::read(Method::GET)]
#[case::write(Method::PATCH)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_that_can_t_be_changed_are_changed_once_when_they_can(#[case] method: Method) {
    let through = Through::new().await;
    let site = &through.site;
    let portolan = through.portolan().await;
    for code in CODES {
        let (name, labels) = (format!("web-{code}"), json!({ "app": format!("shop-{code}") }));
        let path = format!("/configmaps/{name}");
        let fits = {
            let (path, method) = (path.clone(), method.clone());
            move |request: &ApiRequest| request.path.ends_with(&path) && request.method == method
        };
        through.proxy.spoil(TIMES, ApiFault::Status(code), fits.clone());
        let is_write =
            move |request: &ApiRequest| is_owner_patch(request, "configmaps") && request.path.ends_with(&path);
        if method == Method::GET {
            // An object is read only where it is not as it is known.
            through.proxy.spoil(TIMES, ApiFault::Status(409), is_write.clone());
        }
        site.config_map(&name, &labels).await;
        site.config_map(&format!("well-{code}"), &labels).await;
        let mut spec = shop(CONFIG_MAPS, true);
        spec["selector"]["matchLabels"] = labels;
        let application = format!("shop-{code}");
        site.declare(&application, spec).await;
        if matches!(code, 403 | 410) {
            let words = format!("can't adopt ConfigMap/{name}: a fault that the test asked for");
            let application = site.until_error(&application, &words).await;
            assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
        }
        // One that fails is not in the way of the others.
        site.until_owned("v1 ConfigMap", &format!("well-{code}"), &[&application])
            .await;
        through.bystander_goes_on().await;
        site.until_owned("v1 ConfigMap", &name, &[&application]).await;
        let application = site.until_error(&application, "").await;
        assert_ready(&application, ("True", "ComponentsReady", "all components ready"));
        assert_eq!(
            count(&through.proxy, is_write),
            TIMES + 1,
            "writes of the owners, {code}"
        );
    }
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_can_t_be_written_is_written_once_when_it_can() {
    let through = Through::new().await;
    let site = &through.site;
    let portolan = through.portolan().await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    for code in CODES {
        let name = format!("shop-{code}");
        let fits = {
            let name = name.clone();
            move |request: &ApiRequest| is_status_patch(request, &name)
        };
        through.proxy.spoil(TIMES, ApiFault::Status(code), fits.clone());
        site.declare(&name, shop(CONFIG_MAPS, false)).await;
        through.until_asked(2, &fits).await;
        through.bystander_goes_on().await;
        site.until_components(&name, "1/1").await;
        // What comes of it is no reason to write again: seen by something that comes later.
        through.bystander_goes_on().await;
        assert_eq!(count(&through.proxy, &fits), TIMES + 1, "writes of the status, {code}");
        site.delete(APPLICATION, &name).await;
    }
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_whose_answer_is_lost_is_not_in_its_own_way() {
    let through = Through::new().await;
    let site = &through.site;
    let portolan = through.portolan().await;
    site.config_map("web", &json!({ "app": "shop" })).await;
    through
        .proxy
        .spoil(2, ApiFault::AnswerLost, |request| is_status_patch(request, "shop"));
    through
        .proxy
        .spoil(2, ApiFault::AnswerLost, |request| is_owner_patch(request, "configmaps"));
    site.declare("shop", shop(CONFIG_MAPS, true)).await;
    site.until_components("shop", "1/1").await;
    site.until_owned("v1 ConfigMap", "web", &["shop"]).await;
    through.bystander_goes_on().await;
    assert_eq!(
        count(&through.proxy, |request| is_owner_patch(request, "configmaps")),
        1
    );
    assert_no_panic(&portolan);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_can_t_be_posted_hold_nothing_up_and_come_again_later() {
    let through = Through::new().await;
    let site = &through.site;
    let portolan = through.portolan().await;
    let is_event = |request: &ApiRequest| request.method == Method::POST && request.path.ends_with("/events");
    for code in CODES {
        let name = format!("shop-{code}");
        let labels = json!({ "app": name });
        let mut spec = shop(&[("apps", "Deployment")], false);
        spec["selector"]["matchLabels"] = labels.clone();
        through.spoil(code, is_event);
        site.declare(&name, spec).await;
        site.until_components(&name, "0/0").await;
        portolan.line_with(&format!("name=\"{name}\""), SOON).await;
        through.bystander_goes_on().await;
        through.proxy.repair();
        // The next change of readiness is told.
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
