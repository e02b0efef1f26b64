//! How many instructions a sync takes, which nothing else on the machine changes: valgrind counts them, where it is installed.
//!
//! Each sync is a process of its own, `portolan sync`, on one SQLite database. It does not know the processor's instructions for
//! SHA-256, which is computed without them here, in the baseline too; and what the kernel does counts nowhere.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::baseline;
use crate::index::Index;
use crate::numbers::thousands;
use crate::report::Report;
use crate::support::chart_server::{ChartServer, Page};
use crate::support::portolan::{BINARY, command_as, run as run_to_the_end};
use crate::support::process::ScratchFolder;

const VALGRIND: &str = "valgrind";
const PATH: &str = "/big/index.yaml";

/// What was counted.
pub struct Instructions {
    about: String,
    /// From the start of a process to its end, when the server has nothing new.
    not_modified: u64,
    /// Above that.
    syncs: Vec<(&'static str, u64)>,
    baselines: Vec<(&'static str, u64)>,
}

impl Instructions {
    /// The table.
    pub fn text(&self) -> String {
        let millions = |count: u64| thousands((count / 1_000_000) as usize);
        let mut text = format!(
            "\nOne repository: {}, on SQLite.\n\n| case | million instructions |\n|---|---:|\n\
             | Unchanged, 304, with the start of the process | {} |\n",
            self.about,
            millions(self.not_modified)
        );
        for (title, count) in &self.syncs {
            let _ = writeln!(text, "| {title}, above that | {} |", millions(*count));
        }
        for (title, count) in &self.baselines {
            let _ = writeln!(text, "| *{title}* | {} |", millions(*count));
        }
        text
    }
}

/// Counts.
pub async fn run(report: &mut Report) {
    if Command::new(VALGRIND).arg("--version").output().is_err() {
        println!("instructions are not counted: valgrind is not installed");
        return;
    }
    let index = Index::standard();
    let (server, folder) = (ChartServer::start().await, ScratchFolder::new("instructions"));
    let database = format!("sqlite://{}", folder.join("portolan.db").display());
    let repository = server.url("/big");
    let sync = async |page: Page| {
        server.serve(PATH, page);
        let arguments = ["sync", "--database-url", &database, "big", &repository, "helm"];
        count(BINARY.as_ref(), &arguments).await
    };
    let page = Page::new(index.text.clone());
    let first = sync(page.clone()).await;
    let not_modified = sync(page.clone()).await;
    let no_etag = sync(page.without_etag()).await;
    let new_version = sync(Page::new(index.with_one_more(1))).await;
    let new_times = sync(Page::new(index.with_new_times(1))).await;
    let above = |all: u64| all - not_modified;
    let file = folder.write("index.yaml", &index.text).display().to_string();
    let this = std::env::current_exe().expect("this program is a file");
    let of_baseline = async |name: &str| count(&this, &[baseline::ARGUMENT, name, &file]).await;
    let instructions = Instructions {
        about: index.described(),
        not_modified,
        syncs: vec![
            ("First sync", above(first)),
            ("Unchanged, no ETag", above(no_etag)),
            ("One new version of the largest chart", above(new_version)),
            (
                "That version gone, and `created` rewritten on all entries",
                above(new_times),
            ),
        ],
        baselines: vec![
            ("read and SHA-256", of_baseline("hash").await),
            ("`serde_yaml`, a parse", of_baseline("json").await),
        ],
    };
    println!("{}", instructions.text());
    report.instructions = Some(instructions);
}

/// The instructions of a process, from its start to its end.
async fn count(program: &Path, arguments: &[&str]) -> u64 {
    let program = program.display().to_string();
    let mut all = vec!["--tool=callgrind", "--callgrind-out-file=/dev/null", &program];
    all.extend(arguments);
    let mut command = command_as(VALGRIND.as_ref(), all);
    command.env("PORTOLAN_VERIFY_DELTA", "false");
    let output = run_to_the_end(command).await;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let collected = told.lines().find_map(|line| line.split_once("Collected : "));
    let (_, collected) = collected.expect("valgrind says what it has counted");
    collected.trim().parse().expect("a number")
}
