//! Flags of Kubeapps' controller and syncer without effect. An existing Deployment or Job starts with them, and logs one warning.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, error::Error};

/// Flags with the same replacement.
struct FlagGroup {
    replacement: &'static str,
    with_value: &'static [&'static str],
    boolean: &'static [&'static str],
}

const GROUPS: [FlagGroup; 6] = [
    FlagGroup {
        replacement: "repositories are synced by this process; with --executor=job, see the flags --job-*",
        with_value: &[
            "repo-sync-image",
            "repo-sync-image-pullsecrets",
            "repo-sync-cmd",
            "ttl-lifetime-afterfinished-job",
            "custom-annotations",
            "custom-labels",
        ],
        boolean: &["v1-beta1-cron-jobs"],
    },
    FlagGroup {
        replacement: "syncs of a repository never overlap",
        with_value: &["concurrency-policy"],
        boolean: &[],
    },
    FlagGroup {
        replacement: "use --fetch-timeout",
        with_value: &["active-deadline-seconds"],
        boolean: &[],
    },
    FlagGroup {
        replacement: "use `portolan history`",
        with_value: &["successful-jobs-history-limit", "failed-jobs-history-limit"],
        boolean: &[],
    },
    FlagGroup {
        replacement: "the registry itself is queried",
        with_value: &["oci-catalog-url"],
        boolean: &[],
    },
    FlagGroup {
        replacement: "use --log-level and --log-format",
        with_value: &[
            "v",
            "vmodule",
            "stderrthreshold",
            "log_dir",
            "log_file",
            "log_file_max_size",
            "log_backtrace_at",
        ],
        boolean: &[
            "logtostderr",
            "alsologtostderr",
            "add_dir_header",
            "one_output",
            "skip_headers",
            "skip_log_headers",
        ],
    },
];

impl FlagGroup {
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.with_value.iter().chain(self.boolean).copied()
    }

    fn warning(&self, matches: &ArgMatches) -> Option<String> {
        let is_set = |name: &&str| matches.value_source(name).is_some();
        let flags: Vec<String> = self.names().filter(is_set).map(|name| format!("--{name}")).collect();
        (!flags.is_empty()).then(|| format!("{} ({})", flags.join(", "), self.replacement))
    }
}

#[derive(Clone, Debug, Default)]
pub struct DeprecatedFlags {
    warnings: Vec<String>,
}

impl DeprecatedFlags {
    pub fn warning(&self) -> Option<String> {
        let has_warnings = !self.warnings.is_empty();
        has_warnings.then(|| format!("ignoring deprecated flags: {}", self.warnings.join("; ")))
    }

    pub fn warn(&self) {
        if let Some(warning) = self.warning() {
            tracing::warn!("{warning}");
        }
    }
}

impl FromArgMatches for DeprecatedFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let warnings = GROUPS.iter().filter_map(|group| group.warning(matches)).collect();
        Ok(Self { warnings })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for DeprecatedFlags {
    fn augment_args(mut command: Command) -> Command {
        for group in &GROUPS {
            for name in group.names() {
                let argument = Arg::new(name)
                    .long(name)
                    // Kubernetes programs treat underscores and dashes in flags alike.
                    .aliases(name.contains('_').then(|| name.replace('_', "-")))
                    .hide(true)
                    .action(ArgAction::Append);
                let argument = match name {
                    "v" => argument.short('v'),
                    _ => argument,
                };
                command = command.arg(if group.boolean.contains(&name) {
                    argument
                        .num_args(0..=1)
                        .require_equals(true)
                        .default_missing_value("true")
                } else {
                    argument.allow_hyphen_values(true)
                });
            }
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> DeprecatedFlags {
        let command = DeprecatedFlags::augment_args(Command::new("test").no_binary_name(true));
        DeprecatedFlags::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    #[test]
    fn one_warning_names_the_replacement_of_each_flag() {
        let flags = parse(&[
            "--repo-sync-image=x",
            "--custom-labels=\"a=b\"",
            "--logtostderr",
            "-v",
            "4",
            "--concurrency-policy",
            "Replace",
        ]);
        let warning = flags.warning().unwrap();
        assert!(
            warning.contains("--repo-sync-image, --custom-labels (repositories are synced by this process"),
            "{warning}"
        );
        assert!(warning.contains("--v, --logtostderr (use --log-level"), "{warning}");
        assert!(
            warning.contains("--concurrency-policy (syncs of a repository never overlap)"),
            "{warning}"
        );
    }

    #[test]
    fn all_forms_of_go_flags_are_accepted() {
        for arguments in [
            &["-v=3"][..],
            &["-v3"],
            &["--v=3"],
            &["--v", "3"],
            &["--logtostderr=false"],
            &["--skip-headers"],
            &["--v1-beta1-cron-jobs"],
        ] {
            assert_eq!(parse(arguments).warnings.len(), 1, "{arguments:?}");
        }
        assert_eq!(parse(&["--custom-labels=a=b", "--custom-labels=c=d"]).warnings.len(), 1);
    }

    #[test]
    fn there_is_no_warning_without_deprecated_flags() {
        assert_eq!(parse(&[]).warning(), None);
    }
}
