//! Floods, large bodies, and a process that dies between the request and its effect.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::stream;
use reqwest::{Body, Method};

use super::{Receiving, declared, poll_at};
use crate::cluster::World;
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::fault_proxy::{ApiFault, FaultProxy, Pause};
use crate::support::portolan::peak_memory;

const GIB: usize = 1 << 30;
const CHUNK: usize = 64 << 10;

/// Starts receivers behind a proxy of the API server.
async fn behind_proxy(world: &World) -> (FaultProxy, Receiving) {
    let control_plane = control_plane().await;
    let proxy = FaultProxy::in_front_of(control_plane).await;
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    let receiving = Receiving::start_with(world, &kubeconfig).await;
    (proxy, receiving)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_costs_few_requests_to_the_api_server_and_keeps_no_known_sender_out() {
    let world = World::new().await;
    let (proxy, receiving) = behind_proxy(&world).await;
    let path = declared(&world, "stable", "generic").await;
    assert_eq!(receiving.post(&path, &[], "").await, 202);
    let (before, started) = (proxy.requests().len(), std::time::Instant::now());
    let flood = (0..50).map(|client| {
        let (receiving, namespace) = (&receiving, &world.namespace);
        async move {
            for number in 0..200 {
                let key = "0".repeat(64);
                let guess = format!("/hooks/{namespace}/guess-{client}-{number}/{key}");
                assert_eq!(receiving.post(&guess, &[], "").await, 404);
            }
        }
    });
    join_all(flood).await;
    let look_ups = proxy.requests().len() - before;
    // A burst of 64, then 10 a second.
    let allowed = 64 + 10 * usize::try_from(started.elapsed().as_secs() + 1).unwrap();
    assert!(look_ups <= allowed, "{look_ups} of {allowed}");
    assert_eq!(receiving.post(&path, &[], "").await, 202);
    assert!(receiving.count("limited").await > Some(9_000.0));
    assert!(peak_memory(&receiving.portolan) < 256);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_a_gibibyte_is_refused_and_takes_no_memory() {
    let world = World::new().await;
    let receiving = Receiving::start(&world).await;
    let path = declared(&world, "stable", "generic").await;
    for is_declared in [true, false] {
        let chunks = stream::iter((0..GIB / CHUNK).map(|_| Ok::<_, std::io::Error>(vec![0_u8; CHUNK])));
        let mut request = receiving.request(&path, &[]).body(Body::wrap_stream(chunks));
        if is_declared {
            request = request.header("content-length", GIB);
        }
        // The connection may be closed before the client has read the answer.
        if let Ok(response) = request.send().await {
            assert_eq!(response.status(), 413);
        }
    }
    assert_eq!(receiving.count("refused").await, Some(2.0));
    assert_eq!(poll_at(&world, "stable").await, None);
    assert!(peak_memory(&receiving.portolan) < 256);
    assert_eq!(receiving.post(&path, &[], "").await, 202);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_before_the_patch_leaves_nothing_and_the_sender_repeats() {
    let world = World::new().await;
    let (proxy, mut receiving) = behind_proxy(&world).await;
    let path = declared(&world, "stable", "generic").await;
    let pause = Arc::new(Pause::default());
    let is_patch = |request: &crate::support::fault_proxy::ApiRequest| request.method == Method::PATCH;
    proxy.inject(1, ApiFault::Paused(Arc::clone(&pause)), is_patch);
    let sent = receiving.request(&path, &[]).send();
    let killed = async {
        pause.arrived.given().await;
        receiving.portolan.signal("KILL");
    };
    let (sent, ()) = tokio::join!(sent, killed);
    assert!(sent.is_err(), "{sent:?}");
    assert_eq!(poll_at(&world, "stable").await, None);
    receiving.portolan.exit(Duration::from_secs(10)).await;
    let receiving = Receiving::start(&world).await;
    assert_eq!(receiving.post(&path, &[], "").await, 202);
    assert!(poll_at(&world, "stable").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_the_api_server_does_not_answer_is_to_repeat() {
    let world = World::new().await;
    let (proxy, receiving) = behind_proxy(&world).await;
    let path = declared(&world, "stable", "generic").await;
    proxy.inject(usize::MAX, ApiFault::Status(500), |request| {
        request.method == Method::PATCH
    });
    let response = receiving.request(&path, &[]).send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "5");
    proxy.clear_faults();
    assert_eq!(receiving.post(&path, &[], "").await, 202);
    assert_eq!(receiving.count("failed").await, Some(1.0));
}
