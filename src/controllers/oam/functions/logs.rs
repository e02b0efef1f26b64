//! Lines that steps write to the log of the process with `util.#Log`.

use std::num::NonZeroU32;

use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use serde_json::Value;

use crate::api::NamespacedName;
use crate::clock::TokioClock;
use crate::text::sanitize;

/// Lines of a namespace at once, and each second after that. A line has at most [`crate::text::MAX_TEXT`] bytes of data.
const BURST: NonZeroU32 = NonZeroU32::new(100).unwrap();
const PER_SECOND: NonZeroU32 = NonZeroU32::MIN;
/// Maximum number of namespaces, unless more have written lately.
const MAX_NAMESPACES: usize = 1_024;

/// Writes the lines, within a rate for each namespace.
pub struct StepLogs(RateLimiter<String, HashMapStateStore<String>, TokioClock>);

impl Default for StepLogs {
    fn default() -> Self {
        let quota = Quota::per_second(PER_SECOND).allow_burst(BURST);
        Self(RateLimiter::hashmap_with_clock(quota, TokioClock))
    }
}

impl StepLogs {
    /// Writes the data of a step as one line. Returns false if the rate of the namespace is exceeded.
    ///
    /// `vela workflow logs` finds the lines by `cue logs`, the session and the Application. The data is quoted, so that it
    /// can't look like the line of another Application.
    #[must_use]
    pub fn write(&self, application: &NamespacedName, session: &str, data: &Value) -> bool {
        if self.0.len() > MAX_NAMESPACES {
            self.0.retain_recent();
        }
        if self.0.check_key(&application.namespace).is_err() {
            return false;
        }
        let data = match data {
            Value::String(text) => sanitize(text),
            data => sanitize(&data.to_string()),
        };
        tracing::info!(%application, stepSessionID = session, data, "cue logs");
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_namespace_that_logs_too_much_does_not_silence_others() {
        let logs = StepLogs::default();
        let write = |namespace: &str| logs.write(&NamespacedName::new(namespace, "app"), "id", &json!("text"));
        let written = (0..200).filter(|_| write("noisy")).count();
        assert_eq!(written, 100);
        assert!(write("quiet"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!([write("noisy"), write("noisy")], [true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_that_have_not_written_lately_are_forgotten() {
        let logs = StepLogs::default();
        for number in 0..=MAX_NAMESPACES {
            assert!(logs.write(&NamespacedName::new(number.to_string(), "app"), "id", &json!(1)));
        }
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!(logs.write(&NamespacedName::new("last", "app"), "id", &json!(1)));
        assert_eq!(logs.0.len(), 1);
    }
}
