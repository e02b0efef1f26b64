//! Callers that send too much or read too slowly, and others beside them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::future::join_all;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{interval, timeout};

use super::{SOON, Serving, declare, fill, sync};
use crate::support::eventually::eventually;
use crate::support::world::World;

/// For a response beside those of other clients, on a busy machine.
const PROMPTLY: Duration = Duration::from_secs(2);
const SLOW_READERS: u8 = 64;
/// Of each slow reader: more than the kernel buffers.
const PIPELINED: usize = 12;

fn address(serving: &Serving) -> SocketAddr {
    serving.url.trim_start_matches("http://").parse().unwrap()
}

/// Sends requests from this address until one is refused, and returns its status and `Retry-After`.
async fn until_refused(serving: &Serving, from: &str, forwarded: impl Fn(usize) -> String) -> (u16, String) {
    let client = reqwest::Client::builder()
        .no_proxy()
        .tls_certs_only([])
        .local_address(from.parse::<IpAddr>().ok());
    let (client, url) = (client.build().unwrap(), format!("{}/api/v1/whoami", serving.url));
    let get = |number: usize| client.get(&url).header("x-forwarded-for", forwarded(number)).send();
    for batch in 0..1000 {
        for response in join_all((8 * batch..8 * batch + 8).map(&get)).await {
            let response = response.unwrap();
            if response.status() != 200 {
                let retry_after = response.headers()["retry-after"].to_str().unwrap();
                return (response.status().as_u16(), retry_after.to_owned());
            }
        }
    }
    panic!("8000 requests were served");
}

async fn metric(serving: &Serving, name: &str, label: (&str, &str)) -> f64 {
    let metrics = serving.portolan.metrics().await;
    metrics.sum(name, &[label]).unwrap_or_default()
}

async fn refused_by(serving: &Serving, limit: &str) -> f64 {
    metric(serving, "portolan_catalog_requests_limited_total", ("limit", limit)).await
}

async fn in_flight(serving: &Serving, stage: &str) -> f64 {
    metric(serving, "portolan_catalog_requests_in_flight", ("stage", stage)).await
}

#[tokio::test]
async fn a_caller_above_the_rate_is_refused_while_another_is_served() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    let (status, retry_after) = until_refused(&serving, "127.0.0.2", |_| String::new()).await;
    assert_eq!((status, retry_after.as_str()), (429, "1"));
    assert_eq!(serving.names("/charts").await, ["web"]);
    assert!(refused_by(&serving, "rate").await >= 1.0);
}

#[tokio::test]
async fn a_caller_does_not_escape_the_rate_by_forwarded_addresses() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    let forwarded = |number: usize| format!("192.0.2.{}", number % 250);
    let (status, _) = until_refused(&serving, "127.0.0.2", forwarded).await;
    assert_eq!(status, 429);
    // Nor does it use up the rate of the address that it claims.
    let claimed = [("x-forwarded-for", "192.0.2.1")];
    assert_eq!(serving.request("/api/v1/charts", &claimed).await.status, 200);
}

#[tokio::test]
async fn requests_are_served_beside_1000_idle_connections() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    allow_open_files();
    let mut idle = Vec::new();
    for number in 0..1000 {
        idle.push(TcpStream::connect(address(&serving)).await.unwrap());
        if number % 100 == 99 {
            let names = timeout(PROMPTLY, serving.names("/charts")).await;
            assert_eq!(names.unwrap(), ["web"], "beside {number}");
        }
    }
    // The oldest connections made way for the newest.
    let mut oldest = Vec::new();
    timeout(SOON, idle[0].read_to_end(&mut oldest)).await.unwrap().unwrap();
    eventually(SOON, "at most 256 connections", async || {
        let label = ("resource", "catalog_connections");
        let open = metric(&serving, "portolan_budget_used", label).await;
        if open <= 256.0 { Ok(()) } else { Err(open) }
    })
    .await;
}

/// Raises the limit of open files, which many systems set to 1,024.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_served_beside_64_clients_that_read_1_kib_a_second() {
    let world = World::new().await;
    let url = world.database_url();
    declare(&world, "stable", large_index());
    sync(&world, &url).await;
    let serving = Serving::of(&world, &url).await;
    let page = serving.get("/charts?limit=200").await.body.len();
    assert!(page > 100_000, "{page}");
    let mut readers = Vec::new();
    for number in 1..=SLOW_READERS {
        let reader = slow_reader(&serving, IpAddr::from([127, 0, 1, number])).await;
        readers.push(tokio::spawn(read_slowly(reader)));
    }
    let all = f64::from(SLOW_READERS);
    eventually(SOON, "all readers to be slow", async || {
        let bodies = in_flight(&serving, "body").await;
        if bodies >= all { Ok(()) } else { Err(bodies) }
    })
    .await;
    for number in 0..50 {
        let path = format!("/charts?q=chart-{number}&limit=1");
        let names = timeout(PROMPTLY, serving.names(&path)).await.unwrap();
        assert_eq!(names, [format!("chart-{number}")]);
    }
    // Slow responses take no places of requests.
    let requests = in_flight(&serving, "request").await;
    assert!(requests < 8.0, "{requests}");
    let bodies = in_flight(&serving, "body").await;
    assert!(bodies >= all - 8.0, "{bodies}");
    assert!(refused_by(&serving, "bodies").await < 1.0);
    readers.iter().for_each(tokio::task::JoinHandle::abort);
}

fn large_index() -> String {
    let text = "word ".repeat(100);
    let chart = |number: usize| {
        format!(
            "  chart-{number}:\n  - name: chart-{number}\n    version: 1.0.0\n    created: '2026-01-01T00:00:00Z'\n    \
             description: '{text}'\n    urls: [chart-{number}.tgz]\n"
        )
    };
    let charts: String = (0..200).map(chart).collect();
    format!("apiVersion: v1\nentries:\n{charts}")
}

/// Sends requests from this address without reading the responses.
async fn slow_reader(serving: &Serving, from: IpAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind(SocketAddr::new(from, 0)).unwrap();
    let mut stream = socket.connect(address(serving)).await.unwrap();
    let request = "GET /api/v1/charts?limit=200 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.repeat(PIPELINED).as_bytes()).await.unwrap();
    stream
}

async fn read_slowly(mut stream: TcpStream) {
    let (mut second, mut bytes) = (interval(Duration::from_secs(1)), [0; 1024]);
    while stream.read_exact(&mut bytes).await.is_ok() {
        second.tick().await;
    }
}
