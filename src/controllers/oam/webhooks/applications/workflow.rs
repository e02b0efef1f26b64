//! Checks of annotations and of the workflow, which need nothing but the Application.

use std::collections::HashSet;

use kube::ResourceExt;

use super::findings::Findings;
use crate::api::oam::{Application, labels};
use crate::runtime::cron;
use crate::text::truncate;

const DUPLICATE: &str = "duplicated step name";
/// KubeVela's text, although it refuses `1d`.
const INVALID_TIMEOUT: &str = "invalid timeout, please use the format of timeout like 1s, 1m, 1h or 1d";
const BOTH_ANNOTATIONS: &str =
    "Application has both autoUpdate and publishVersion annotations. Only one can be present";

/// Bytes of a name in a warning.
const MAX_SHOWN: usize = 64;

pub fn check_annotations(app: &Application) -> Findings {
    let mut findings = Findings::default();
    let annotation = |name: &str| app.annotations().get(name).map_or("", String::as_str);
    if annotation(labels::AUTO_UPDATE) == "true" && !annotation(labels::PUBLISH_VERSION).is_empty() {
        findings.error("metadata.annotations", BOTH_ANNOTATIONS);
    }
    findings
}

/// Checks the names of steps and their timeouts. As in KubeVela, timeouts of sub-steps are no errors.
pub fn check_workflow(app: &Application) -> Findings {
    let mut findings = Findings::default();
    let mut names = HashSet::new();
    for step in app.spec.workflow.iter().flat_map(|workflow| &workflow.steps) {
        if !names.insert(step.name.as_str()) {
            findings.error("spec.workflow.steps", DUPLICATE);
        }
        if !is_timeout(&step.timeout) {
            findings.error("spec.workflow.steps.timeout", INVALID_TIMEOUT);
        }
        for sub_step in &step.sub_steps {
            if !names.insert(sub_step.name.as_str()) {
                findings.error("spec.workflow.steps.subSteps", DUPLICATE);
            }
            if !is_timeout(&sub_step.timeout) {
                let [name, timeout] = [&sub_step.name, &sub_step.timeout].map(|text| truncate(text, MAX_SHOWN));
                findings.warn(&format!(
                    "step {name} will fail: invalid timeout {timeout:?}, expected a duration such as 1h30m"
                ));
            }
        }
    }
    findings
}

/// Returns true for a duration as Go writes it, or none.
fn is_timeout(text: &str) -> bool {
    let positive = text.strip_prefix('-').unwrap_or(text);
    let is_signed_twice = positive.len() < text.len() && positive.starts_with(['-', '+']);
    text.is_empty() || !is_signed_twice && cron::parse_duration(positive).is_some()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::oam::webhooks::review::Verdict;

    /// Returns the error, or the warnings.
    fn checked(findings: Findings) -> Vec<String> {
        match findings.into_verdict("7") {
            Verdict::Allowed { warnings, .. } => warnings,
            Verdict::Invalid(message) => message.lines().skip(1).map(str::to_owned).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn app(metadata: &Value, steps: &Value) -> Application {
        let app = json!({ "metadata": metadata, "spec": { "components": [], "workflow": { "steps": steps } } });
        serde_json::from_value(app).unwrap()
    }

    #[rstest]
    #[case("true", "v1", true)]
    #[case("true", "", false)]
    #[case("false", "v1", false)]
    #[case("", "v1", false)]
    fn a_published_version_does_not_follow_definitions(
        #[case] update: &str,
        #[case] version: &str,
        #[case] is_refused: bool,
    ) {
        let annotations = json!({ labels::AUTO_UPDATE: update, labels::PUBLISH_VERSION: version });
        let findings = check_annotations(&app(&json!({ "annotations": annotations }), &json!([])));
        let expected = "  1) \"metadata.annotations\": Application has both autoUpdate and publishVersion annotations. Only one \
                        can be present. (requestUID=7)";
        let expected = if is_refused { vec![expected] } else { Vec::new() };
        assert_eq!(checked(findings), expected);
    }

    #[rstest]
    #[case::other_names(json!([{ "name": "a" }, { "name": "b", "subSteps": [{ "name": "c" }] }]), &[])]
    #[case::of_steps(json!([{ "name": "a" }, { "name": "a" }]), &["spec.workflow.steps"])]
    #[case::of_unnamed_steps(json!([{}, {}]), &["spec.workflow.steps"])]
    #[case::of_a_step_and_a_sub_step(
        json!([{ "name": "a", "subSteps": [{ "name": "a" }, { "name": "b" }] }, { "name": "b" }]),
        &["spec.workflow.steps.subSteps", "spec.workflow.steps"]
    )]
    fn duplicate_names_are_found_among_all_steps(#[case] steps: Value, #[case] fields: &[&str]) {
        let checked = checked(check_workflow(&app(&json!({}), &steps)));
        assert_eq!(checked.len(), fields.len(), "{checked:?}");
        for (line, field) in checked.iter().zip(fields) {
            assert!(line.contains(&format!("{field:?}: duplicated step name.")), "{line}");
        }
    }

    #[rstest]
    #[case("", true)]
    #[case("1h30m", true)]
    #[case("-1.5s", true)]
    #[case("0", true)]
    #[case("1d", false)]
    #[case("10", false)]
    #[case("-+1s", false)]
    #[case("--1s", false)]
    #[case("soon", false)]
    fn timeouts_are_durations_of_go(#[case] timeout: &str, #[case] is_valid: bool) {
        let findings = check_workflow(&app(&json!({}), &json!([{ "name": "a", "timeout": timeout }])));
        let expected = format!("  1) \"spec.workflow.steps.timeout\": {INVALID_TIMEOUT}. (requestUID=7)");
        let expected = if is_valid { Vec::new() } else { vec![expected] };
        assert_eq!(checked(findings), expected);
    }

    #[test]
    fn the_timeout_of_a_step_is_reported_once_and_that_of_a_sub_step_as_a_warning() {
        let steps = json!([{ "name": "a", "timeout": "1d", "subSteps": [{ "name": "b" }, { "name": "c" }] }]);
        assert_eq!(checked(check_workflow(&app(&json!({}), &steps))).len(), 1);
        let steps = json!([{ "name": "a", "subSteps": [{ "name": "b", "timeout": "1d" }] }]);
        assert_eq!(
            checked(check_workflow(&app(&json!({}), &steps))),
            ["step b will fail: invalid timeout \"1d\", expected a duration such as 1h30m"]
        );
    }
}
