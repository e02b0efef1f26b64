//! The help of `portolan`: clap has one list of subcommands, and this program has groups of them.

use std::fmt::Write as _;

use clap::Command;

const WIDTH: usize = 18;

/// Commands of one heading.
pub(super) struct CommandGroup {
    pub(super) heading: &'static str,
    pub(super) commands: &'static [&'static str],
}

pub(super) const GROUPS: [CommandGroup; 5] = [
    CommandGroup {
        heading: "Controllers",
        commands: &["run"],
    },
    CommandGroup {
        heading: "Repositories and charts",
        commands: &[
            "status",
            "history",
            "search",
            "show",
            "outdated",
            "serve",
            "receiver",
            "resync",
            "sync",
            "delete",
            "invalidate-cache",
            "gc",
            "catalog",
        ],
    },
    CommandGroup {
        heading: "Applications (app.k8s.io)",
        commands: &["apps"],
    },
    CommandGroup {
        heading: "KubeVela",
        commands: &["vela", "cluster"],
    },
    CommandGroup {
        heading: "Installation and operation",
        commands: &["crds", "doctor", "debug", "uninstall", "completion"],
    },
];

/// Returns the template of the help of `portolan`, with its subcommands in groups.
pub(super) fn help_template(root: &Command) -> String {
    let header = root.get_styles().get_header();
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for group in &GROUPS {
        // A string takes all that is written.
        let _ = writeln!(text, "\n{header}{}:{header:#}", group.heading);
        for name in group.commands {
            let about = root.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:WIDTH$}{about}");
        }
    }
    let _ = write!(
        text,
        "\n{header}Options:{header:#}\n{{options}}\n\nSee `portolan help COMMAND` for the flags of a command."
    );
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    #[test]
    fn each_visible_command_is_in_one_group() {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in super::GROUPS.iter().flat_map(|group| group.commands) {
            *counts.entry(name).or_default() += 1;
        }
        let root = crate::cmd::command();
        let visible = root.get_subcommands().filter(|command| !command.is_hide_set());
        let expected = visible.map(|command| (command.get_name(), 1)).collect();
        assert_eq!(counts, expected);
    }

    #[test]
    fn names_of_commands_are_shorter_than_their_column() {
        let names = super::GROUPS.iter().flat_map(|group| group.commands);
        assert_eq!(
            names.map(|name| name.len()).max().map(|longest| longest + 2),
            Some(super::WIDTH)
        );
    }
}
