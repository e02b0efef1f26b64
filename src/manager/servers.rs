//! Servers of controllers. They go on for a while after a shutdown has begun: clients still know this process.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::controllers::Serve;

/// Time until API servers and nodes know that the pod ends.
const LINGER: Duration = Duration::from_secs(5);

pub(super) struct Servers {
    tasks: JoinSet<()>,
    shutdown: CancellationToken,
}

impl Servers {
    /// Starts the servers. `process_shutdown` is the begin of the shutdown.
    pub(super) fn start(servers: Vec<Serve>, process_shutdown: &CancellationToken) -> Self {
        let shutdown = CancellationToken::new();
        let mut tasks: JoinSet<()> = servers.into_iter().map(|serve| serve(shutdown.clone())).collect();
        if !tasks.is_empty() {
            let (begin, end) = (process_shutdown.clone(), shutdown.clone());
            tasks.spawn(async move {
                begin.cancelled().await;
                sleep(LINGER).await;
                end.cancel();
            });
        }
        Self { tasks, shutdown }
    }

    /// Waits until the servers have ended.
    pub(super) async fn end(mut self) {
        while self.tasks.join_next().await.is_some() {}
        self.shutdown.cancel();
    }
}
