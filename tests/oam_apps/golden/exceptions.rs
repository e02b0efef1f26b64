//! Documented differences from the records.

use serde_json::Value;

use super::compare::Difference;

/// A documented difference.
pub struct Exception {
    pub case: &'static str,
    pub path: &'static str,
    /// Portolan's text; blanks and line ends count as one blank.
    pub ours: &'static str,
    /// The row of the table of differences in docs/reference/kubevela.md that names it.
    pub row: &'static str,
}

pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        case: "u-workflow-read-object-app",
        path: "objects/v1 ConfigMap v-u-workflow-read-object-app/workflow-read-object-context/data/vars",
        ours: "cpu: null memory: null",
        row: "values of steps in `workflow-…-context`",
    },
    Exception {
        case: "u-workflow-read-object-app",
        path: "application/read-object/status/workflow/steps/1/message",
        ours: "GenerateComponentManifest: component express-server: parameter.cpu: conflicting values string and null \
             (mismatched types string and null) (line 187); parameter.memory: conflicting values string and null (mismatched types \
             string and null) (line 189)",
        row: "CUE errors",
    },
    Exception {
        case: "u-advanced-cue-app2",
        path: "application/testapp/status/appliedResources/0/creator",
        ours: "workflow",
        row: "`creator` in `status.appliedResources`",
    },
];

/// Cases that are refused, with a part of the message of the condition Parsed and the row of the docs.
pub const REFUSED: [(&str, &str, &str); 1] = [
    // KubeVela refuses it in its webhook only, which was off.
    (
        "u-e2e-app8",
        "duplicated component name myweb",
        "duplicate component names",
    ),
];

/// Removes documented differences. An exception of this case that nothing needs is an error.
pub fn undocumented(exceptions: &[Exception], case: &str, found: Vec<Difference>) -> Result<Vec<Difference>, String> {
    let (mut left, mut unneeded) = (found, Vec::new());
    for exception in exceptions.iter().filter(|one| one.case == case) {
        let before = left.len();
        left.retain(|difference| !exception.allows(difference));
        if left.len() == before {
            unneeded.push(format!("{}: {}", exception.path, exception.row));
        }
    }
    // A difference with another value than the exception's is left.
    if unneeded.is_empty() || !left.is_empty() {
        Ok(left)
    } else {
        Err(format!("exceptions without a difference: {}", unneeded.join("; ")))
    }
}

impl Exception {
    fn allows(&self, difference: &Difference) -> bool {
        let text = difference.actual.as_ref().and_then(Value::as_str);
        let is_ours = |text: &str| text.split_whitespace().eq(self.ours.split_whitespace());
        difference.path == self.path && text.is_some_and(is_ours)
    }
}
