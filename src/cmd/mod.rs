//! The command line: one file for each subcommand; wiring lives here and nowhere else.
//!
//! Exit codes: 0 all well, 1 failed, 2 wrong usage. A second signal ends the process with 143 (SIGTERM) or 130 (SIGINT).

mod age;
mod applications;
mod cluster;
mod crds;
mod database;
mod delete;
mod deprecated_flags;
mod env_credentials;
mod flags;
mod history;
mod invalidate_cache;
mod kubeapps_compat;
mod logging;
mod output;
mod parse;
mod progress;
mod resync;
mod run;
mod search;
mod show;
mod status;
mod sync;
mod sync_context;
mod unused;

use std::{ffi::OsString, future::Future, num::NonZeroU32, process::ExitCode, time::Duration};

use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::text::printable;
use flags::LogFlags;

/// Keeps a catalogue of Helm charts in step with the repositories that a Kubernetes cluster declares.
///
/// Every flag may also be given as the environment variable that stands beside it. Exit codes: 0 all well, 1 failed, 2 wrong usage.
#[derive(Parser, Debug)]
#[command(name = "portolan", version, args_override_self = true, max_term_width = 140)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(Box<run::Run>),
    Sync(Box<sync::Sync>),
    Delete(delete::Delete),
    InvalidateCache(invalidate_cache::InvalidateCache),
    Crds(crds::Crds),
    Status(status::Status),
    History(history::History),
    Search(search::Search),
    Show(show::Show),
    Resync(resync::Resync),
    Apps(applications::Apps),
}

/// Why a command has not done what it was asked for.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Failure {
    /// The command was given something that it can't mean: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// It could not be done: exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    fn usage(message: impl Into<String>) -> Self {
        Self::Usage(message.into())
    }

    fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
        }
    }
}

/// The whole program: reads the arguments, does what they ask, and says how it went.
#[must_use]
pub fn main() -> ExitCode {
    crate::http::install_crypto_provider();
    let cli = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to the standard output, errors to the standard error output; there is nobody to tell if that fails.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match cli.command.execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {}", printable(&failure.to_string()));
            ExitCode::from(failure.exit_code())
        }
    }
}

fn command() -> clap::Command {
    // The help names the variables; what is in them is nobody's business, least of all that of a log in which help is printed.
    Cli::command().mut_subcommands(|command| command.mut_args(|argument| with_value(argument.hide_env_values(true))))
}

/// Lets a boolean flag take a value as Go's flags do: `--flag`, `--flag=false`.
fn with_value(argument: Arg) -> Arg {
    if !matches!(argument.get_action(), ArgAction::SetTrue) {
        return argument;
    }
    let argument = match argument.get_default_values() {
        [] => argument.default_value("false"),
        _ => argument,
    };
    argument
        .action(ArgAction::Set)
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .value_name("BOOL")
        .value_parser(parse::boolean)
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(kubeapps_compat::arguments(arguments))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

impl Command {
    fn execute(self) -> Result<(), Failure> {
        let (flags, quiet) = self.logging();
        logging::start(flags, quiet)?;
        match self {
            Self::Run(command) => block_on(command.execute()),
            Self::Sync(command) => block_on(command.execute()),
            Self::Delete(command) => block_on(command.execute()),
            Self::InvalidateCache(command) => block_on(command.execute()),
            Self::Crds(command) => block_on(command.execute()),
            Self::Status(command) => block_on(command.execute()),
            Self::History(command) => block_on(command.execute()),
            Self::Search(command) => block_on(command.execute()),
            Self::Show(command) => block_on(command.execute()),
            Self::Resync(command) => block_on(command.execute()),
            Self::Apps(command) => block_on(command.execute()),
        }
    }

    /// The logging flags, and what is logged where they say nothing: commands that answer a question keep quiet.
    fn logging(&self) -> (&LogFlags, Option<&'static str>) {
        const QUIET: Option<&str> = Some("warn");
        match self {
            Self::Run(command) => (&command.logging, None),
            Self::Sync(command) => (&command.one_shot.logging, None),
            Self::Delete(command) => (&command.one_shot.logging, None),
            Self::InvalidateCache(command) => (&command.logging, None),
            Self::Crds(command) => (&command.logging, QUIET),
            Self::Status(command) => (&command.logging, QUIET),
            Self::History(command) => (&command.logging, QUIET),
            Self::Search(command) => (&command.logging, QUIET),
            Self::Show(command) => (&command.logging, QUIET),
            Self::Resync(command) => (&command.logging, QUIET),
            Self::Apps(command) => (&command.logging, QUIET),
        }
    }
}

/// Returns a count from flags as a size.
fn count(number: NonZeroU32) -> usize {
    usize::try_from(number.get()).unwrap_or(usize::MAX)
}

fn block_on(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // A commit to Postgres, unoptimised, is polled through some two megabytes of frames.
        .thread_stack_size(4 * 1024 * 1024)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("can't start the runtime: {error}")))?;
    let result = runtime.block_on(command);
    // A file on a server that is gone, or a name that is being looked up, can't be cancelled and is not waited for.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

#[cfg(test)]
mod tests;
