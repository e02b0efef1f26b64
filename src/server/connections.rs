//! The table of open connections: their number, places that only probes may take, and the limit of each peer for metrics.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::budget::ResourceMetrics;

/// Places of a server with probes that are left to them once all others are in use.
pub const RESERVED: usize = 8;
/// Connections of one address that read metrics.
const MAX_METRICS_PER_PEER: usize = 16;
/// Timeout for a complete header after its first byte, and for the first request on a reserved place.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct Connections(Arc<Inner>);

struct Inner {
    limit: usize,
    reserved: usize,
    metrics: ResourceMetrics,
    table: Mutex<ConnectionTable>,
}

#[derive(Default)]
struct ConnectionTable {
    next_id: u64,
    entries: HashMap<u64, ConnectionEntry>,
}

struct ConnectionEntry {
    peer: IpAddr,
    is_reserved: bool,
    has_read_metrics: bool,
    /// `None` while a request is served.
    idle_since: Option<Instant>,
    closed: CancellationToken,
}

/// A place in the table until it is dropped.
pub(super) struct OpenConnection {
    connections: Connections,
    id: u64,
    /// The same over IPv4 and over IPv4 mapped to IPv6.
    peer: IpAddr,
    closed: CancellationToken,
    phase: watch::Sender<ConnectionPhase>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    Idle,
    /// A request is due [`HEADER_TIMEOUT`] after this time.
    Header(Instant),
    Serving,
}

impl Connections {
    pub(super) fn new(limit: usize, reserved: usize, metrics: ResourceMetrics) -> Self {
        Self(Arc::new(Inner {
            limit,
            reserved,
            metrics,
            table: Mutex::default(),
        }))
    }

    /// Admits a connection. Returns `None` if there is no place for it.
    pub(super) fn admit(&self, peer: IpAddr) -> Option<OpenConnection> {
        let peer = peer.to_canonical();
        let mut table = self.0.table.lock();
        let is_reserved = !table.make_place(peer, false, self.general_limit());
        if is_reserved && !table.make_place(peer, true, self.0.reserved) {
            return None;
        }
        let (id, now, closed) = (table.next_id, Instant::now(), CancellationToken::new());
        table.next_id += 1;
        let entry = ConnectionEntry {
            peer,
            is_reserved,
            has_read_metrics: false,
            idle_since: Some(now),
            closed: closed.clone(),
        };
        table.entries.insert(id, entry);
        self.0.metrics.add_used(1);
        let phase = if is_reserved {
            ConnectionPhase::Header(now)
        } else {
            ConnectionPhase::Idle
        };
        Some(OpenConnection {
            connections: self.clone(),
            id,
            peer,
            closed,
            phase: watch::Sender::new(phase),
        })
    }

    fn general_limit(&self) -> usize {
        self.0.limit.saturating_sub(self.0.reserved)
    }
}

impl ConnectionTable {
    /// Makes a place for a connection of `peer`, if necessary by closing one of a peer with more connections: its oldest idle
    /// one, or else its oldest one, unless `peer` would then have as many. A peer's own idle connections give way too.
    fn make_place(&mut self, peer: IpAddr, is_reserved: bool, limit: usize) -> bool {
        let of_kind = |entry: &ConnectionEntry| entry.is_reserved == is_reserved;
        if self.count(of_kind) < limit {
            return true;
        }
        let entries = || self.entries.iter().filter(|(_, entry)| of_kind(entry));
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for (_, entry) in entries() {
            *counts.entry(entry.peer).or_default() += 1;
        }
        let count_of = |peer: IpAddr| counts.get(&peer).copied().unwrap_or_default();
        let held = count_of(peer);
        let candidates = entries().filter_map(|(id, entry)| {
            let count = count_of(entry.peer);
            let gives_way = match entry.idle_since {
                Some(_) => count > held || entry.peer == peer,
                None => count > held + 1,
            };
            gives_way.then_some((entry.idle_since.is_none(), Reverse(count), entry.idle_since, *id))
        });
        let closed = candidates.min().map(|(_, _, _, id)| id);
        self.close(closed)
    }

    fn count(&self, filter: impl Fn(&ConnectionEntry) -> bool) -> usize {
        self.entries.values().filter(|entry| filter(entry)).count()
    }

    fn close_oldest_idle(&mut self, filter: impl Fn(&ConnectionEntry) -> bool) -> bool {
        let entries = self.entries.iter().filter(|(_, entry)| filter(entry));
        let oldest = entries.filter_map(|(id, entry)| Some((entry.idle_since?, *id))).min();
        self.close(oldest.map(|(_, id)| id))
    }

    fn close(&mut self, id: Option<u64>) -> bool {
        let closed = id.and_then(|id| self.entries.remove(&id));
        closed.map(|entry| entry.closed.cancel()).is_some()
    }
}

impl OpenConnection {
    pub(super) const fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Registers a request. Returns false if it must be refused and the connection closed.
    pub(super) fn begin(&self, path: &str) -> bool {
        self.phase.send_replace(ConnectionPhase::Serving);
        let mut table = self.connections.0.table.lock();
        let Some(entry) = table.entries.get_mut(&self.id) else {
            return false;
        };
        entry.idle_since = None;
        entry.has_read_metrics = path == "/metrics";
        let (peer, reads_metrics) = (entry.peer, entry.has_read_metrics);
        let loses_place = entry.is_reserved && !matches!(path, "/livez" | "/readyz");
        if loses_place {
            if !table.make_place(peer, false, self.connections.general_limit()) {
                return false;
            }
            if let Some(entry) = table.entries.get_mut(&self.id) {
                entry.is_reserved = false;
            }
        }
        let of_peer = |entry: &ConnectionEntry| entry.has_read_metrics && entry.peer == peer;
        !reads_metrics || table.count(of_peer) <= MAX_METRICS_PER_PEER || table.close_oldest_idle(of_peer)
    }

    /// Registers that the response to the last request is complete.
    pub(super) fn end(&self) {
        let now = Instant::now();
        let mut table = self.connections.0.table.lock();
        let Some(entry) = table.entries.get_mut(&self.id) else {
            return;
        };
        entry.idle_since = Some(now);
        self.phase.send_replace(if entry.is_reserved {
            ConnectionPhase::Header(now)
        } else {
            ConnectionPhase::Idle
        });
    }

    /// Registers received bytes. The first bytes after a response begin a header.
    pub(super) fn register_bytes(&self) {
        self.phase.send_if_modified(|phase| {
            let is_first = *phase == ConnectionPhase::Idle;
            if is_first {
                *phase = ConnectionPhase::Header(Instant::now());
            }
            is_first
        });
    }

    /// Waits until the connection must be closed: another connection took its place, or its header is late.
    pub(super) async fn closed(&self) {
        let mut phase = self.phase.subscribe();
        let header_timeout = async {
            loop {
                let current = *phase.borrow_and_update();
                let changed = phase.changed();
                match current {
                    ConnectionPhase::Header(since) => tokio::select! {
                        () = sleep_until(since + HEADER_TIMEOUT) => return,
                        _ = changed => {}
                    },
                    // The sender lives as long as `self`.
                    ConnectionPhase::Idle | ConnectionPhase::Serving => drop(changed.await),
                }
            }
        };
        tokio::select! {
            () = self.closed.cancelled() => {}
            () = header_timeout => {}
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.0.table.lock().entries.remove(&self.id);
        self.connections.0.metrics.subtract_used(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(limit: usize) -> Connections {
        Connections::new(limit, RESERVED, ResourceMetrics::unregistered())
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
        let connections = Connections::new(4, 0, ResourceMetrics::unregistered());
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
        let connections = Connections::new(4, 0, ResourceMetrics::unregistered());
        let busy = busy(&connections, 3);
        let idle = connections.admit(other_peer(2)).unwrap();
        assert!(connections.admit(other_peer(3)).is_some());
        assert!(idle.closed.is_cancelled() && busy.iter().all(|connection| !connection.closed.is_cancelled()));
    }

    #[tokio::test(start_paused = true)]
    async fn without_reserved_places_each_path_takes_any_place() {
        let connections = Connections::new(2, 0, ResourceMetrics::unregistered());
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
}
