//! The packages `vela/*` as CUE: each function is a definition with its provider, its name and its parameters. As in KubeVela,
//! templates of components and traits have other packages than those of steps, with the same names.
//!
//! Parameters have no defaults here: different defaults of a package and a template would leave no value.
//!
//! Functions of `vela/op` and `vela/ql` take arguments and results as fields of the call itself, all others in `$params` and `$returns`.

use std::collections::BTreeSet;

use super::types::Caller;
use crate::controllers::oam::source::CueImport;

/// The name of `encoding/json` in packages, and in what surrounds a template.
pub const JSON: &str = "velaJSON";

/// The packages of CUE that packages use, with their names there.
pub const IMPORTS: [(&str, &str); 2] = [(JSON, "encoding/json"), ("velaTime", "time")];

const OF_COMPONENTS: [(&str, &str); 4] = [
    ("base64", include_str!("packages/components/base64.cue")),
    ("cue", include_str!("packages/components/cue.cue")),
    ("http", include_str!("packages/components/http.cue")),
    ("kube", include_str!("packages/components/kube.cue")),
];

const OF_STEPS: [(&str, &str); 12] = [
    ("builtin", include_str!("packages/builtin.cue")),
    ("config", include_str!("packages/config.cue")),
    ("http", include_str!("packages/http.cue")),
    ("kube", include_str!("packages/kube.cue")),
    ("metrics", include_str!("packages/metrics.cue")),
    ("multicluster", include_str!("packages/multicluster.cue")),
    ("oam", include_str!("packages/oam.cue")),
    ("op", include_str!("packages/op.cue")),
    ("ql", include_str!("packages/ql.cue")),
    ("query", include_str!("packages/query.cue")),
    ("time", include_str!("packages/time.cue")),
    ("util", include_str!("packages/util.cue")),
];

/// A package of which no function is supported. Steps such as `notification` import it, and call it only for mail.
const PARTIAL: &str = "email";

/// Declares a package under `alias`. A function that is not there becomes a call that fails when its turn comes, since
/// templates name functions that most steps don't call.
#[must_use]
pub fn declaration(caller: Caller, alias: &str, package: &str, functions: &BTreeSet<String>) -> String {
    let text = text(caller, package);
    let mut declaration = format!("{alias}: {{\n{text}");
    for function in functions.iter().filter(|function| !declares(text, function)) {
        declaration.push_str(&format!(
            "{function}: {{#provider: \"{package}\", #do: \"{function}\", $params?: _, $returns?: _, ...}}\n"
        ));
    }
    declaration.push_str("}\n");
    declaration
}

/// Returns true if a package uses a package of CUE that has a name of [`IMPORTS`].
#[must_use]
pub fn uses(caller: Caller, package: &str, import: &str) -> bool {
    text(caller, package).contains(&format!("{import}."))
}

/// Returns true if templates of steps may have an import.
#[must_use]
pub fn supports_import(import: &CueImport) -> bool {
    let is_supported = |package: &str| package == PARTIAL || OF_STEPS.iter().any(|(name, _)| *name == package);
    import.vela_package().is_some_and(is_supported)
}

fn packages(caller: Caller) -> &'static [(&'static str, &'static str)] {
    match caller {
        Caller::Component => &OF_COMPONENTS,
        Caller::Step => &OF_STEPS,
    }
}

fn text(caller: Caller, package: &str) -> &'static str {
    let declared = packages(caller).iter().find(|(name, _)| *name == package);
    declared.map_or("", |(_, text)| text)
}

fn declares(text: &str, function: &str) -> bool {
    let is_declaration = |line: &str| line.strip_prefix(function).is_some_and(|rest| rest.starts_with(':'));
    text.lines().any(is_declaration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::oam::parse::FUNCTIONS;
    use crate::controllers::oam::source::function_imports;

    #[test]
    fn functions_that_are_not_there_become_calls_that_name_them() {
        let functions = BTreeSet::from(["#Read".to_owned(), "#Rea".to_owned()]);
        let declaration = declaration(Caller::Step, "k", "kube", &functions);
        assert!(declaration.starts_with("k: {\n#Apply: {"), "{declaration}");
        assert!(
            declaration.contains(r##"#Rea: {#provider: "kube", #do: "#Rea","##),
            "{declaration}"
        );
        assert_eq!(declaration.matches("#Read: {").count(), 1);
    }

    #[test]
    fn packages_name_the_packages_of_cue_that_they_use() {
        let uses = |package, import| uses(Caller::Step, package, import);
        assert!(uses("op", JSON) && uses("op", "velaTime") && uses("time", "velaTime"));
        assert!(!uses("time", JSON) && !uses("kube", JSON) && !uses("ext", JSON));
    }

    #[test]
    fn components_may_import_the_packages_that_are_here() {
        let packages = OF_COMPONENTS.map(|(name, _)| format!("vela/{name}"));
        assert_eq!(packages, FUNCTIONS.map(|(package, _)| package));
        for ((_, text), (package, functions)) in OF_COMPONENTS.into_iter().zip(FUNCTIONS) {
            for function in functions {
                assert!(declares(text, function), "{package}.{function}");
            }
        }
    }

    #[test]
    fn steps_may_import_the_packages_that_are_here_and_the_one_of_mail() {
        let is_supported = |package: &str| supports_import(&function_imports(&format!("import \"{package}\""))[0]);
        assert!(["vela/op", "vela/email", "vela/kube"].into_iter().all(is_supported));
        assert!(!["ext/bank", "vela/helm", "vela/unknown"].into_iter().any(is_supported));
    }

    #[test]
    fn packages_are_ascii_without_text_that_ends_them() {
        for (name, text) in OF_COMPONENTS.into_iter().chain(OF_STEPS) {
            assert!(text.is_ascii() && text.ends_with("}\n"), "{name}");
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{name}");
        }
    }
}
