//! Discovery of single kinds on demand, also of kinds without a subscription.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{ServedKinds, Shared, WatchManager};
use crate::runtime::watch::GroupKind;
use crate::runtime::watch::discovery::{Resource, Served};

/// Time limit of waiting for discovery.
const DEADLINE: Duration = Duration::from_secs(10);
/// Minimum time between two discoveries because of unknown kinds, which tenants may name at will.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("{0}")]
    Discovery(String),
    #[error("no result of API discovery within {}s", DEADLINE.as_secs())]
    Timeout,
    #[error("API group {0} is unavailable: its API server does not respond")]
    Group(String),
}

/// Requests for a discovery. They are numbered from 1; a discovery serves all requests made before it started.
#[derive(Default)]
pub(super) struct DiscoveryRequests {
    last: Mutex<Option<(u64, Instant)>>,
    /// The last request that is served.
    served: watch::Sender<u64>,
}

impl DiscoveryRequests {
    pub(super) fn last(&self) -> u64 {
        self.last.lock().map_or(0, |(number, _)| number)
    }

    pub(super) fn finish(&self, number: u64) {
        self.served.send_replace(number);
    }

    /// Returns the number of a pending or new request, and true if it is new; none if the last request was too recent.
    fn add(&self) -> Option<(u64, bool)> {
        let mut last = self.last.lock();
        match *last {
            Some((number, _)) if *self.served.borrow() < number => Some((number, false)),
            Some((_, at)) if at.elapsed() < MIN_INTERVAL => None,
            _ => {
                let number = last.map_or(1, |(number, _)| number.saturating_add(1));
                *last = Some((number, Instant::now()));
                Some((number, true))
            }
        }
    }
}

impl<U, K> Shared<U, K> {
    /// Returns what `find` finds; `group` may have more kinds than are known.
    fn find_served(
        &self,
        group: &str,
        find: impl FnOnce(&Served) -> Option<&Resource>,
    ) -> Result<Option<Resource>, ResolveError> {
        match &self.kinds.read().served {
            ServedKinds::Pending => Err(ResolveError::Timeout),
            ServedKinds::Failed(error) => Err(ResolveError::Discovery(error.clone())),
            ServedKinds::Known(served) => match find(served) {
                None if !served.is_complete(group) => Err(ResolveError::Group(group.to_owned())),
                resource => Ok(resource.cloned()),
            },
        }
    }
}

impl<U, K> WatchManager<U, K> {
    /// Returns none if the API server does not serve the kind. An unknown kind is discovered again, at most every 10
    /// seconds for all callers. Needs [`WatchManager::run`]. Fails if the group of the kind could not be asked.
    pub async fn resolve(&self, kind: &GroupKind) -> Result<Option<Resource>, ResolveError> {
        self.find(&kind.group, |served| served.get(kind)).await
    }

    /// As [`WatchManager::resolve`]. `name` is singular or plural; an empty group means any.
    pub async fn resolve_name(&self, group: &str, name: &str) -> Result<Option<Resource>, ResolveError> {
        self.find(group, |served| served.find(group, name)).await
    }

    async fn find(
        &self,
        group: &str,
        find: impl Fn(&Served) -> Option<&Resource>,
    ) -> Result<Option<Resource>, ResolveError> {
        let shared = &self.shared;
        if let resolved @ Ok(Some(_)) = shared.find_served(group, &find) {
            return resolved;
        }
        let mut served = shared.requests.served.subscribe();
        let Some((request, is_new)) = shared.requests.add() else {
            return shared.find_served(group, &find);
        };
        if is_new {
            shared.changed.notify_one();
        }
        match timeout(DEADLINE, served.wait_for(|served| *served >= request)).await {
            Ok(_) => shared.find_served(group, &find),
            Err(_) => Err(ResolveError::Timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{pending, ready};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

    use futures::{FutureExt, StreamExt, stream};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tokio::time::advance;

    use super::*;
    use crate::runtime::watch::{KindFilter, MAX_WATCHES, WatchSettings};

    /// An API server with Widgets that are served or not, and the number of discoveries.
    struct Fixture {
        watches: WatchManager<(), ()>,
        /// Status code of discovery.
        code: Arc<AtomicU16>,
        is_served: Arc<AtomicUsize>,
        /// The aggregated API server of Widgets does not respond, and the API server has forgotten its answer.
        is_stale: Arc<AtomicBool>,
        discoveries: Arc<AtomicUsize>,
    }

    impl Fixture {
        fn new() -> Self {
            let is_stale = Arc::<AtomicBool>::default();
            let stale = Arc::clone(&is_stale);
            let code = Arc::new(AtomicU16::new(200));
            let (is_served, discoveries) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
            let (answer, served, count) = (Arc::clone(&code), Arc::clone(&is_served), Arc::clone(&discoveries));
            let server = tower::service_fn(move |request: http::Request<Body>| {
                let widgets = json!({
                    "resource": "widgets", "scope": "Cluster", "verbs": ["list", "watch"],
                    "responseKind": { "group": "example.com", "version": "v1", "kind": "Widget" },
                });
                let version = if stale.load(Ordering::Relaxed) {
                    json!({ "version": "v1", "freshness": "Stale" })
                } else {
                    json!({ "version": "v1", "resources": [widgets], "freshness": "Current" })
                };
                let group = json!({ "metadata": { "name": "example.com" }, "versions": [version] });
                let items = match request.uri().path() {
                    "/api" => vec![json!({ "metadata": { "name": "" }, "versions": [] })],
                    "/apis" => {
                        count.fetch_add(1, Ordering::Relaxed);
                        vec![group; served.load(Ordering::Relaxed)]
                    }
                    _ => return pending().left_future(),
                };
                let list =
                    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items });
                let response = http::Response::builder().status(answer.load(Ordering::Relaxed));
                let response = response.body(Body::from(list.to_string().into_bytes())).unwrap();
                ready(Ok::<_, Infallible>(response)).right_future()
            });
            let settings = WatchSettings {
                sync_period: Duration::from_secs(60),
                kinds: KindFilter::all(),
                relist_period: None,
                linger: Duration::ZERO,
                prefers_cluster_wide: true,
                max_watches: MAX_WATCHES,
            };
            let open = |_, _: &_, _: &_, _: &_| stream::pending().boxed();
            let watches = WatchManager::new(Client::new(server, "default"), settings, open, |_, _| {});
            tokio::spawn(watches.clone().run());
            Self {
                watches,
                code,
                is_served,
                is_stale,
                discoveries,
            }
        }

        async fn resolve(&self) -> Result<Option<String>, ResolveError> {
            let resource = self.watches.resolve(&GroupKind::new("example.com", "Widget")).await?;
            Ok(resource.map(|resource| resource.name()))
        }

        fn discoveries(&self) -> usize {
            self.discoveries.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_without_a_subscription_is_discovered_once() {
        let fixture = Fixture::new();
        fixture.is_served.store(1, Ordering::Relaxed);
        for _ in 0..3 {
            assert_eq!(fixture.resolve().await, Ok(Some("widgets.example.com".to_owned())));
            advance(2 * MIN_INTERVAL).await;
        }
        assert_eq!(fixture.discoveries(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_kind_is_discovered_again_at_most_once_in_ten_seconds() {
        let fixture = Fixture::new();
        let both = futures::join!(fixture.resolve(), fixture.resolve());
        assert_eq!(both, (Ok(None), Ok(None)));
        assert_eq!(fixture.discoveries(), 1, "both wait for the same discovery");
        fixture.is_served.store(1, Ordering::Relaxed);
        assert_eq!(fixture.resolve().await, Ok(None));
        assert_eq!(fixture.discoveries(), 1);
        advance(MIN_INTERVAL).await;
        assert_eq!(fixture.resolve().await, Ok(Some("widgets.example.com".to_owned())));
        assert_eq!(fixture.discoveries(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_discovery_is_an_error_and_is_retried() {
        let fixture = Fixture::new();
        fixture.code.store(403, Ordering::Relaxed);
        assert!(matches!(fixture.resolve().await, Err(ResolveError::Discovery(_))));
        fixture.code.store(200, Ordering::Relaxed);
        fixture.is_served.store(1, Ordering::Relaxed);
        tokio::time::sleep(MIN_INTERVAL).await;
        assert_eq!(fixture.resolve().await, Ok(Some("widgets.example.com".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_of_a_group_that_does_not_respond_is_not_missing() {
        let fixture = Fixture::new();
        fixture.is_served.store(1, Ordering::Relaxed);
        fixture.is_stale.store(true, Ordering::Relaxed);
        let group = "example.com".to_owned();
        assert_eq!(fixture.resolve().await, Err(ResolveError::Group(group)));
        fixture.is_stale.store(false, Ordering::Relaxed);
        advance(MIN_INTERVAL).await;
        assert_eq!(fixture.resolve().await, Ok(Some("widgets.example.com".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_known_kind_stays_until_its_group_answers_without_it() {
        let fixture = Fixture::new();
        fixture.is_served.store(1, Ordering::Relaxed);
        let widgets = Ok(Some("widgets.example.com".to_owned()));
        assert_eq!(fixture.resolve().await, widgets);
        // Asks for another kind, which is discovered again.
        let discover = async || {
            advance(MIN_INTERVAL).await;
            let before = fixture.discoveries();
            let _ = fixture.watches.resolve(&GroupKind::new("example.com", "Gadget")).await;
            assert_eq!(fixture.discoveries(), before + 1);
        };
        fixture.is_stale.store(true, Ordering::Relaxed);
        discover().await;
        assert_eq!(fixture.resolve().await, widgets);
        fixture.is_stale.store(false, Ordering::Relaxed);
        fixture.is_served.store(0, Ordering::Relaxed);
        discover().await;
        assert_eq!(fixture.resolve().await, Ok(None));
    }
}
