//! Events of a pass: news only.

use futures::future::join_all;

use super::pass::Pass;
use crate::api::oam::Application;
use crate::runtime::events::Event;

impl Pass<'_> {
    /// Publishes a normal event after the status.
    pub(super) fn announce(&mut self, reason: &str, note: &str) {
        self.events.push(Event::normal(reason, note));
    }

    /// Publishes a warning after the status, unless it was published before.
    pub(super) fn warn(&mut self, reason: &str, note: &str) {
        if self.memory.lock().is_due(reason, note) {
            self.events.push(Event::warning(reason, note));
        }
    }

    pub(super) async fn publish_events(&mut self) {
        let events = std::mem::take(&mut self.events);
        let publisher = &self.reconciler.events;
        let metadata = &self.app.metadata;
        let published = events
            .into_iter()
            .map(|event| publisher.publish::<Application>(metadata, "Reconcile", event));
        join_all(published).await;
    }
}
