//! The state of the connection to a cluster, which its monitor changes.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::circuit::Circuit;
use super::connection::Connection;
use super::error::ClusterError;

pub(super) struct Link {
    state: watch::Sender<LinkState>,
    secret_changed: Notify,
}

#[derive(Clone)]
pub(super) enum LinkState {
    Connecting,
    Refused(String),
    /// There was no connection yet.
    Failed(String),
    Connected {
        connection: Arc<Connection>,
        circuit: Arc<Circuit>,
    },
}

impl Default for Link {
    fn default() -> Self {
        Self {
            state: watch::Sender::new(LinkState::Connecting),
            secret_changed: Notify::new(),
        }
    }
}

impl Link {
    pub(super) fn set(&self, state: LinkState) {
        self.state.send_replace(state);
    }

    pub(super) fn state(&self) -> LinkState {
        self.state.borrow().clone()
    }

    pub(super) fn connection(&self, cluster: &str) -> Result<Arc<Connection>, ClusterError> {
        let cluster = cluster.to_owned();
        match self.state() {
            LinkState::Connecting => Err(ClusterError::Connecting { cluster }),
            LinkState::Refused(problem) => Err(ClusterError::Refused { cluster, problem }),
            LinkState::Failed(problem) => Err(ClusterError::Unreachable { cluster, problem }),
            LinkState::Connected { connection, circuit } => match circuit.problem() {
                None => Ok(connection),
                Some(problem) => Err(ClusterError::Unreachable { cluster, problem }),
            },
        }
    }

    /// Waits until the first attempt with the present credential has ended.
    pub(super) async fn wait_until_tried(&self) {
        let mut states = self.state.subscribe();
        // Fails only without a sender, which `self` owns.
        let _ = states.wait_for(|state| !matches!(state, LinkState::Connecting)).await;
    }

    pub(super) fn notify_secret_changed(&self) {
        self.secret_changed.notify_one();
    }

    /// Waits for a change of the Secret since the last call. For one waiter.
    pub(super) async fn secret_changed(&self) {
        self.secret_changed.notified().await;
    }
}
