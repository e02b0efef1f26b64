use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::Item;
use super::shared::{Next, Shared};

/// Sleeps until the next delay expires. Holds no strong reference meanwhile, and ends with the queue.
pub(super) async fn run<K: Item>(queue: Weak<Shared<K>>, wakeup: Arc<Notify>) {
    loop {
        let Some(next) = queue.upgrade().map(|queue| queue.fire()) else {
            return;
        };
        match next {
            // Either way, the queue determines what is due.
            Next::SleepUntil(at) => _ = timeout_at(at, wakeup.notified()).await,
            Next::WaitForWakeup => wakeup.notified().await,
            Next::End => return,
        }
    }
}
