//! Flags of Kubeapps' controller and syncer that have lost their meaning: accepted, so that an existing Deployment or Job starts as it is,
//! and answered by one warning that says what replaced each.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, error::Error};

/// One such flag.
struct Obsolete {
    name: &'static str,
    /// The other spelling: the flag library of Kubernetes reads an underscore and a dash alike.
    alias: Option<&'static str>,
    short: Option<char>,
    /// Whether it stands alone (`--flag`, `--flag=false`) rather than with a value.
    boolean: bool,
    /// What to know instead, as the end of the sentence "--flag: …".
    instead: &'static str,
}

const fn with_value(name: &'static str, instead: &'static str) -> Obsolete {
    Obsolete {
        name,
        alias: None,
        short: None,
        boolean: false,
        instead,
    }
}

const fn boolean(name: &'static str, instead: &'static str) -> Obsolete {
    Obsolete {
        boolean: true,
        ..with_value(name, instead)
    }
}

impl Obsolete {
    const fn or(self, alias: &'static str) -> Self {
        Self {
            alias: Some(alias),
            ..self
        }
    }
}

const NO_JOBS: &str = "repositories are synced inside this process, no CronJobs and Jobs are made";
const LOGGING: &str = "use --log-level and --log-format; logs go to the standard error output";

const OBSOLETE: &[Obsolete] = &[
    with_value("repo-sync-image", NO_JOBS),
    with_value("repo-sync-image-pullsecrets", NO_JOBS),
    with_value("repo-sync-cmd", NO_JOBS),
    with_value("ttl-lifetime-afterfinished-job", NO_JOBS),
    with_value("active-deadline-seconds", "use --fetch-timeout"),
    with_value("successful-jobs-history-limit", "the history is kept in the catalogue"),
    with_value("failed-jobs-history-limit", "the history is kept in the catalogue"),
    with_value("concurrency-policy", "a repository is never synced twice at once"),
    with_value("custom-annotations", NO_JOBS),
    with_value("custom-labels", NO_JOBS),
    boolean("v1-beta1-cron-jobs", NO_JOBS),
    with_value("oci-catalog-url", "no catalogue service is asked"),
    Obsolete {
        short: Some('v'),
        ..with_value("v", LOGGING)
    },
    with_value("vmodule", LOGGING),
    with_value("stderrthreshold", LOGGING),
    with_value("log_dir", LOGGING).or("log-dir"),
    with_value("log_file", LOGGING).or("log-file"),
    with_value("log_file_max_size", LOGGING).or("log-file-max-size"),
    with_value("log_backtrace_at", LOGGING).or("log-backtrace-at"),
    boolean("logtostderr", LOGGING),
    boolean("alsologtostderr", LOGGING),
    boolean("add_dir_header", LOGGING).or("add-dir-header"),
    boolean("one_output", LOGGING).or("one-output"),
    boolean("skip_headers", LOGGING).or("skip-headers"),
    boolean("skip_log_headers", LOGGING).or("skip-log-headers"),
];

/// The obsolete flags that were given.
#[derive(Clone, Debug, Default)]
pub struct ObsoleteFlags {
    given: Vec<(&'static str, &'static str)>,
}

impl ObsoleteFlags {
    /// One sentence about all that were given, `None` if none was. Flags of one answer stand together.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        if self.given.is_empty() {
            return None;
        }
        let mut answers: Vec<(&str, Vec<String>)> = Vec::new();
        for (name, instead) in &self.given {
            let flag = format!("--{name}");
            match answers.iter_mut().find(|(answer, _)| answer == instead) {
                Some((_, flags)) => flags.push(flag),
                None => answers.push((instead, vec![flag])),
            }
        }
        let parts: Vec<String> = answers
            .into_iter()
            .map(|(answer, flags)| format!("{}: {answer}", flags.join(", ")))
            .collect();
        Some(format!(
            "these flags have no effect any more and can be left out. {}",
            parts.join(". ")
        ))
    }

    /// Logs the warning, if there is anything to say.
    pub fn warn(&self) {
        if let Some(warning) = self.warning() {
            tracing::warn!("{warning}");
        }
    }
}

impl FromArgMatches for ObsoleteFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = OBSOLETE
            .iter()
            .filter(|flag| matches.value_source(flag.name).is_some())
            .map(|flag| (flag.name, flag.instead))
            .collect();
        Ok(Self { given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ObsoleteFlags {
    fn augment_args(command: Command) -> Command {
        OBSOLETE.iter().fold(command, |command, flag| {
            let arg = Arg::new(flag.name)
                .long(flag.name)
                .hide(true)
                .action(ArgAction::Append)
                .help(flag.instead);
            let arg = match flag.short {
                Some(short) => arg.short(short),
                None => arg,
            };
            let arg = match flag.alias {
                Some(alias) => arg.alias(alias),
                None => arg,
            };
            command.arg(if flag.boolean {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true")
            } else {
                arg.allow_hyphen_values(true)
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> ObsoleteFlags {
        let command = ObsoleteFlags::augment_args(Command::new("test").no_binary_name(true));
        ObsoleteFlags::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap()
    }

    #[test]
    fn one_warning_says_what_replaced_each_flag() {
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
            warning.contains("--repo-sync-image, --custom-labels: repositories are synced inside this process"),
            "{warning}"
        );
        assert!(warning.contains("--v, --logtostderr: use --log-level"), "{warning}");
        assert!(
            warning.contains("--concurrency-policy: a repository is never synced twice at once"),
            "{warning}"
        );
    }

    #[test]
    fn each_form_that_go_takes_is_taken() {
        for arguments in [
            &["-v=3"][..],
            &["-v3"],
            &["--v=3"],
            &["--v", "3"],
            &["--logtostderr=false"],
            &["--skip-headers"],
            &["--v1-beta1-cron-jobs"],
        ] {
            assert_eq!(parse(arguments).given.len(), 1, "{arguments:?}");
        }
        assert_eq!(parse(&["--custom-labels=a=b", "--custom-labels=c=d"]).given.len(), 1);
    }

    #[test]
    fn nothing_is_said_when_none_was_given() {
        assert_eq!(parse(&[]).warning(), None);
    }
}
