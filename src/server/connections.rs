//! The table of open connections: their number, places that only probes may take, and the limit of each peer for metrics.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::pending;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::KeepUntilSent;
use super::limits::{BodyLimits, ServerLimits};
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
    bodies: Option<BodyLimits>,
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
    /// `None` while a request is served, and its response is sent.
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
    /// Bytes that the kernel has taken.
    written: AtomicU64,
    /// Of the response that is sent.
    kept: Mutex<Option<KeepUntilSent>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    Idle,
    /// A request is due [`HEADER_TIMEOUT`] after this time.
    Header(Instant),
    Serving,
    /// A response is sent since this time. Once its body is complete, the next flush ends it.
    Sending {
        since: Instant,
        is_body_complete: bool,
    },
}

impl Connections {
    pub(super) fn new(limits: &ServerLimits, metrics: ResourceMetrics) -> Self {
        Self(Arc::new(Inner {
            limit: limits.connections,
            reserved: limits.reserved_connections,
            bodies: limits.bodies,
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
            written: AtomicU64::new(0),
            kept: Mutex::default(),
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
        // A pipelined request may precede the flush of the former response.
        drop(self.kept.lock().take());
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

    /// Registers that the header of a response is known. Returns true if the end of its body must be registered too.
    pub(super) fn begin_body(&self, kept: Option<KeepUntilSent>) -> bool {
        if self.connections.0.bodies.is_none() {
            self.end();
            return false;
        }
        *self.kept.lock() = kept;
        self.phase.send_replace(ConnectionPhase::Sending {
            since: Instant::now(),
            is_body_complete: false,
        });
        true
    }

    /// Registers that no more bytes of the body follow. Some may not have been written yet.
    pub(super) fn complete_body(&self) {
        self.phase.send_if_modified(|phase| {
            if let ConnectionPhase::Sending { is_body_complete, .. } = phase {
                *is_body_complete = true;
            }
            false
        });
    }

    /// Registers that all bytes so far were written.
    pub(super) fn register_flush(&self) {
        let phase = *self.phase.borrow();
        if matches!(
            phase,
            ConnectionPhase::Sending {
                is_body_complete: true,
                ..
            }
        ) {
            self.end();
        }
    }

    pub(super) fn register_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Registers that the response to the last request is complete.
    pub(super) fn end(&self) {
        drop(self.kept.lock().take());
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

    /// Waits until the connection must be closed: another connection took its place, its header is late, or its client
    /// reads too slowly.
    pub(super) async fn closed(&self) {
        tokio::select! {
            () = self.closed.cancelled() => {}
            () = self.late() => {}
        }
    }

    async fn late(&self) {
        let mut phase = self.phase.subscribe();
        loop {
            let current = *phase.borrow_and_update();
            let late = async {
                match current {
                    ConnectionPhase::Header(since) => sleep_until(since + HEADER_TIMEOUT).await,
                    ConnectionPhase::Sending { since, .. } => self.body_late(since).await,
                    ConnectionPhase::Idle | ConnectionPhase::Serving => pending().await,
                }
            };
            tokio::select! {
                () = late => break,
                // The sender lives as long as `self`.
                _ = phase.changed() => {}
            }
        }
        if let Some(kept) = self.kept.lock().take() {
            kept.0.cut();
        }
    }

    async fn body_late(&self, since: Instant) {
        let Some(limits) = self.connections.0.bodies else {
            return pending().await;
        };
        let (deadline, mut period_end) = (since + limits.timeout, since);
        let written = || self.written.load(Ordering::Relaxed);
        let mut before = written();
        loop {
            period_end += limits.period;
            sleep_until(period_end.min(deadline)).await;
            let after = written();
            if period_end >= deadline || after.saturating_sub(before) < limits.min_bytes {
                return;
            }
            before = after;
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
mod tests;
