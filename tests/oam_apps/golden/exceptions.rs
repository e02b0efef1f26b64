//! Documented differences from the records.

use super::compare::Difference;

/// A case, the start of paths in it, and why they differ.
pub type Exception = (&'static str, &'static str, &'static str);

pub const EXCEPTIONS: &[Exception] = &[
    (
        "u-e2e-app-garbage-collect",
        "objects/v1 Service v-u-e2e-app-garbage-collect/hello-world/",
        "KubeVela applied the Service again from a tracker without manifests, and lost labels and annotations",
    ),
    (
        "u-workflow-read-object-app",
        "objects/v1 ConfigMap v-u-workflow-read-object-app/workflow-read-object-context/data/vars",
        "KubeVela aligns values in columns",
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
    for (_, path, reason) in exceptions.iter().filter(|(name, ..)| *name == case) {
        let before = left.len();
        left.retain(|difference| !difference.path.starts_with(path));
        if left.len() == before {
            unused.push(format!("{path}: {reason}"));
        }
    }
    if unused.is_empty() {
        Ok(left)
    } else {
        Err(format!("exceptions without a difference: {}", unused.join("; ")))
    }
}
