//! Imports of packages with functions, which stand at the head of a template.

/// The prefixes of packages that CUE does not have: of KubeVela, and of the cluster.
const PREFIXES: [&str; 2] = ["vela/", "ext/"];

/// Returns the packages of KubeVela and of the cluster that a template imports.
#[must_use]
pub fn function_packages(template: &str) -> Vec<&str> {
    let mut packages = Vec::new();
    let mut is_in_list = false;
    for line in template.lines().map(str::trim) {
        if line.is_empty() || line.starts_with("//") || line.starts_with("package ") {
            continue;
        }
        let import = line.strip_prefix("import");
        let import = import.filter(|rest| rest.starts_with(['"', '(', ' ', '\t']));
        let paths = match import.map(str::trim_start) {
            Some(list) if list.starts_with('(') => {
                is_in_list = !list.contains(')');
                list
            }
            Some(path) => path,
            None if is_in_list => {
                is_in_list = !line.starts_with(')');
                line
            }
            None => break,
        };
        let paths = paths.split('"').skip(1).step_by(2);
        let paths = paths.map(|path| path.split(':').next().unwrap_or_default());
        packages.extend(paths.filter(|path| PREFIXES.iter().any(|prefix| path.starts_with(prefix))));
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_with_functions_are_found_at_the_head_only() {
        let template = "// text\npackage x\n\nimport \"strings\"\nimport k \"vela/kube:kube\"\nimport (\n\t// \"vela/no\"\n\t\
                        \"list\"\n\t\"ext/bank\"\n)\nimport (\"vela/http\"; \"vela/cue\")\n\noutput: {a: \"vela/x\"}\n\
                        import \"vela/late\"\n";
        assert_eq!(
            function_packages(template),
            ["vela/kube", "ext/bank", "vela/http", "vela/cue"]
        );
        for none in ["", "important: \"vela/x\"", "import: \"vela/x\"", "\"vela/y\": 1"] {
            assert_eq!(function_packages(none), [] as [&str; 0], "{none}");
        }
    }
}
