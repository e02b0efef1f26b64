//! Step types and functions that this controller doesn't have yet.

/// Built-in step types that need a provider which is missing here, or Terraform. Types with one unsupported part,
/// such as mail in `notification`, fail at the function instead.
const UNSUPPORTED: [&str; 14] = [
    "apply-application",
    "apply-application-in-parallel",
    "apply-remaining",
    "apply-terraform-config",
    "apply-terraform-provider",
    "build-push-image",
    "check-metrics",
    "collect-service-endpoints",
    "deploy-cloud-resource",
    "deploy2env",
    "export-service",
    "restart-workflow",
    "share-cloud-resource",
    "vela-cli",
];

/// Functions done outside, by provider.
const FUNCTIONS: [(&str, &[&str]); 6] = [
    ("builtin", &["var"]),
    (
        "kube",
        &["apply", "apply-in-parallel", "delete", "list", "patch", "read"],
    ),
    ("http", &["do"]),
    ("config", &["create", "delete", "list", "read"]),
    (
        "multicluster",
        &["deploy", "get-placements-from-topology-policies", "list-clusters"],
    ),
    ("util", &["log"]),
];

/// Returns the message for a step type that is not supported, which no retry changes.
#[must_use]
pub fn unsupported_type(type_name: &str) -> Option<String> {
    let name = type_name.split('@').next().unwrap_or_default();
    UNSUPPORTED
        .contains(&name)
        .then(|| format!("step type {name} is not supported yet by this controller"))
}

/// Returns true for a function that [`super::Functions`] does.
#[must_use]
pub fn is_supported(provider: &str, function: &str) -> bool {
    FUNCTIONS
        .iter()
        .any(|(name, functions)| *name == provider && functions.contains(&function))
}

/// Returns the provider and name of a function of `vela/op`, where all have one provider.
#[must_use]
pub fn resolve_op(function: &str) -> (&str, &str) {
    match function {
        "apply" | "apply-in-parallel" | "delete" | "list" | "patch" | "read" => ("kube", function),
        "do" => ("http", function),
        "break" | "wait" | "suspend" | "fail" | "message" | "var" => ("builtin", function),
        "string" | "patch-k8s-object" | "log" => ("util", function),
        "create-config" => ("config", "create"),
        "delete-config" => ("config", "delete"),
        "list-config" => ("config", "list"),
        "read-config" => ("config", "read"),
        "deploy" | "get-placements-from-topology-policies" | "list-clusters" => ("multicluster", function),
        _ => ("op", function),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_comes_later_is_named_without_its_version() {
        let message = unsupported_type("vela-cli@v1").unwrap();
        assert_eq!(message, "step type vela-cli is not supported yet by this controller");
        assert_eq!(unsupported_type("webhook"), None);
    }

    #[test]
    fn functions_of_op_belong_to_the_provider_that_does_them() {
        assert_eq!(resolve_op("read-config"), ("config", "read"));
        assert_eq!(resolve_op("do"), ("http", "do"));
        let (provider, function) = resolve_op("send-email");
        assert!(!is_supported(provider, function));
        assert!(is_supported("kube", "list") && !is_supported("kube", "wait"));
    }
}
