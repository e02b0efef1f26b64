//! The one task for all delays of a queue.

use std::sync::{Arc, Weak};

use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::Item;
use super::shared::{Next, Shared};

/// Sleeps until the next delay is over, makes ready what is due, and sleeps again. It has no hold on the queue while it
/// sleeps, and ends with it.
pub(super) async fn run<K: Item>(queue: Weak<Shared<K>>, told: Arc<Notify>) {
    loop {
        let Some(next) = queue.upgrade().map(|queue| queue.fire()) else {
            return;
        };
        match next {
            // Either way the queue knows best what is due now.
            Next::SleepUntil(at) => _ = timeout_at(at, told.notified()).await,
            Next::SleepUntilTold => told.notified().await,
            Next::End => return,
        }
    }
}
