//! The command line: one file per subcommand.
//!
//! Exit codes: 0 success, 1 failure, 2 invalid usage. A second signal exits with 143 (SIGTERM) or 130 (SIGINT).

mod app;
mod applications;
mod catalog;
mod debug;
mod delete;
pub mod flags;
mod gc;
mod history;
mod install;
mod logging;
mod output;
mod resync;
mod run;
mod search;
mod show;
mod status;
mod sync;

use std::{ffi::OsString, fmt::Display, process::ExitCode, time::Duration};

use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::controllers::apprepository::sync::filter_process::serve_if_child;
use crate::text::sanitize;
use flags::{LogFlags, LogFormat, parse::boolean, program_name};

/// Sync Helm chart repositories and OCI registries into the database that Kubeapps reads
///
/// Every flag can also be set by the environment variable next to it. Exit codes: 0 success, 1 failure, 2 invalid usage.
#[derive(Parser, Debug)]
#[command(name = "portolan", version, args_override_self = true, max_term_width = 140)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logging: LogFlags,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(Box<run::Run>),
    Sync(Box<sync::Sync>),
    Delete(delete::Delete),
    InvalidateCache(delete::InvalidateCache),
    Gc(Box<gc::Gc>),
    Catalog(catalog::CatalogCommand),
    Crds(install::crds::Crds),
    InstallCrds(install::crds::InstallCrds),
    Status(status::Status),
    History(history::History),
    Search(search::Search),
    Show(show::Show),
    Resync(resync::Resync),
    Apps(applications::Apps),
    App(app::App),
    Definitions(app::Definitions),
    Doctor(install::doctor::Doctor),
    Debug(debug::Debug),
    Uninstall(install::uninstall::Uninstall),
}

/// A message for the user. Does not implement [`std::error::Error`], so that `?` converts all types that do.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    Usage(String),
    Failed(String),
}

impl Error {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
        }
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Failed(error.to_string())
    }
}

fn failed_to<E: Display>(action: impl Display) -> impl FnOnce(E) -> Error {
    move |error| Error::Failed(format!("failed to {action}: {error}"))
}

#[must_use]
pub fn main() -> ExitCode {
    if let Some(code) = serve_if_child(std::env::args_os()) {
        return code;
    }
    crate::http::install_crypto_provider();
    let cli = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => {
            // Prints help and version too. Nothing is left to report to if it fails.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let log_format = cli.logging.log_format;
    match cli.execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error, log_format);
            ExitCode::from(error.exit_code())
        }
    }
}

fn report(error: &Error, log_format: LogFormat) {
    let (Error::Usage(message) | Error::Failed(message)) = error;
    // False before the log has started, and if its filter hides errors.
    if log_format == LogFormat::Json && tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("{message}");
    } else {
        eprintln!("error: {}", sanitize(message));
    }
}

fn command() -> clap::Command {
    complete_all(Cli::command()).mut_subcommand("gc", gc::hide_other_flags)
}

fn complete_all(command: clap::Command) -> clap::Command {
    command.mut_args(complete).mut_subcommands(complete_all)
}

/// Lets PORTOLAN_SOME_FLAG set `--some-flag`, and booleans take a value as in Go: `--flag`, `--flag=false`.
fn complete(argument: Arg) -> Arg {
    let long = argument.get_long().filter(|_| !argument.is_hide_set());
    let variable = long.map(|long| format!("PORTOLAN_{}", long.replace('-', "_").to_uppercase()));
    let argument = match variable {
        // Values may be secret, and help may be logged.
        Some(variable) => argument.env(variable).hide_env_values(true),
        None => argument,
    };
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
        .value_parser(boolean)
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut command = command();
    let (arguments, kubevela) = run::kubevela::extract(&mut command, program_name::arguments(arguments))?;
    let matches = command.try_get_matches_from_mut(arguments)?;
    let mut cli = Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    if let (Some(kubevela), Command::Run(run)) = (kubevela, &mut cli.command) {
        cli.logging.debug |= kubevela.flags.log_debug || kubevela.flags.verbosity >= 2;
        if kubevela.flags.dev_logs {
            cli.logging.log_format = LogFormat::Text;
        }
        run.kubevela = Some(Box::new(kubevela.with_sources(&matches)));
    }
    Ok(cli)
}

impl Cli {
    fn execute(self) -> Result<(), Error> {
        use Command::{
            App, Apps, Catalog, Crds, Debug, Definitions, Delete, Doctor, Gc, History, InstallCrds, InvalidateCache,
            Resync, Run, Search, Show, Status, Sync, Uninstall,
        };
        let is_query = !matches!(self.command, Run(_) | Sync(_) | Delete(_) | InvalidateCache(_) | Gc(_));
        let (file, traces) = match &self.command {
            Run(run) => (run.log_file(), run.traces.options()?),
            _ => (None, None),
        };
        let default_filter = is_query.then_some("warn");
        let logging = logging::start(&self.logging, file.as_ref(), default_filter, traces.as_ref())?;
        match self.command {
            Run(command) => block_on(command.execute(logging)),
            Sync(command) => block_on(command.execute()),
            Delete(command) => block_on(command.execute()),
            InvalidateCache(command) => block_on(command.execute()),
            Gc(command) => block_on(command.execute()),
            Catalog(command) => block_on(command.execute()),
            Crds(command) => block_on(command.execute()),
            InstallCrds(command) => block_on(command.execute()),
            Doctor(command) => block_on(command.execute()),
            Debug(command) => block_on(command.execute()),
            Status(command) => block_on(command.execute()),
            History(command) => block_on(command.execute()),
            Search(command) => block_on(command.execute()),
            Show(command) => block_on(command.execute()),
            Resync(command) => block_on(command.execute()),
            Apps(command) => block_on(command.execute()),
            App(command) => block_on(command.execute()),
            Definitions(command) => block_on(command.execute()),
            Uninstall(command) => block_on(command.execute()),
        }
    }
}

fn block_on(command: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // Without optimizations, polling a commit to Postgres takes 2 MB of stack.
        .thread_stack_size(4 * 1024 * 1024)
        .enable_all()
        .build()
        .map_err(failed_to("start the tokio runtime"))?;
    let result = runtime.block_on(command);
    // Blocking calls, such as file system access and DNS lookups, cannot be canceled.
    runtime.shutdown_timeout(Duration::from_millis(500));
    result
}

#[cfg(test)]
mod tests;
