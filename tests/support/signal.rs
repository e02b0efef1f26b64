//! A signal that is given once and stays.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Tells that an injected fault was reached.
#[derive(Debug, Default)]
pub struct Signal {
    is_given: AtomicBool,
    notify: Notify,
}

impl Signal {
    pub fn give(&self) {
        self.is_given.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
    }

    pub fn is_given(&self) -> bool {
        self.is_given.load(Ordering::SeqCst)
    }

    /// Waits until the signal is given.
    pub async fn given(&self) {
        loop {
            let notified = self.notify.notified();
            if self.is_given() {
                return;
            }
            notified.await;
        }
    }
}
