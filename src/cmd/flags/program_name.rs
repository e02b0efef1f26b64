//! The names by which the binary is called: the programs that it replaces, and the plugin of kubectl.

use std::{ffi::OsString, path::Path};

/// The controllers of Kubeapps and of kubernetes-sigs/application, replaced by `portolan run`.
const CONTROLLERS: [&str; 2] = ["apprepository-controller", "kube-app-manager"];
/// Kubeapps' syncer, replaced by the one-shot commands.
const SYNCER: &str = "asset-syncer";
const ONE_SHOT: [&str; 3] = ["sync", "delete", "invalidate-cache"];
/// Flags of Kubeapps' syncer that take a value and can precede its subcommand.
const SYNCER_VALUES: [&str; 8] = [
    "--database-url",
    "--database-name",
    "--database-user",
    "--namespace",
    "--user-agent-comment",
    "--filter-rules",
    "--global-repos-namespace",
    "-v",
];
/// kubectl runs the program of this name for `kubectl portolan`.
const KUBECTL_PLUGIN: &str = "kubectl-portolan";

/// Returns true if the user has typed `kubectl portolan`.
#[must_use]
pub fn is_kubectl_plugin(arguments: &[OsString]) -> bool {
    let program = arguments.first().and_then(|program| Path::new(program).file_name());
    program.is_some_and(|program| program == KUBECTL_PLUGIN)
}

/// Returns the equivalent arguments of `portolan`.
pub fn arguments(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    let Some(program) = arguments.first() else {
        return vec!["portolan".into()];
    };
    let name = Path::new(program).file_name().unwrap_or_default().to_os_string();
    if CONTROLLERS.iter().any(|controller| *controller == name) {
        arguments.insert(1, "run".into());
    } else if name == SYNCER {
        move_command_first(&mut arguments[1..]);
    }
    arguments
}

/// Moves the subcommand before the flags that precede it, as clap requires.
fn move_command_first(arguments: &mut [OsString]) {
    let mut value_follows = false;
    for at in 0..arguments.len() {
        let argument = arguments[at].to_string_lossy();
        if std::mem::take(&mut value_follows) {
            continue;
        }
        if ONE_SHOT.contains(&&*argument) {
            arguments[..=at].rotate_right(1);
            return;
        }
        value_follows = SYNCER_VALUES.contains(&&*argument);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(called: &[&str]) -> Vec<String> {
        arguments(called.iter().map(OsString::from))
            .into_iter()
            .map(|part| part.into_string().unwrap())
            .collect()
    }

    #[test]
    fn the_name_of_kubeapps_controller_means_run() {
        assert_eq!(
            translated(&["/apprepository-controller", "--namespace=kubeapps"])[1..],
            ["run", "--namespace=kubeapps"]
        );
    }

    #[test]
    fn the_name_of_the_application_controller_means_run() {
        let called = [
            "/kube-app-manager",
            "--metrics-addr=127.0.0.1:8080",
            "--enable-leader-election",
        ];
        assert_eq!(translated(&called)[1..], ["run", called[1], called[2]]);
    }

    #[test]
    fn flags_can_precede_the_command_of_kubeapps_syncer() {
        assert_eq!(
            translated(&[
                "/asset-syncer",
                "--debug",
                "--namespace",
                "sync",
                "--database-url=db:5432",
                "sync",
                "bitnami",
                "https://x",
                "helm"
            ])[1..],
            [
                "sync",
                "--debug",
                "--namespace",
                "sync",
                "--database-url=db:5432",
                "bitnami",
                "https://x",
                "helm"
            ],
        );
        assert_eq!(
            translated(&["asset-syncer", "delete", "bitnami", "--namespace=a"])[1..],
            ["delete", "bitnami", "--namespace=a"]
        );
        assert_eq!(translated(&["asset-syncer", "--help"])[1..], ["--help"]);
    }

    #[test]
    fn a_plugin_of_kubectl_has_the_arguments_of_portolan() {
        let called = ["/usr/bin/kubectl-portolan", "status", "stable"];
        assert_eq!(translated(&called)[1..], ["status", "stable"]);
        assert!(is_kubectl_plugin(&called.map(OsString::from)));
        assert!(!is_kubectl_plugin(&["portolan".into(), "kubectl-portolan".into()]));
    }

    #[test]
    fn arguments_of_portolan_are_unchanged() {
        assert_eq!(
            translated(&["/usr/bin/portolan", "--debug", "sync"])[1..],
            ["--debug", "sync"]
        );
        assert_eq!(translated(&[]), ["portolan"]);
    }
}
