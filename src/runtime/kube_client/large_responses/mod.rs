//! Permits for large responses: of the API server of this process, and of all remote API servers together.

mod long_lines;

use std::sync::Arc;

pub(super) use self::long_lines::limit_lines;
use crate::budget::{Budget, Reservation};

/// Large responses that are read concurrently. Of a remote API server, one: a slow one delays its own responses.
pub(super) const PERMITS: u64 = 4;

/// The permits for large responses of remote API servers. Clones share them.
#[derive(Clone)]
pub struct RemotePermits(Budget);

impl Default for RemotePermits {
    fn default() -> Self {
        Self(Budget::new("large_remote_responses", PERMITS))
    }
}

/// The permits for large responses of a client.
#[derive(Clone)]
pub(super) struct LargeResponses {
    own: Budget,
    /// With the host of the API server.
    remote: Option<(Budget, Arc<str>)>,
}

/// Returned on drop.
pub(super) struct ResponsePermits {
    _own: Reservation,
    _shared: Option<Reservation>,
}

impl LargeResponses {
    pub(super) fn local() -> Self {
        Self {
            own: Budget::new("large_api_responses", PERMITS),
            remote: None,
        }
    }

    pub(super) fn remote(RemotePermits(shared): &RemotePermits, host: &str) -> Self {
        Self {
            own: Budget::new("large_api_responses", 1),
            remote: Some((shared.clone(), host.into())),
        }
    }

    pub(super) const fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    pub(super) async fn acquire(&self, namespace: &str) -> ResponsePermits {
        let own = self.own.acquire(namespace, 1).await;
        let shared = match &self.remote {
            Some((shared, host)) => Some(shared.acquire(host, 1).await),
            None => None,
        };
        ResponsePermits {
            _own: own,
            _shared: shared,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn an_api_server_holds_one_permit_of_all_remote_ones() {
        let shared = RemotePermits::default();
        let hostile = LargeResponses::remote(&shared, "hostile:6443");
        let _endless = hostile.acquire("team").await;
        let more = (0..8).map(|_| hostile.acquire("team").boxed());
        let mut more = futures::future::select_all(more);
        assert!(futures::poll!(&mut more).is_pending());
        let permit_of = |host| LargeResponses::remote(&shared, host).acquire("team").now_or_never();
        let others = ["a:6443", "b:6443", "c:6443"].map(permit_of);
        assert!(others.iter().all(Option::is_some));
        assert_eq!(shared.0.used(), PERMITS);
    }
}
