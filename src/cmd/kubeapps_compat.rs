//! The names under which the binary stands in for the programs that it replaces.

use std::{ffi::OsString, path::Path};

/// The controllers of Kubeapps and of kubernetes-sigs/application: what they did is `portolan run`.
const CONTROLLERS: [&str; 2] = ["apprepository-controller", "kube-app-manager"];
/// Kubeapps' syncer: what its Jobs called it for are the one-shot commands.
const SYNCER: &str = "asset-syncer";
const ONE_SHOT: [&str; 3] = ["sync", "delete", "invalidate-cache"];
/// Flags of Kubeapps' syncer that take a value and may stand before its subcommand.
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

/// The arguments as `portolan` would have been given them, going by the name that the binary was called by.
#[must_use]
pub fn arguments(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = given.into_iter().collect();
    let Some(program) = arguments.first() else {
        return vec!["portolan".into()];
    };
    let name = Path::new(program)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    match name.as_deref() {
        Some(name) if CONTROLLERS.contains(&name) => arguments.insert(1, "run".into()),
        Some(SYNCER) => command_first(&mut arguments[1..]),
        _ => {}
    }
    arguments
}

/// Moves the subcommand before the flags that precede it, where ours expects it.
fn command_first(arguments: &mut [OsString]) {
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

    fn of(given: &[&str]) -> Vec<String> {
        arguments(given.iter().map(OsString::from))
            .into_iter()
            .map(|part| part.into_string().unwrap())
            .collect()
    }

    #[test]
    fn called_as_kubeapps_controller_it_runs() {
        assert_eq!(
            of(&["/apprepository-controller", "--namespace=kubeapps"])[1..],
            ["run", "--namespace=kubeapps"]
        );
    }

    #[test]
    fn called_as_the_application_controller_it_runs() {
        let given = [
            "/kube-app-manager",
            "--metrics-addr=127.0.0.1:8080",
            "--enable-leader-election",
        ];
        assert_eq!(of(&given)[1..], ["run", given[1], given[2]]);
    }

    #[test]
    fn called_as_kubeapps_syncer_flags_may_stand_before_the_command() {
        assert_eq!(
            of(&[
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
            of(&["asset-syncer", "delete", "bitnami", "--namespace=a"])[1..],
            ["delete", "bitnami", "--namespace=a"]
        );
        assert_eq!(of(&["asset-syncer", "--help"])[1..], ["--help"]);
    }

    #[test]
    fn called_by_its_own_name_nothing_changes() {
        assert_eq!(of(&["/usr/bin/portolan", "--debug", "sync"])[1..], ["--debug", "sync"]);
        assert_eq!(of(&[]), ["portolan"]);
    }
}
