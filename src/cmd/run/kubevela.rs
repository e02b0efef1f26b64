//! KubeVela's flags among the arguments of `portolan run`, if the controller oam is enabled.

use std::ffi::OsString;

use clap::error::{Error, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

use crate::cmd::flags::vela::{Arity, VelaFlags, extract as extract_flags, find};
use crate::controllers::oam;

/// Flags of both, which mean the same.
const SHARED: [&str; 6] = [
    "enable-leader-election",
    "leader-election-namespace",
    "leader-election-lease-duration",
    "leader-election-renew-deadline",
    "leader-election-retry-period",
    "kube-api-qps",
];

#[derive(Clone, Debug)]
pub struct KubeVela {
    pub flags: VelaFlags,
    /// One for each flag that is ignored or unknown.
    pub warnings: Vec<String>,
    /// `--listen` is set, and replaces KubeVela's addresses.
    pub has_listen: bool,
}

impl KubeVela {
    /// Records which flags of `portolan run` are set by an argument or an environment variable.
    pub(in crate::cmd) fn with_sources(mut self, matches: &ArgMatches) -> Self {
        let run = matches.subcommand_matches("run");
        let source = run.and_then(|run| run.value_source("listen"));
        self.has_listen = !matches!(source, None | Some(ValueSource::DefaultValue));
        self
    }
}

/// Separates KubeVela's flags from the arguments of the program. Returns none unless they run the controller oam.
pub(in crate::cmd) fn extract(
    command: &mut Command,
    arguments: Vec<OsString>,
) -> Result<(Vec<OsString>, Option<KubeVela>), Error> {
    let Some(start) = after_run(command, &arguments) else {
        return Ok((arguments, None));
    };
    let (program, flags) = arguments.split_at(start);
    if !runs_oam(flags) {
        return Ok((arguments, None));
    }
    command.build();
    let flags = texts(flags).map_err(|message| command.error(ErrorKind::InvalidUtf8, message))?;
    let extracted = extract_flags(flags, |name| arity(command, name))
        .map_err(|message| command.error(ErrorKind::ValueValidation, message))?;
    let remaining = extracted.remaining.into_iter().map(OsString::from);
    let kubevela = KubeVela {
        flags: extracted.flags,
        warnings: extracted.warnings,
        has_listen: false,
    };
    Ok((program.iter().cloned().chain(remaining).collect(), Some(kubevela)))
}

fn texts(arguments: &[OsString]) -> Result<Vec<String>, String> {
    let texts = arguments
        .iter()
        .map(|argument| argument.to_str().map(str::to_owned).ok_or(argument));
    let texts: Result<Vec<String>, &OsString> = texts.collect();
    texts.map_err(|argument| format!("argument {} is not UTF-8", argument.display()))
}

/// Returns the index after the subcommand, if it is `run`.
fn after_run(command: &Command, arguments: &[OsString]) -> Option<usize> {
    let is_subcommand = |argument: &OsString| command.find_subcommand(argument).is_some();
    let index = arguments.iter().skip(1).position(is_subcommand)? + 1;
    (*arguments.get(index)? == *"run").then_some(index + 1)
}

/// Returns true if `--controllers`, or else its environment variable, names the controller.
fn runs_oam(flags: &[OsString]) -> bool {
    let mut values = Vec::new();
    let mut flags = flags.iter().map(|flag| flag.to_string_lossy());
    while let Some(flag) = flags.next() {
        if flag == "--" {
            break;
        } else if flag == "--controllers" {
            values.extend(flags.next());
        } else if let Some(value) = flag.strip_prefix("--controllers=") {
            values.push(value.to_owned().into());
        }
    }
    let variable = || std::env::var("PORTOLAN_CONTROLLERS").ok().map(Into::into);
    if values.is_empty() {
        values.extend(variable());
    }
    let mut names = values.iter().flat_map(|value| value.split(','));
    names.any(|name| name.trim() == oam::NAME)
}

/// Returns the form of a flag of `portolan run`, except of those that KubeVela's flag of the same name replaces.
fn arity(command: &Command, name: &str) -> Option<Arity> {
    let run = command.find_subcommand("run")?;
    let flag = find(run.get_arguments().chain(command.get_arguments()), name)?;
    let is_replaced = || find(VelaFlags::command().get_arguments(), name).is_some();
    if SHARED.contains(&name) || (flag.is_hide_set() && is_replaced()) {
        return None;
    }
    Some(Arity::of(flag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extract_from(arguments: &[&str]) -> Result<(Vec<String>, Option<KubeVela>), String> {
        let arguments = arguments.iter().map(OsString::from).collect();
        let extracted = extract(&mut crate::cmd::command(), arguments).map_err(|error| error.to_string())?;
        let remaining = extracted.0.into_iter().map(|argument| argument.into_string().unwrap());
        Ok((remaining.collect(), extracted.1))
    }

    #[test]
    fn arguments_without_the_controller_stay_as_they_are() {
        for arguments in [
            &["portolan", "run", "--controllers=apprepository", "--use-webhook"][..],
            &["portolan", "run", "--use-webhook"],
            &["portolan", "search", "--controllers=oam", "run"],
            &["portolan"],
        ] {
            let (remaining, kubevela) = extract_from(arguments).unwrap();
            assert_eq!(remaining, arguments);
            assert!(kubevela.is_none());
        }
    }

    #[test]
    fn flags_of_both_are_kubevelas_and_others_stay_at_their_place() {
        let (remaining, kubevela) = extract_from(&[
            "portolan",
            "--log-format",
            "json",
            "run",
            "--controllers",
            "application,oam",
            "--metrics-addr=0",
            "--enable-leader-election",
            "--listen",
            ":1",
            "--kube-api-qps=50",
            "--logtostderr",
            "--brand-new",
        ])
        .unwrap();
        let kubevela = kubevela.unwrap();
        let expected = [
            "portolan",
            "--log-format",
            "json",
            "run",
            "--controllers",
            "application,oam",
            "--listen",
            ":1",
        ];
        assert_eq!(remaining, expected);
        assert!(kubevela.flags.enable_leader_election);
        assert_eq!(
            (kubevela.flags.metrics_addr.as_str(), kubevela.flags.kube_api_qps),
            ("0", 50.0)
        );
        assert_eq!(kubevela.warnings, ["unknown flag --brand-new ignored"]);
    }

    #[test]
    fn an_invalid_value_is_an_error_of_usage() {
        let error = extract_from(&["portolan", "run", "--controllers=oam", "--webhook-port=x"]).unwrap_err();
        assert!(error.contains("invalid value \"x\" for --webhook-port"), "{error}");
    }

    #[test]
    fn help_is_not_an_unknown_flag() {
        let (remaining, _) = extract_from(&["portolan", "run", "--controllers=oam", "--help"]).unwrap();
        assert_eq!(remaining.last().unwrap(), "--help");
    }
}
