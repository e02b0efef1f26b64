use clap::Args;

use super::run::{ControllerName, Run};
use super::{Error, failed_to, output};
use crate::controllers::apprepository::garbage::report::GarbageReport;
use crate::manager::{self, gc::Mode, shutdown};

/// They decide what is garbage. Other arguments are accepted, so that both commands can share a file of variables.
const USED: [&str; 18] = [
    "manifests",
    "watch_namespace",
    "namespace",
    "repos_per_namespace",
    "kubeconfig",
    "context",
    "apiserver",
    "cluster_id",
    "database_url",
    "database_user",
    "database_name",
    "database_connections",
    "database_pooler",
    "database_secret_name",
    "database_secret_key",
    "adopt_kubeapps",
    "confirm_removals",
    "dry_run",
];

/// Remove what deleted repositories left behind: rows, files, Jobs, copies of Secrets, expired Leases
///
/// `portolan run` does the same at its start and every --gc-interval. Use the same flags as for `portolan run`; with SQLite,
/// stop it first, but for --dry-run. Nothing is removed without a complete list of the declared repositories, and more than half of them only
/// with --confirm-removals.
#[derive(Args, Debug)]
pub struct Gc {
    /// Print what would be removed, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub run: Run,
}

/// Hides the flags of `portolan run` that change nothing here.
pub(super) fn hide_other_flags(command: clap::Command) -> clap::Command {
    command.mut_args(|argument| {
        let is_used = USED.contains(&argument.get_id().as_str());
        if is_used { argument } else { argument.hide(true) }
    })
}

impl Gc {
    pub(super) async fn execute(mut self) -> Result<(), Error> {
        self.run.controllers = vec![ControllerName::AppRepository];
        self.run.leader.enable_leader_election = false;
        self.run.serve = Some(String::new());
        let options = self.run.options()?;
        let shutdown = shutdown::on_signal().map_err(failed_to("listen for signals"))?;
        let mode = if self.dry_run { Mode::Preview } else { Mode::Remove };
        let report = manager::gc::run(&options, mode, shutdown).await?;
        print(&report, mode)
    }
}

fn print(report: &GarbageReport, mode: Mode) -> Result<(), Error> {
    let verb = match mode {
        Mode::Remove => "removed",
        Mode::Preview => "would remove",
    };
    let mut text = format!("{verb} {report}\n");
    for garbage in &report.garbage {
        for name in &garbage.names {
            text.push_str(&format!("  {}\t{name}\n", garbage.kind.label()));
        }
    }
    output::print(&text)?;
    let skipped = report
        .skipped
        .iter()
        .map(|reason| format!("repositories and their objects were not looked for: {reason}"));
    let failures = report
        .failures
        .iter()
        .map(|(kind, error)| format!("failed to collect {}: {error}", kind.label()));
    let problems: Vec<String> = skipped.chain(failures).collect();
    output::fail_with_each(&problems, "not all garbage was looked for or removed")
}
