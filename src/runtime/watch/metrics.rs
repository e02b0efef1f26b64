use std::sync::LazyLock;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::error_policy::{ErrorPolicy, WatchFailure};

/// Counters of the process, as in client-go: watches start deep within each controller.
static ERRORS: LazyLock<Family<WatchLabels, Counter>> = LazyLock::new(Family::default);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    resource: String,
    reason: &'static str,
}

pub fn register(registry: &mut Registry) {
    let help = "Total number of failed lists and watches, by resource and reason";
    registry.register("portolan_watch_errors", help, ERRORS.clone());
}

/// Counts a failure. The namespace of a watch is left out: tenants create many.
pub(super) fn record(description: &str, policy: ErrorPolicy, failure: &WatchFailure) {
    // A definition that may be missing is no error.
    if failure.is_not_served() && policy == ErrorPolicy::Optional {
        return;
    }
    ERRORS.get_or_create(&labels(description, failure)).inc();
}

fn labels(description: &str, failure: &WatchFailure) -> WatchLabels {
    let reason = match failure.code {
        Some(410) => "expired",
        _ if failure.is_denied() => "forbidden",
        _ => "other",
    };
    WatchLabels {
        resource: description.split(' ').next().unwrap_or_default().to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_by_resource_and_reason_without_the_namespace() {
        let failure = |code| WatchFailure {
            is_list: false,
            code,
            message: String::new(),
        };
        let reason = |code| labels("pods", &failure(code)).reason;
        assert_eq!(
            [Some(410), Some(403), Some(401)].map(reason),
            ["expired", "forbidden", "forbidden"]
        );
        assert_eq!([Some(500), Some(404), None].map(reason), ["other", "other", "other"]);
        let description = "deployments.apps in namespace shop";
        assert_eq!(labels(description, &failure(None)).resource, "deployments.apps");
    }

    #[test]
    fn a_definition_that_may_be_missing_is_not_counted() {
        let missing = WatchFailure {
            is_list: true,
            code: Some(404),
            message: String::new(),
        };
        let count = || ERRORS.get_or_create(&labels("widgets.example.com", &missing)).get();
        record("widgets.example.com", ErrorPolicy::Optional, &missing);
        assert_eq!(count(), 0);
        record("widgets.example.com", ErrorPolicy::Required, &missing);
        assert_eq!(count(), 1);
    }
}
