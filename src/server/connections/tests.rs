use super::super::SentResponse;
use super::*;

fn connections(limit: usize) -> Connections {
    Connections::new(&ServerLimits::with_probes(limit), ResourceMetrics::unregistered())
}

fn without_reserved(limit: usize) -> Connections {
    Connections::new(&ServerLimits::for_webhooks(limit), ResourceMetrics::unregistered())
}

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

fn other_peer(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

/// Admits connections until all general places serve a request.
fn busy(connections: &Connections, number: usize) -> Vec<OpenConnection> {
    let one = || connections.admit(PEER).filter(|connection| connection.begin("/readyz"));
    (0..number).map(|_| one().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_oldest_idle_connection_is_closed_when_all_places_are_in_use() {
    let connections = connections(RESERVED + 2);
    let first = connections.admit(PEER).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    let second = connections.admit(PEER).unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    // The first one is younger now.
    assert!(first.begin("/livez"));
    first.end();
    let third = connections.admit(PEER).unwrap();
    assert!(second.closed.is_cancelled() && !first.closed.is_cancelled() && !third.closed.is_cancelled());
    assert_eq!(connections.0.table.lock().entries.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn reserved_places_serve_probes_only() {
    let connections = connections(RESERVED + 2);
    let mut general = busy(&connections, 2);
    let probe = connections.admit(PEER).unwrap();
    let other = connections.admit(PEER).unwrap();
    assert!(probe.begin("/livez"));
    assert!(!other.begin("/metrics"));
    drop(other);
    // As soon as a general place is free, the connection may leave its reserved one.
    let other = connections.admit(PEER).unwrap();
    general.pop();
    assert!(other.begin("/metrics"));
    assert_eq!(connections.0.table.lock().entries.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_refused_if_all_places_serve_requests() {
    let connections = connections(RESERVED + 2);
    let _all = busy(&connections, RESERVED + 2);
    assert!(connections.admit(PEER).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_peer_with_many_connections_gives_way_to_one_with_few() {
    let connections = connections(RESERVED + 4);
    let busy = busy(&connections, 4);
    let other = connections.admit(other_peer(2)).unwrap();
    assert!(busy[0].closed.is_cancelled() && other.begin("/metrics"));
    let second = connections.admit(other_peer(2)).unwrap();
    assert!(busy[1].closed.is_cancelled() && second.begin("/metrics"));
    // Both have half of the places.
    let third = connections.admit(other_peer(2)).unwrap();
    assert!(!busy[2].closed.is_cancelled() && !third.begin("/metrics"));
}

#[tokio::test(start_paused = true)]
async fn a_peer_with_many_connections_closes_none_of_others() {
    let connections = without_reserved(4);
    let rare = connections.admit(other_peer(2)).unwrap();
    let mut many: Vec<_> = (0..9).map(|_| connections.admit(PEER).unwrap()).collect();
    assert!(!rare.closed.is_cancelled() && many[5].closed.is_cancelled());
    // Nor while all of its own serve requests.
    let busy = many.split_off(6);
    assert!(busy.iter().all(|connection| connection.begin("/validate")));
    assert!(connections.admit(PEER).is_none() && !rare.closed.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_gives_way_before_one_that_serves_a_request() {
    let connections = without_reserved(4);
    let busy = busy(&connections, 3);
    let idle = connections.admit(other_peer(2)).unwrap();
    assert!(connections.admit(other_peer(3)).is_some());
    assert!(idle.closed.is_cancelled() && busy.iter().all(|connection| !connection.closed.is_cancelled()));
}

#[tokio::test(start_paused = true)]
async fn without_reserved_places_each_path_takes_any_place() {
    let connections = without_reserved(2);
    let busy = busy(&connections, 1);
    let idle = connections.admit(PEER).unwrap();
    let last = connections.admit(PEER).unwrap();
    assert!(idle.closed.is_cancelled() && last.begin("/validate"));
    assert!(connections.admit(PEER).is_none());
    drop(busy);
    assert!(connections.admit(PEER).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_reserved_place_without_a_request_is_lost_after_five_seconds() {
    let connections = connections(RESERVED);
    let reserved = connections.admit(PEER).unwrap();
    let start = Instant::now();
    reserved.closed().await;
    assert_eq!(start.elapsed(), HEADER_TIMEOUT);
    let served = connections.admit(PEER).unwrap();
    assert!(served.begin("/livez"));
    assert!(
        tokio::time::timeout(Duration::from_secs(60), served.closed())
            .await
            .is_err()
    );
    served.end();
    served.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_header_must_be_complete_within_five_seconds() {
    let connections = connections(256);
    let connection = connections.admit(PEER).unwrap();
    assert!(
        tokio::time::timeout(Duration::from_secs(20), connection.closed())
            .await
            .is_err()
    );
    connection.register_bytes();
    let start = Instant::now();
    connection.closed().await;
    assert_eq!(start.elapsed(), HEADER_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_peer_has_at_most_16_connections_for_metrics() {
    let connections = connections(256);
    let mut all: Vec<_> = (0..=MAX_METRICS_PER_PEER)
        .map(|_| connections.admit(PEER).unwrap())
        .collect();
    let last = all.pop().unwrap();
    assert!(all.iter().all(|connection| connection.begin("/metrics")));
    assert!(!last.begin("/metrics"));
    // Probes and other peers are not limited, and an idle connection is replaced.
    assert!(last.begin("/livez"));
    assert!(connections.admit(other_peer(2)).unwrap().begin("/metrics"));
    all[3].end();
    assert!(last.begin("/metrics") && all[3].closed.is_cancelled());
}

/// Counts calls of `cut`, and is dropped with the response.
#[derive(Default)]
struct Cuts(AtomicU64);

impl SentResponse for Cuts {
    fn cut(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn catalog(connections: usize) -> Connections {
    Connections::new(&ServerLimits::for_catalog(connections), ResourceMetrics::unregistered())
}

/// Admits a connection that sends a response.
fn sending(connections: &Connections) -> (OpenConnection, Arc<Cuts>) {
    let (connection, cuts) = (connections.admit(PEER).unwrap(), Arc::<Cuts>::default());
    assert!(connection.begin("/"));
    let kept: Arc<dyn SentResponse> = Arc::<Cuts>::clone(&cuts);
    assert!(connection.begin_body(Some(KeepUntilSent(kept))));
    (connection, cuts)
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_busy_until_its_body_is_written() {
    let connections = catalog(2);
    let (download, cuts) = sending(&connections);
    let idle = connections.admit(PEER).unwrap();
    // A flush before the end of the body, and a body of which bytes are left, end nothing.
    download.register_flush();
    download.complete_body();
    let next = connections.admit(PEER).unwrap();
    assert!(idle.closed.is_cancelled() && !download.closed.is_cancelled());
    assert_eq!(Arc::strong_count(&cuts), 2);
    tokio::time::advance(Duration::from_secs(1)).await;
    download.register_flush();
    assert_eq!(Arc::strong_count(&cuts), 1);
    // From now on it is idle, and younger than the other one.
    let last = connections.admit(PEER).unwrap();
    assert!(next.closed.is_cancelled() && !download.closed.is_cancelled() && !last.closed.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_body_of_less_than_30_kib_in_30_seconds_is_cut() {
    let connections = catalog(2);
    let (download, cuts) = sending(&connections);
    let start = Instant::now();
    let reads = async {
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(29)).await;
            download.register_written(30 * 1024);
        }
        pending::<()>().await;
    };
    tokio::select! {
        () = download.closed() => {}
        () = reads => {}
    }
    assert_eq!(start.elapsed(), Duration::from_secs(90));
    assert_eq!(cuts.0.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_body_is_cut_after_180_seconds() {
    let connections = catalog(2);
    let (download, cuts) = sending(&connections);
    let start = Instant::now();
    let reads = async {
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            download.register_written(2048);
        }
    };
    tokio::select! {
        () = download.closed() => {}
        () = reads => {}
    }
    assert_eq!(start.elapsed(), Duration::from_secs(180));
    assert_eq!(cuts.0.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn without_limits_of_bodies_a_connection_is_idle_once_the_header_is_known() {
    let connections = without_reserved(1);
    let connection = connections.admit(PEER).unwrap();
    assert!(connection.begin("/validate") && !connection.begin_body(None));
    assert!(connections.admit(PEER).is_some() && connection.closed.is_cancelled());
}
