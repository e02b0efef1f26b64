//! The command line: one file per subcommand.
//!
//! Exit codes: 0 success, 1 failure, 2 invalid usage, 3 a release is outdated (`outdated --fail-on`). A second signal exits with
//! 143 (SIGTERM) or 130 (SIGINT).

mod applications;
mod catalog;
mod cluster;
mod completion;
mod debug;
mod delete;
pub mod flags;
mod gc;
mod groups;
mod history;
mod install;
mod logging;
mod man;
mod outdated;
mod output;
mod receiver;
pub mod reference;
mod resync;
mod run;
mod search;
mod serve;
mod server;
mod show;
mod status;
mod sync;
mod vela;

use std::{ffi::OsString, fmt::Display, process::ExitCode, time::Duration};

use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::controllers::apprepository::sync::filter_process::serve_if_child;
use crate::text::sanitize;
use flags::{LogFlags, LogFormat, parse::go_boolean, program_name};

const PROGRAM: &str = "portolan";

/// Three Kubernetes controllers in one process: a catalog of Helm charts, and two kinds of Applications
///
/// `apprepository` syncs the Helm and OCI repositories that AppRepositories declare into the catalog, a database that Kubeapps
/// reads. `application` reports the readiness of Applications of app.k8s.io. `oam` deploys Applications of KubeVela
/// (core.oam.dev).
///
/// Every flag can also be set by the environment variable next to it. Exit codes: 0 success, 1 failure, 2 invalid usage,
/// 3 a release is outdated (`outdated --fail-on`).
#[derive(Parser, Debug)]
#[command(name = PROGRAM, version, args_override_self = true, max_term_width = 140)]
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
    Status(status::Status),
    History(history::History),
    Search(search::Search),
    Show(show::Show),
    Outdated(Box<outdated::Outdated>),
    Serve(Box<serve::Serve>),
    Receiver(receiver::Receiver),
    Resync(resync::Resync),
    Apps(applications::Apps),
    Vela(vela::Vela),
    Cluster(Box<cluster::Cluster>),
    Doctor(Box<install::doctor::Doctor>),
    Debug(debug::Debug),
    Uninstall(install::uninstall::Uninstall),
    Completion(completion::Completion),
    Man(man::Man),
}

/// A message for the user. Does not implement [`std::error::Error`], so that `?` converts all types that do.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    Usage(String),
    Failed(String),
    /// The command has done its work, and found what it was asked to fail on.
    Found(String),
}

impl Error {
    fn into_message(self) -> String {
        let (Self::Usage(message) | Self::Failed(message) | Self::Found(message)) = self;
        message
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
            Self::Found(_) => 3,
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
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = completion::answer(&arguments) {
        return code;
    }
    let cli = match parse(arguments) {
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
            let code = error.exit_code();
            report(&error.into_message(), log_format);
            ExitCode::from(code)
        }
    }
}

fn report(message: &str, log_format: LogFormat) {
    // False before the log has started, and if its filter hides errors.
    if log_format == LogFormat::Json && tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!("{message}");
    } else {
        eprintln!("error: {}", sanitize(message));
    }
}

fn command() -> clap::Command {
    // Hidden flags of `serve` have no variables, which are set for `run`.
    let command = Cli::command().mut_subcommand("serve", serve::hide_other_flags);
    let command = complete_all(command).mut_subcommand("gc", gc::hide_other_flags);
    let command = completion::add_names(command);
    let help = groups::help_template(&command);
    command.help_template(help)
}

fn complete_all(command: clap::Command) -> clap::Command {
    command.mut_args(complete).mut_subcommands(complete_all)
}

/// Lets PORTOLAN_SOME_FLAG set `--some-flag`, and booleans take a value as in Go.
fn complete(argument: Arg) -> Arg {
    let has_variable = !argument.is_hide_set() && argument.get_id() != run::HELP_KUBEVELA;
    let long = argument.get_long().filter(|_| has_variable);
    let variable = long.map(|long| format!("PORTOLAN_{}", long.replace('-', "_").to_uppercase()));
    let argument = match variable {
        // Values may be secret, and help may be logged.
        Some(variable) => argument.env(variable).hide_env_values(true),
        None => argument,
    };
    completion::complete_namespace(go_boolean(argument))
}

fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = command();
    if program_name::is_kubectl_plugin(&arguments) {
        command = command.bin_name("kubectl portolan");
    }
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
            Apps, Catalog, Cluster, Completion, Crds, Debug, Delete, Doctor, Gc, History, InvalidateCache, Man,
            Outdated, Receiver, Resync, Run, Search, Serve, Show, Status, Sync, Uninstall, Vela,
        };
        let is_query = !matches!(
            self.command,
            Run(_) | Serve(_) | Sync(_) | Delete(_) | InvalidateCache(_) | Gc(_)
        );
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
            Doctor(command) => block_on(command.execute()),
            Debug(command) => block_on(command.execute()),
            Status(command) => block_on(command.execute()),
            History(command) => block_on(command.execute()),
            Search(command) => block_on(command.execute()),
            Show(command) => block_on(command.execute()),
            Outdated(command) => block_on(command.execute()),
            Serve(command) => block_on(command.execute()),
            Receiver(command) => block_on(command.execute()),
            Resync(command) => block_on(command.execute()),
            Apps(command) => block_on(command.execute()),
            Vela(command) => block_on(command.execute()),
            Cluster(command) => block_on(command.execute()),
            Uninstall(command) => block_on(command.execute()),
            Completion(command) => command.execute(),
            Man(command) => command.execute(),
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
