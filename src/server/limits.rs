use std::time::Duration;

use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::net::TcpStream;

use super::connections::RESERVED;

/// A slow reader could otherwise hold a connection indefinitely. The first response after this time is the last one.
pub(super) const LAST_RESPONSE_AGE: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    pub connections: usize,
    /// Those of `connections` that only probes may take.
    pub reserved_connections: usize,
    /// Timeout of a keep-alive connection that receives no request.
    pub idle_timeout: Duration,
    /// Timeout from the header of a request to the header of its response.
    pub request_timeout: Duration,
    /// If `None`, a connection counts as idle from the header of a response on, so its body may be cut at any time.
    pub bodies: Option<BodyLimits>,
    /// Time for which requests are still accepted after a shutdown has begun, from clients that do not know of it.
    pub linger: Duration,
    /// Timeout of in-flight responses after that.
    pub drain_timeout: Duration,
}

/// Limits of responses whose clients read slowly. A connection is closed at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Timeout from the header of a response until the kernel has the last byte of its body.
    pub timeout: Duration,
    /// The kernel must take `min_bytes` in each period of this length.
    pub period: Duration,
    pub min_bytes: u64,
    /// Bytes that the kernel buffers for a connection. It would take some MiB, which count as memory of the container, and
    /// hide the speed of the client. Much less would limit the speed over long distances.
    pub send_buffer: usize,
}

impl ServerLimits {
    /// Returns the limits of a server for probes, metrics and profiles.
    #[must_use]
    pub const fn with_probes(connections: usize) -> Self {
        Self {
            connections,
            reserved_connections: RESERVED,
            idle_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(120),
            bodies: None,
            linger: Duration::ZERO,
            drain_timeout: Duration::from_secs(2),
        }
    }

    /// Returns the limits of a server for reviews. API servers wait 30 s at most for a response.
    #[must_use]
    pub const fn for_webhooks(connections: usize) -> Self {
        Self {
            connections,
            reserved_connections: 0,
            // API servers close idle connections after 90 s. If they were closed here, a review that is just sent would fail.
            idle_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(30),
            bodies: None,
            // Until nodes know that the pod ends.
            linger: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(10),
        }
    }

    /// Returns the limits of a server for clients that read the catalog.
    #[must_use]
    pub const fn for_catalog(connections: usize) -> Self {
        Self {
            connections,
            reserved_connections: 0,
            // Proxies keep idle connections for 60 s.
            idle_timeout: Duration::from_secs(75),
            // Above the timeouts of the routes, whose responses say more: 180 s for archives.
            request_timeout: Duration::from_secs(190),
            bodies: Some(BodyLimits {
                timeout: Duration::from_secs(180),
                period: Duration::from_secs(30),
                // 1 KiB/s.
                min_bytes: 30 * 1024,
                send_buffer: 128 * 1024,
            }),
            // Until nodes know that the pod ends.
            linger: Duration::from_secs(5),
            drain_timeout: Duration::from_secs(20),
        }
    }

    /// Returns the age at which a connection is closed, whatever it does.
    pub(super) fn max_connection_age(&self) -> Duration {
        // One response may begin just before the last one.
        let responses = |bodies: BodyLimits| 2 * (self.request_timeout + bodies.timeout);
        LAST_RESPONSE_AGE + self.idle_timeout + self.bodies.map_or(Duration::ZERO, responses)
    }

    /// Limits the buffer of the kernel for a new connection.
    pub(super) fn apply_to(&self, stream: &TcpStream) {
        let Some(bodies) = &self.bodies else { return };
        if let Err(error) = set_socket_send_buffer_size(stream, bodies.send_buffer) {
            // Slow clients are noticed later then.
            tracing::debug!(%error, "failed to limit the send buffer of a connection");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_outlives_its_last_response_if_bodies_have_limits_of_their_own() {
        let seconds = |limits: ServerLimits| limits.max_connection_age().as_secs();
        assert_eq!(seconds(ServerLimits::with_probes(1)), 630);
        assert_eq!(seconds(ServerLimits::for_webhooks(1)), 720);
        assert_eq!(seconds(ServerLimits::for_catalog(1)), 600 + 75 + 2 * (190 + 180));
    }
}
