//! The sinks of a repository, and the failures that its news reports.

use kube::api::ObjectMeta;

use crate::api::is_object_name;
use crate::catalog::RecordState;

/// Annotation with the name of a Secret in the namespace of the AppRepository: the sink of its news.
pub const NEWS: &str = "portolan.dev/news";

/// Failures in a row after which a repository counts as failed. A stalled one counts at once.
const REPORTED_FAILURES: u32 = 3;

/// Returns `namespace/name` of the operator's Secrets and of that of the annotation; none if no process delivers news. An
/// invalid name is ignored.
#[must_use]
pub fn sinks(meta: &ObjectMeta, operator: Option<&[String]>) -> Vec<String> {
    let Some(operator) = operator else {
        return Vec::new();
    };
    let mut sinks = operator.to_vec();
    let annotations = meta.annotations.as_ref();
    let annotated = annotations.and_then(|all| all.get(NEWS)).map(|name| name.trim());
    if let Some(name) = annotated.filter(|name| is_object_name(name)) {
        let sink = format!("{}/{name}", meta.namespace.as_deref().unwrap_or_default());
        if !sinks.contains(&sink) {
            sinks.push(sink);
        }
    }
    sinks
}

/// Returns true once the news reports that a repository failed, until it recovers.
#[must_use]
pub fn is_failure_reported(before: &RecordState, after: &RecordState, has_sinks: bool) -> bool {
    match after.ready {
        Some(true) => false,
        Some(false) if has_sinks && (after.stalled || after.failures >= REPORTED_FAILURES) => true,
        _ => before.failure_reported,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sinks_of(annotation: &str, operator: &[&str]) -> Vec<String> {
        let meta = json!({ "namespace": "team", "name": "charts", "annotations": { NEWS: annotation } });
        let operator: Vec<String> = operator.iter().map(|sink| (*sink).to_owned()).collect();
        sinks(&serde_json::from_value(meta).unwrap(), Some(&operator))
    }

    #[test]
    fn an_annotation_names_a_secret_of_its_own_namespace() {
        assert_eq!(sinks_of("hook", &["ops/all"]), ["ops/all", "team/hook"]);
        assert_eq!(sinks_of("hook", &["team/hook"]), ["team/hook"]);
        for invalid in ["", "other/hook", "../other/hook", "Hook", "a b"] {
            assert!(sinks_of(invalid, &[]).is_empty(), "{invalid}");
        }
    }

    fn state(ready: Option<bool>, failures: u32, stalled: bool) -> RecordState {
        RecordState {
            ready,
            failures,
            stalled,
            ..RecordState::default()
        }
    }

    #[test]
    fn a_failure_is_reported_at_the_third_time_or_when_stalled_until_a_success() {
        let ready = state(Some(true), 0, false);
        let reported = RecordState {
            failure_reported: true,
            ..state(Some(false), 3, false)
        };
        let after = |before: &RecordState, after: RecordState| is_failure_reported(before, &after, true);
        assert!(!after(&ready, state(Some(false), 2, false)));
        assert!(after(&ready, state(Some(false), 3, false)));
        assert!(after(&ready, state(Some(false), 1, true)));
        assert!(after(&reported, state(Some(false), 1, false)));
        assert!(
            after(&reported, state(None, 0, false)),
            "a part of a sync is no success"
        );
        assert!(!after(&reported, state(Some(true), 0, false)));
        assert!(!is_failure_reported(&ready, &state(Some(false), 3, true), false));
    }
}
