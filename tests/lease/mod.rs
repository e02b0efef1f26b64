//! Leader election of contenders for a Lease in a real API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::api::coordination::v1::{Lease as Stored, LeaseSpec};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use portolan::runtime::leader_election::{
    Candidacy, LeaderElectionMetrics, LeaderGuard, Lost, Marks, Timing, WriteFence,
};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiFault, FaultProxy};

/// Short, but long enough for a machine that runs other tests.
const TIMING: Timing = Timing {
    lease_duration: Duration::from_secs(5),
    renew_deadline: Duration::from_secs(4),
    retry_period: Duration::from_millis(400),
};
const NAME: &str = "portolan";

/// A Lease in its own namespace, and its contenders' access to the API server.
struct World {
    namespace: String,
    client: Client,
    leases: Api<Stored>,
    proxy: FaultProxy,
}

impl World {
    async fn new() -> Self {
        let control_plane = control_plane().await;
        let (namespace, client) = (control_plane.namespace().await, control_plane.client().await);
        Self {
            leases: Api::namespaced(client.clone(), &namespace),
            namespace,
            client,
            proxy: FaultProxy::in_front_of(control_plane).await,
        }
    }

    fn contender(&self, client: &Client, identity: &str) -> Contender {
        self.fenced_contender(client, identity, &WriteFence::default())
    }

    fn fenced_contender(&self, client: &Client, identity: &str, fence: &WriteFence) -> Contender {
        let marks = Marks {
            lease: NAME.to_owned(),
            ..Marks::default()
        };
        let shared = (fence, &LeaderElectionMetrics::default());
        Contender(Candidacy::new(
            client,
            &self.namespace,
            &marks,
            identity,
            TIMING,
            shared,
        ))
    }

    /// Acquires the Lease with direct access.
    async fn leader(&self, identity: &str) -> LeaderGuard {
        timeout(SOON, self.contender(&self.client, identity).acquire())
            .await
            .unwrap()
    }

    /// Same through the proxy.
    async fn proxied_leader(&self, identity: &str) -> LeaderGuard {
        let client = self.proxied().await;
        timeout(SOON, self.contender(&client, identity).acquire())
            .await
            .unwrap()
    }

    async fn proxied(&self) -> Client {
        let file = control_plane().await.kubeconfig_for(&self.proxy.url(), ADMIN_TOKEN);
        let kubeconfig = Kubeconfig::read_from(file).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        Client::try_from(config.unwrap()).unwrap()
    }

    async fn stored(&self) -> LeaseSpec {
        self.leases.get(NAME).await.unwrap().spec.unwrap()
    }

    /// Waits until the Lease has been renewed `times` times.
    async fn until_renewed(&self, times: usize) {
        for _ in 0..times {
            let before = self.stored().await.renew_time;
            eventually(SOON, "the Lease to be renewed", async || {
                let spec = self.stored().await;
                (spec.renew_time != before).then_some(())
            })
            .await;
        }
    }
}

/// A contender for a single Lease.
struct Contender(Candidacy);

impl Contender {
    fn is_known(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        self.0.is_known()
    }

    async fn acquire(mut self) -> LeaderGuard {
        self.0.acquire().await.1
    }
}

fn methods(proxy: &FaultProxy) -> Vec<Method> {
    proxy.requests().into_iter().map(|request| request.method).collect()
}

#[tokio::test]
async fn the_holder_is_known_as_long_as_the_api_server_answers() {
    let world = World::new().await;
    let _leader = world.leader("first").await;
    let contender = world.contender(&world.proxied().await, "second");
    let is_known = contender.is_known();
    assert!(!is_known());
    let waiting = tokio::spawn(contender.acquire());
    let until = async |expected: bool| {
        let what = format!("the holder to be known: {expected}");
        eventually(SOON, &what, async || (is_known() == expected).then_some(())).await;
    };
    until(true).await;
    world.proxy.inject(usize::MAX, ApiFault::Status(500), |_| true);
    until(false).await;
    world.proxy.clear_faults();
    until(true).await;
    waiting.abort();
}

#[tokio::test]
async fn one_of_two_contenders_leads_until_it_releases_the_lease() {
    let world = World::new().await;
    let mut first = world.leader("first").await;
    let taken = world.stored().await;
    assert_eq!(taken.holder_identity.as_deref(), Some("first"));
    assert_eq!(
        (taken.lease_duration_seconds, taken.lease_transitions),
        (Some(5), Some(0))
    );

    let second = tokio::spawn(world.contender(&world.client, "second").acquire());
    world.until_renewed(14).await; // longer than the lease duration
    assert!(!second.is_finished());
    assert!(timeout(Duration::ZERO, first.lost()).await.is_err());
    let renewed = world.stored().await;
    assert_eq!(
        (renewed.acquire_time, renewed.lease_transitions),
        (taken.acquire_time.clone(), Some(0))
    );

    let released = Instant::now();
    first.release().await;
    let second = second.await.unwrap();
    let waited = released.elapsed();
    assert!(
        waited < TIMING.lease_duration - TIMING.retry_period * 2,
        "a Lease without a holder is acquired at the next check: {waited:?}"
    );
    let taken_over = world.stored().await;
    assert_eq!(taken_over.holder_identity.as_deref(), Some("second"));
    assert_eq!(
        (taken_over.lease_duration_seconds, taken_over.lease_transitions),
        (Some(5), Some(1))
    );
    assert!(taken_over.acquire_time.unwrap().0 > taken.acquire_time.unwrap().0);

    second.release().await;
    let given_back = world.stored().await;
    assert_eq!(given_back.holder_identity.as_deref().unwrap_or_default(), "");
    assert_eq!(
        (given_back.lease_duration_seconds, given_back.lease_transitions),
        (Some(1), Some(1))
    );
}

#[tokio::test]
async fn after_a_crash_the_lease_is_taken_only_after_it_has_expired() {
    let world = World::new().await;
    let first = world.leader("first").await;
    let second = tokio::spawn(world.contender(&world.client, "second").acquire());
    world.until_renewed(2).await;
    drop(first);
    let crashed = Instant::now();
    second.await.unwrap().release().await;
    let waited = crashed.elapsed();
    // The last renewal was at most one period earlier.
    assert!(waited + TIMING.retry_period >= TIMING.lease_duration, "{waited:?}");
}

#[tokio::test]
async fn a_disconnected_leader_stops_before_another_one_leads() {
    let world = World::new().await;
    let mut first = world.proxied_leader("first").await;
    let second = tokio::spawn({
        let contender = world.contender(&world.client, "second");
        async move {
            let guard = contender.acquire().await;
            (Instant::now(), guard)
        }
    });
    world.until_renewed(2).await;
    world.proxy.gate.close().await;
    let lost = timeout(SOON, first.lost()).await.unwrap();
    let at = Instant::now();
    assert!(
        matches!(&lost, Lost::NotRenewed { lease, .. } if lease == NAME),
        "{lost}"
    );
    assert!(!second.is_finished());
    let (led, _held) = second.await.unwrap();
    assert!(led > at);
    // It stays lost when the connection is restored.
    world.proxy.gate.open().await;
    assert_eq!(first.lost().await, lost);
    assert_eq!(world.stored().await.holder_identity.as_deref(), Some("second"));
}

#[tokio::test]
async fn a_leader_without_responses_gives_up_in_time() {
    let world = World::new().await;
    let silent = Arc::new(AtomicBool::new(false));
    let (real, is_silent) = (world.client.clone(), Arc::clone(&silent));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (real, is_silent) = (real.clone(), Arc::clone(&is_silent));
        async move {
            if is_silent.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            real.send(request).await
        }
    });
    let client = Client::new(service, world.namespace.clone());
    let mut guard = timeout(SOON, world.contender(&client, "only").acquire()).await.unwrap();
    silent.store(true, Ordering::SeqCst);
    let silenced = Instant::now();
    let lost = timeout(SOON, guard.lost()).await.unwrap();
    assert!(lost.to_string().contains("no response"), "{lost}");
    let waited = silenced.elapsed();
    assert!(waited < TIMING.lease_duration, "{waited:?}");
}

#[tokio::test]
async fn a_lease_taken_by_another_process_is_lost_immediately() {
    let world = World::new().await;
    let mut guard = world.leader("first").await;
    let patch = Patch::Merge(json!({ "spec": { "holderIdentity": "usurper" } }));
    world.leases.patch(NAME, &PatchParams::default(), &patch).await.unwrap();
    let lost = timeout(TIMING.renew_deadline, guard.lost()).await.unwrap();
    let (lease, holder) = (NAME.to_owned(), "usurper".to_owned());
    assert_eq!(lost, Lost::Taken { lease, holder });
    // The new holder keeps the Lease.
    guard.release().await;
    assert_eq!(world.stored().await.holder_identity.as_deref(), Some("usurper"));
}

#[tokio::test]
async fn changes_of_the_lease_by_other_writers_are_harmless() {
    let world = World::new().await;
    let mut guard = world.leader("first").await;
    let annotation = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/by": "an administrator" } } }));
    world
        .leases
        .patch(NAME, &PatchParams::default(), &annotation)
        .await
        .unwrap();
    world.until_renewed(2).await;
    let annotated = world.leases.get(NAME).await.unwrap();
    assert_eq!(
        annotated.metadata.annotations.unwrap()["example.com/by"],
        "an administrator"
    );
    let labels = annotated.metadata.labels.unwrap();
    assert_eq!(labels["portolan.dev/lease"], NAME);
    assert_eq!(labels["app.kubernetes.io/managed-by"], "portolan");
    world.leases.delete(NAME, &DeleteParams::default()).await.unwrap();
    eventually(SOON, "the Lease to be recreated", async || {
        world.leases.get_opt(NAME).await.unwrap()
    })
    .await;
    // Creation times are whole seconds: the transitions tell two Leases of one second apart.
    assert_eq!(world.stored().await.lease_transitions, Some(1));
    world.until_renewed(2).await;
    assert!(timeout(Duration::ZERO, guard.lost()).await.is_err());
    guard.release().await;
    assert_eq!(world.stored().await.holder_identity.as_deref().unwrap_or_default(), "");
}

#[tokio::test]
async fn a_failure_of_any_request_does_not_lose_the_lease() {
    let world = World::new().await;
    let is_lease = |request: &crate::support::fault_proxy::ApiRequest| {
        request.path.ends_with("/leases") || request.path.ends_with(NAME)
    };
    for fault in [ApiFault::Status(500), ApiFault::ResponseLost] {
        // The first read, and the first write, which may have been applied.
        world.proxy.inject(1, fault.clone(), move |request| {
            is_lease(request) && request.method == Method::GET
        });
        world.proxy.inject(1, fault, move |request| {
            is_lease(request) && request.method == Method::POST
        });
    }
    let mut guard = world.proxied_leader("first").await;
    assert_eq!(world.stored().await.lease_transitions, Some(0));
    for fault in [403, 409, 429, 500, 503]
        .map(ApiFault::Status)
        .into_iter()
        .chain([ApiFault::Refused, ApiFault::ResponseLost])
    {
        // A renewal and the read that follows it.
        world.proxy.inject(1, fault.clone(), move |request| {
            is_lease(request) && request.method == Method::PUT
        });
        world.proxy.inject(1, fault, move |request| {
            is_lease(request) && request.method == Method::GET
        });
        world.until_renewed(3).await;
    }
    assert!(timeout(Duration::ZERO, guard.lost()).await.is_err());
    assert_eq!(world.stored().await.lease_transitions, Some(0));
    // A release also survives a failure, whether or not it was applied.
    let fault = ApiFault::Status(500);
    world.proxy.inject(1, fault, move |request| {
        is_lease(request) && request.method == Method::PUT
    });
    guard.release().await;
    assert_eq!(world.stored().await.holder_identity.as_deref().unwrap_or_default(), "");
}

#[tokio::test]
async fn a_renewal_is_one_request() {
    let world = World::new().await;
    let guard = world.proxied_leader("first").await;
    world.until_renewed(3).await;
    guard.release().await;
    let seen = methods(&world.proxy);
    // The list shows that no replica divides the objects in another way.
    assert_eq!(seen[..3], [Method::GET, Method::POST, Method::GET]);
    assert!(seen[3..].iter().all(|method| method == Method::PUT), "{seen:?}");
}

#[test]
fn identities_are_unique() {
    let (one, other) = (
        portolan::runtime::leader_election::identity("portolan-0"),
        portolan::runtime::leader_election::identity("portolan-0"),
    );
    assert!(one.starts_with("portolan-0_") && other.starts_with("portolan-0_"));
    assert_ne!(one, other);
}

#[tokio::test]
async fn writes_are_allowed_from_the_acquisition_to_the_loss_or_the_release() {
    let world = World::new().await;
    let (fence, client) = (WriteFence::default(), world.proxied().await);
    assert!(!fence.is_open());
    let mut guard = world.fenced_contender(&client, "first", &fence).acquire().await;
    assert!(fence.is_open());
    world.until_renewed(14).await; // longer than the lease duration
    assert!(fence.is_open());
    world.proxy.gate.close().await;
    timeout(SOON, guard.lost()).await.unwrap();
    assert!(!fence.is_open());

    world.proxy.gate.open().await;
    let fence = WriteFence::default();
    let guard = timeout(SOON, world.fenced_contender(&client, "second", &fence).acquire())
        .await
        .unwrap();
    assert!(fence.is_open());
    guard.release().await;
    assert!(!fence.is_open());
}
