//! Discovery of single kinds on demand, also of kinds without a subscription.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::{ServedKinds, Shared, WatchManager};
use crate::runtime::watch::GroupKind;
use crate::runtime::watch::discovery::Resource;

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
}

/// Requests for a discovery. They are numbered from 1; a discovery serves all requests made before it started.
#[derive(Default)]
pub(super) struct Requests {
    last: Mutex<Option<(u64, Instant)>>,
    /// The last request that is served.
    served: watch::Sender<u64>,
}

impl Requests {
    pub(super) fn last(&self) -> u64 {
        self.last.lock().map_or(0, |(number, _)| number)
    }

    pub(super) fn finish(&self, number: u64) {
        self.served.send_replace(number);
    }

    /// Returns the number of a pending or new request; none if the last one was too recent. The flag is true for a new one.
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
    fn served(&self, kind: &GroupKind) -> Result<Option<Resource>, ResolveError> {
        match &self.kinds.read().served {
            ServedKinds::Pending => Err(ResolveError::Timeout),
            ServedKinds::Failed(error) => Err(ResolveError::Discovery(error.clone())),
            ServedKinds::Known(served) => Ok(served.get(kind).cloned()),
        }
    }
}

impl<U, K> WatchManager<U, K> {
    /// Returns the resource of a kind; none if the API server does not serve it. An unknown kind is discovered again, at
    /// most once every 10 seconds for all callers together. Needs [`WatchManager::run`].
    ///
    /// # Errors
    /// Discovery fails or takes too long.
    pub async fn resolve(&self, kind: &GroupKind) -> Result<Option<Resource>, ResolveError> {
        let shared = &self.shared;
        if let known @ Ok(Some(_)) = shared.served(kind) {
            return known;
        }
        let mut served = shared.requests.served.subscribe();
        let Some((request, is_new)) = shared.requests.add() else {
            return shared.served(kind);
        };
        if is_new {
            shared.changed.notify_one();
        }
        match timeout(DEADLINE, served.wait_for(|served| *served >= request)).await {
            Ok(_) => shared.served(kind),
            Err(_) => Err(ResolveError::Timeout),
        }
    }
}
