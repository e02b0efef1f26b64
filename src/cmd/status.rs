//! `portolan status`: how the repositories are.

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::cluster::given;
use super::flags::{DatabaseFlags, LogFlags, OutputFlags, OutputForm};
use super::{Failure, age as ages, database, output};
use crate::api::NamespacedName;
use crate::catalog::query::RepositorySummary;
use crate::catalog::{self, Catalog, FilesMode, Progress, Record};
use crate::runtime::cron as schedule;
use crate::text::printable;

/// Show the repositories of the catalogue: whether each is ready, and why not; its charts; when it was and will be synced.
///
/// FILES is of how many versions the files (README, values, schema) are imported, and of how many there could be some: that is all
/// of them, each counted once, whatever `portolan run` was told to import by --chart-files.
#[derive(Args, Debug)]
pub struct Status {
    /// Only the repositories of this name
    pub name: Option<String>,
    /// Only those of this namespace; of all without it
    #[arg(long, short, env = "PORTOLAN_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    #[command(flatten)]
    pub output: OutputFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub logging: LogFlags,
}

impl Status {
    pub(super) async fn execute(self) -> Result<(), Failure> {
        let catalog = database::open_read_only(&self.database).await?;
        let now = Timestamp::now();
        let views = self.views(&catalog, now).await;
        catalog.close().await;
        let views = views.map_err(|error| Failure::failed(error.to_string()))?;
        if let (Some(name), true) = (&self.name, views.is_empty()) {
            return Err(Failure::failed(format!(
                "the catalogue has no repository {name}; `portolan status` lists all"
            )));
        }
        match self.output.output {
            OutputForm::Json => output::print_json(&views),
            OutputForm::Table => output::print(&text(&views, self.name.is_some(), now)),
        }
    }

    async fn views(&self, catalog: &Catalog, now: Timestamp) -> Result<Vec<View>, catalog::Error> {
        let mut views = Vec::new();
        for summary in catalog.repositories().await? {
            if self.is_asked_for(&summary.name) {
                let files = Files::of(catalog, &summary).await?;
                views.push(View::new(summary, files, now));
            }
        }
        Ok(views)
    }

    fn is_asked_for(&self, name: &NamespacedName) -> bool {
        self.name.as_ref().is_none_or(|asked| *asked == name.name)
            && given(self.namespace.as_deref()).is_none_or(|asked| asked == name.namespace)
    }
}

/// What is shown of a repository.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct View {
    namespace: String,
    name: String,
    url: String,
    /// Null: not known, as of a repository that only Kubeapps' syncer has been at.
    ready: Option<bool>,
    reason: String,
    message: String,
    /// Whether the failure passes only when something is changed.
    stalled: bool,
    failures: u32,
    charts: u64,
    versions: u64,
    /// Null: not known, as of a repository that only Kubeapps' syncer has been at.
    files: Option<Files>,
    last_attempt_time: Option<Timestamp>,
    last_success_time: Option<Timestamp>,
    /// Computed from the interval.
    next_sync_time: Option<Timestamp>,
    last_sync: Option<serde_json::Value>,
}

/// How far the files of a repository are. This command does not know which of them `run` is to import, so it counts all.
#[derive(Debug, Default, Serialize)]
struct Files {
    /// Versions whose files are there.
    imported: u64,
    /// All versions, each once.
    total: u64,
    /// Versions whose archives could not be had, again and again.
    failed: u64,
    /// The first of those that could not be had the last time, be it the only one, with the reasons.
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct Problem {
    chart: String,
    reason: String,
}

impl Files {
    /// How many problems are named.
    const NAMED: usize = 5;

    async fn of(catalog: &Catalog, summary: &RepositorySummary) -> Result<Option<Self>, catalog::Error> {
        if summary.record.is_none() {
            return Ok(None);
        }
        let Progress {
            total,
            imported,
            failed,
        } = catalog.files_progress(&summary.name, FilesMode::All).await?;
        let problems = catalog.files_problems(&summary.name, Self::NAMED).await?;
        Ok(Some(Self {
            imported,
            total,
            failed,
            problems: problems
                .into_iter()
                .map(|(chart, reason)| Problem { chart, reason })
                .collect(),
        }))
    }
}

impl View {
    fn new(summary: RepositorySummary, files: Option<Files>, now: Timestamp) -> Self {
        let RepositorySummary {
            name,
            url,
            charts,
            versions,
            record,
        } = summary;
        let record = record.unwrap_or_default();
        Self {
            next_sync_time: next_sync(&record, now),
            namespace: name.namespace,
            name: name.name,
            url: output::shown_url(&url),
            ready: record.state.ready,
            reason: record.state.reason,
            message: record.state.message,
            stalled: record.state.stalled,
            failures: record.state.failures,
            charts,
            versions,
            files,
            last_attempt_time: record.last_attempt,
            last_success_time: record.last_success,
            last_sync: record.last_sync,
        }
    }

    fn files(&self) -> String {
        let shown = |files: &Files| format!("{}/{}", files.imported, files.total);
        self.files.as_ref().map_or_else(|| "-".to_owned(), shown)
    }

    fn ready(&self) -> &'static str {
        match self.ready {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}

/// The next tick of the repository's schedule, with the delay that spreads repositories over it.
fn next_sync(record: &Record, now: Timestamp) -> Option<Timestamp> {
    let cron = schedule::parse(record.schedule.as_deref()?).ok()?;
    let tick = cron.next_after(now)?;
    let jitter = SignedDuration::try_from(schedule::jitter(&record.uid, cron.shortest_gap())).ok()?;
    tick.checked_add(jitter).ok()
}

/// A table, and below it what there is to say of those that are not ready, or of the one that was asked for.
fn text(views: &[View], named: bool, now: Timestamp) -> String {
    const HEADER: [&str; 9] = [
        "NAMESPACE",
        "NAME",
        "READY",
        "REASON",
        "CHARTS",
        "VERSIONS",
        "FILES",
        "LAST SYNC",
        "NEXT SYNC",
    ];
    if views.is_empty() {
        return "the catalogue has no repositories\n".to_owned();
    }
    let rows = views.iter().map(|view| {
        vec![
            view.namespace.clone(),
            view.name.clone(),
            view.ready().to_owned(),
            view.reason.clone(),
            view.charts.to_string(),
            view.versions.to_string(),
            view.files(),
            ages::distance(view.last_success_time, now),
            ages::distance(view.next_sync_time, now),
        ]
    });
    let mut text = output::table(&HEADER, rows);
    let said = views
        .iter()
        .filter(|view| named || view.ready == Some(false))
        .filter(|view| !view.message.is_empty());
    for (at, view) in said.enumerate() {
        if at == 0 {
            text.push('\n');
        }
        text.push_str(&printable(&format!(
            "{}/{}: {}",
            view.namespace, view.name, view.message
        )));
        text.push('\n');
    }
    let problems = views.iter().filter(|_| named).filter_map(|view| view.files.as_ref());
    for (at, problem) in problems.flat_map(|files| &files.problems).enumerate() {
        if at == 0 {
            text.push_str("\nno files of:\n");
        }
        text.push_str(&printable(&format!("  {}: {}", problem.chart, problem.reason)));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::State;

    fn now() -> Timestamp {
        "2026-03-01T12:03:00Z".parse().unwrap()
    }

    fn view(name: &str, ready: Option<bool>, message: &str) -> View {
        let record = Record {
            uid: "uid".to_owned(),
            schedule: Some("*/10 * * * *".to_owned()),
            last_success: Some("2026-03-01T12:00:30Z".parse().unwrap()),
            state: State {
                ready,
                reason: "Reason".to_owned(),
                message: message.to_owned(),
                ..State::default()
            },
            ..Record::default()
        };
        let name = NamespacedName::new("default", name);
        View::new(
            RepositorySummary {
                name,
                url: "https://x".to_owned(),
                charts: 3,
                versions: 7,
                record: Some(record),
            },
            Some(Files {
                imported: 4,
                total: 6,
                failed: 1,
                problems: vec![Problem {
                    chart: "good/web-1.0.0".to_owned(),
                    reason: "no\u{1b}[2J archive".to_owned(),
                }],
            }),
            now(),
        )
    }

    #[test]
    fn the_table_says_how_each_repository_is_and_why_one_is_not_ready() {
        let text = text(
            &[
                view("good", Some(true), "7 versions"),
                view("bad", Some(false), "gone\u{1b}[2J"),
            ],
            false,
            now(),
        );
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert!(lines[0].starts_with("NAMESPACE"), "{text}");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(
            words[..9],
            ["default", "good", "True", "Reason", "3", "7", "4/6", "2m", "ago"]
        );
        assert_eq!(lines[4], "default/bad: gone [2J");
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn of_one_repository_it_is_said_which_files_are_missing_and_why() {
        let text = text(&[view("good", Some(true), "")], true, now());
        assert!(
            text.ends_with("\nno files of:\n  good/web-1.0.0: no [2J archive\n"),
            "{text}"
        );
    }

    #[test]
    fn the_next_sync_is_the_next_tick_with_its_jitter() {
        let next = view("good", Some(true), "").next_sync_time.unwrap();
        let tick: Timestamp = "2026-03-01T12:10:00Z".parse().unwrap();
        assert_eq!(
            next,
            tick + SignedDuration::try_from(schedule::jitter("uid", std::time::Duration::from_secs(600))).unwrap()
        );
    }

    #[test]
    fn a_repository_that_only_kubeapps_knows_is_shown_as_unknown() {
        let summary = RepositorySummary {
            name: NamespacedName::new("kubeapps", "bitnami"),
            url: String::new(),
            charts: 1,
            versions: 1,
            record: None,
        };
        let view = View::new(summary, None, now());
        assert_eq!((view.ready(), view.next_sync_time), ("Unknown", None));
        assert_eq!(view.files(), "-");
    }
}
