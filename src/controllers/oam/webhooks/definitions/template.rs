//! Checks of the template of a definition by the evaluator.

use std::time::Duration;

use tokio::time::timeout;

use super::super::inspect::InspectTemplate;
use super::super::review::Verdict;
use super::served_kinds::ServedResources;
use crate::cue::{Error, Inspection};
use crate::text::sanitize;

/// Time to inspect a template, within that of a review. The evaluator works for others first.
const MAX_WAIT: Duration = Duration::from_secs(4);

pub(super) enum InspectionOutcome {
    Inspected(Inspection),
    /// The template passes unchecked, for this reason.
    Unchecked(String),
}

/// Compiles a template.
pub(super) async fn compile(
    evaluator: &impl InspectTemplate,
    namespace: &str,
    template: &str,
) -> Result<InspectionOutcome, Verdict> {
    let Ok(result) = timeout(MAX_WAIT, evaluator.inspect(namespace, template, true)).await else {
        return Ok(busy());
    };
    match result {
        Ok(inspection) => Ok(InspectionOutcome::Inspected(inspection)),
        // With parameters, and in its own time, the template may be evaluated.
        Err(Error::Timeout(_) | Error::Deferred) => Ok(busy()),
        Err(error @ Error::Failed { .. }) => Err(Verdict::Denied(format!("template does not compile: {error}"))),
        Err(error @ Error::Memory(_)) => Err(Verdict::Denied(format!(
            "template exceeds a limit when it is compiled: {error}; simplify it"
        ))),
        Err(error @ (Error::Missing | Error::Crashed(_))) => {
            Err(Verdict::Failed(format!("failed to check the template: {error}")))
        }
    }
}

/// Parses a template that may be invalid.
pub(super) async fn parse(evaluator: &impl InspectTemplate, namespace: &str, template: &str) -> InspectionOutcome {
    match timeout(MAX_WAIT, evaluator.inspect(namespace, template, false)).await {
        Ok(Ok(inspection)) => InspectionOutcome::Inspected(inspection),
        Ok(Err(error)) => InspectionOutcome::Unchecked(sanitize(&format!("template can't be parsed: {error}"))),
        Err(_) => busy(),
    }
}

fn busy() -> InspectionOutcome {
    InspectionOutcome::Unchecked("template is not checked: no result of the CUE evaluator in time".to_owned())
}

/// Returns a warning for the author of a template.
pub(super) fn warning(inspection: &Inspection) -> Option<String> {
    inspection.may_be_rewritten.then(|| {
        "template uses + or * on lists as CUE before 0.11, which are replaced when it is rendered; use list.Concat and \
         list.Repeat"
            .to_owned()
    })
}

/// Checks that the API server has the kinds that a template names.
pub(super) async fn check_kinds(inspection: &Inspection, served: &mut ServedResources) -> Result<(), Verdict> {
    for kind in &inspection.kinds {
        let (api_version, name) = (kind.api_version.as_str(), kind.kind.as_str());
        let no_match = |error| format!("resource type not found on cluster: {api_version}/{name} ({error})");
        served.resource(api_version, name, no_match).await?;
    }
    Ok(())
}
