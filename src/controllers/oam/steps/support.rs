//! Step types and functions that this controller doesn't have.

use super::types::Caller;
use crate::text::{sanitize, truncate};

const RUNS_PODS: &str = "it runs pods with the rights of the controller; use a pipeline, and a request to it";
const ENV_BINDING: &str = "it needs policy env-binding; use deploy with policies topology and override";

/// Step types of KubeVela that are refused, with the reason. Types with one unsupported part, such as mail in
/// `notification`, fail at the function instead.
pub const REFUSED_TYPES: [(&str, &str); 6] = [
    ("build-push-image", RUNS_PODS),
    ("deploy-cloud-resource", ENV_BINDING),
    ("deploy2env", ENV_BINDING),
    (
        "deploy2runtime",
        "KubeVela has replaced it; use deploy with a topology policy",
    ),
    ("share-cloud-resource", ENV_BINDING),
    ("vela-cli", RUNS_PODS),
];

/// Packages of KubeVela that are refused, with the reason.
const REFUSED_PACKAGES: [(&str, &str); 2] = [
    ("email", "it would log in to mail servers; use a webhook"),
    (
        "helm",
        "it installs releases while a template is evaluated; use a component",
    ),
];

/// Bytes of a name in a message.
const MAX_SHOWN: usize = 200;

/// The prefix of packages that objects of kind Package declare.
const EXTERNAL: &str = "ext/";

/// The reason why components change nothing through `vela/kube`.
const WRITES: &str = "a component may be rendered at any time; put the object into outputs, or use a workflow step";

/// Functions done outside for components and traits, by provider.
const FUNCTIONS_OF_COMPONENTS: [(&str, &[&str]); 2] = [("http", &["do"]), ("kube", &["get", "list"])];

/// Functions done outside for steps, by provider.
const FUNCTIONS_OF_STEPS: [(&str, &[&str]); 9] = [
    ("builtin", &["var"]),
    (
        "kube",
        &["apply", "apply-in-parallel", "delete", "list", "patch", "read"],
    ),
    ("http", &["do"]),
    ("config", &["create", "delete", "list", "read"]),
    ("metrics", &["promCheck"]),
    (
        "multicluster",
        &["deploy", "get-placements-from-topology-policies", "list-clusters"],
    ),
    (
        "oam",
        &[
            "apply-application",
            "apply-application-in-parallel",
            "apply-remaining",
            "component-apply",
            "component-render",
            "load",
            "load-comps-in-order",
            "load-policies",
        ],
    ),
    ("query", &["collectServiceEndpoints"]),
    ("util", &["log"]),
];

/// Returns the message for a step type that is not supported, which no retry changes.
#[must_use]
pub fn unsupported_type(type_name: &str) -> Option<String> {
    let name = type_name.split('@').next().unwrap_or_default();
    let reason = reason(&REFUSED_TYPES, name)?;
    Some(format!(
        "step type {name} is not supported by this controller: {reason}"
    ))
}

/// Returns the message for an import that is not supported.
#[must_use]
pub fn unsupported_import(path: &str) -> Option<String> {
    let message = || {
        let path = truncate(&sanitize(path), MAX_SHOWN);
        format!("package {path} is not supported by this controller: it is a package of the cluster")
    };
    path.starts_with(EXTERNAL).then(message)
}

/// Returns the message for a function that is not supported.
#[must_use]
pub fn unsupported_function(caller: Caller, provider: &str, function: &str) -> String {
    let name = truncate(&sanitize(&format!("{provider}.{function}")), MAX_SHOWN);
    let is_write = matches!((provider, function), ("kube", "apply" | "patch"));
    let reason = reason(&REFUSED_PACKAGES, provider);
    match reason.or_else(|| (is_write && caller == Caller::Component).then_some(WRITES)) {
        Some(reason) => format!("{name} is not supported by this controller: {reason}"),
        None => format!("{name} is not supported yet by this controller"),
    }
}

fn reason(refused: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let mut refused = refused.iter();
    refused.find(|(one, _)| *one == name).map(|(_, reason)| *reason)
}

/// Returns true if a template may apply components of the Application.
#[must_use]
pub fn applies_components(template: &str) -> bool {
    // Under any name, also with a qualifier.
    let names = ["\"vela/oam", "#ApplyComponent", "#ApplyApplication", "#ApplyRemaining"];
    names.iter().any(|name| template.contains(name))
}

/// Returns true for a function that [`super::Functions`] does.
#[must_use]
pub fn is_supported(caller: Caller, provider: &str, function: &str) -> bool {
    let functions: &[(&str, &[&str])] = match caller {
        Caller::Component => &FUNCTIONS_OF_COMPONENTS,
        Caller::Step => &FUNCTIONS_OF_STEPS,
    };
    functions
        .iter()
        .any(|(name, functions)| *name == provider && functions.contains(&function))
}

/// Returns the provider and name of a function of `vela/op` or `vela/ql`, where all have one provider.
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
        "collectServiceEndpoints" => ("query", function),
        "promCheck" => ("metrics", function),
        "date" | "timestamp" => ("time", function),
        "deploy" | "get-placements-from-topology-policies" | "list-clusters" => ("multicluster", function),
        function if is_supported(Caller::Step, "oam", function) => ("oam", function),
        _ => ("op", function),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_refused_is_named_without_its_version_and_says_why() {
        let message = unsupported_type("vela-cli@v1").unwrap();
        assert!(
            message.starts_with("step type vela-cli is not supported by this controller: it runs pods"),
            "{message}"
        );
        assert_eq!(unsupported_type("webhook"), None);
    }

    #[test]
    fn packages_of_the_cluster_and_packages_with_other_rights_are_refused_by_name() {
        assert!(unsupported_import("ext/bank").unwrap().contains("package ext/bank"));
        assert_eq!(unsupported_import("vela/kube"), None);
        assert!(unsupported_function(Caller::Step, "helm", "#Render").contains("installs releases"));
        let unknown = unsupported_function(Caller::Step, "kube", "#Rea");
        assert_eq!(unknown, "kube.#Rea is not supported yet by this controller");
    }

    #[test]
    fn a_template_that_imports_the_package_under_another_name_may_apply_components() {
        for template in [
            "import apps \"vela/oam\"\nweb: apps.#Apply & {}",
            "import \"vela/oam:oam\"\nweb: oam.#Apply & {}",
            "import \"vela/op\"\nweb: op.#ApplyComponent & {}",
        ] {
            assert!(applies_components(template), "{template}");
        }
        assert!(!applies_components("import \"vela/op\"\nweb: op.#Apply & {}"));
    }

    #[test]
    fn functions_of_op_belong_to_the_provider_that_does_them() {
        assert_eq!(resolve_op("read-config"), ("config", "read"));
        assert_eq!(resolve_op("do"), ("http", "do"));
        let (provider, function) = resolve_op("send-email");
        let is_supported = |provider, function| is_supported(Caller::Step, provider, function);
        assert!(!is_supported(provider, function));
        assert!(is_supported("kube", "list") && !is_supported("kube", "wait"));
    }

    #[test]
    fn components_read_and_change_nothing() {
        let is_supported = |provider, function| is_supported(Caller::Component, provider, function);
        assert!(is_supported("kube", "get") && is_supported("http", "do"));
        for function in ["apply", "patch", "delete"] {
            assert!(!is_supported("kube", function), "{function}");
        }
        let message = unsupported_function(Caller::Component, "kube", "patch");
        assert!(
            message.starts_with("kube.patch is not supported by this controller: a component may"),
            "{message}"
        );
    }
}
