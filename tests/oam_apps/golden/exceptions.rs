//! Documented differences from the records.

use super::compare::Difference;

/// A case, or all; the start of paths in it; the row of the table of differences in docs/oam.md that names it.
pub type Exception = (&'static str, &'static str, &'static str);

/// All cases in which a path differs.
const ALL: &str = "";
/// In place of the name of an object's namespace, or of the object.
const ANY: char = '*';

pub const EXCEPTIONS: &[Exception] = &[
    (
        "u-workflow-read-object-app",
        "objects/v1 ConfigMap v-u-workflow-read-object-app/workflow-read-object-context/data/vars",
        "values of steps in `workflow-…-context`",
    ),
    (
        "u-workflow-read-object-app",
        "application/read-object/status/workflow/steps/1/message",
        "CUE errors",
    ),
    (
        "u-advanced-cue-app2",
        "application/testapp/status/appliedResources/0/creator",
        "`creator` in `status.appliedResources`",
    ),
    (
        ALL,
        "objects/v1 ConfigMap */data/portolan.attempts",
        "attempts of steps",
    ),
];

/// Cases that are refused, with a part of the message of the condition Parsed.
pub const REFUSED: [(&str, &str); 1] = [
    // KubeVela refuses it in its webhook only, which was off.
    ("u-e2e-app8", "duplicated component name myweb"),
];

/// Removes documented differences. An exception that nothing needs is an error.
pub fn undocumented(exceptions: &[Exception], case: &str, found: Vec<Difference>) -> Result<Vec<Difference>, String> {
    let (mut left, mut unused) = (found, Vec::new());
    for (name, path, reason) in exceptions.iter().filter(|(name, ..)| [case, ALL].contains(name)) {
        let before = left.len();
        left.retain(|difference| !is_at(&difference.path, path));
        if left.len() == before && *name != ALL {
            unused.push(format!("{path}: {reason}"));
        }
    }
    if unused.is_empty() {
        Ok(left)
    } else {
        Err(format!("exceptions without a difference: {}", unused.join("; ")))
    }
}

/// Returns true if a path begins with a pattern.
fn is_at(path: &str, pattern: &str) -> bool {
    match pattern.split_once(ANY) {
        Some((start, end)) => path.starts_with(start) && path.ends_with(end),
        None => path.starts_with(pattern),
    }
}
