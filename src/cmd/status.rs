use std::path::PathBuf;

use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::flags::{OutputFormat, QueryFlags, database::DatabaseFlags};
use super::server::{ServerClient, ServerFlags};
use super::{Error, failed_to, output};
use crate::api::AppRepository;
use crate::catalog::query::RepositorySummary;
use crate::catalog::{self, Catalog, FilesMode, Record};
use crate::controllers::apprepository::data_url;
use crate::runtime::{cron, manifests};

/// The maximum number of missing chart files in the output.
const MAX_PROBLEMS: usize = 5;

/// Show the status of repositories
///
/// FILES is the number of versions whose files (README, values, schema) are imported, and the number of all versions, whatever
/// --chart-files of `portolan run` is. With --server, files and the changes of the last sync are not shown.
#[derive(Args, Debug)]
pub struct Status {
    /// Name of the repositories (default: all)
    pub name: Option<String>,
    /// Directory of manifests of `portolan run`: also lists its files that cannot be used
    #[arg(long, value_name = "DIR")]
    pub manifests: Option<PathBuf>,
    #[command(flatten)]
    pub query: QueryFlags,
    #[command(flatten)]
    pub database: DatabaseFlags,
    #[command(flatten)]
    pub server: ServerFlags,
}

impl Status {
    pub(super) async fn execute(self) -> Result<(), Error> {
        let now = Timestamp::now();
        let problems = self.manifest_problems()?;
        let read = async |catalog: &Catalog| Ok(self.views(catalog, now).await?);
        let views = match self.server.client().await? {
            Some(server) => self.views_of(&server).await?,
            None => self.database.read(read).await?,
        };
        match (&self.name, self.query.output) {
            (Some(name), _) if views.is_empty() => Err(Error::Failed(format!(
                "repository {name} not found; `portolan status` lists all repositories"
            ))),
            (_, OutputFormat::Json) => {
                for problem in problems {
                    tracing::warn!(file = %problem.path.display(), "{}", problem.message);
                }
                output::print_json(&views)
            }
            (name, OutputFormat::Table) => {
                let problems = problems.iter().map(|problem| format!("  {problem}"));
                let problems = output::section("\nmanifests with problems:\n", problems);
                output::print(&(text(&views, name.is_some(), now) + &problems))
            }
        }
    }

    fn manifest_problems(&self) -> Result<Vec<manifests::ManifestProblem>, Error> {
        let Some(directory) = &self.manifests else {
            return Ok(Vec::new());
        };
        manifests::problems::<AppRepository>(directory, data_url)
            .map_err(failed_to(format!("read the directory {}", directory.display())))
    }

    fn is_wanted(&self, namespace: &str, name: &str) -> bool {
        (self.name.as_deref()).is_none_or(|wanted| wanted == name)
            && (self.query.namespace()).is_none_or(|wanted| wanted == namespace)
    }

    async fn views_of(&self, server: &ServerClient) -> Result<Vec<RepositoryView>, Error> {
        let namespace = self.query.namespace().map(|namespace| ("namespace", namespace));
        let listed = server.list(&["repositories"], namespace.as_slice(), usize::MAX).await?;
        let mut views: Vec<RepositoryView> = listed.items;
        views.retain(|view| self.is_wanted(&view.namespace, &view.name));
        Ok(views)
    }

    async fn views(&self, catalog: &Catalog, now: Timestamp) -> Result<Vec<RepositoryView>, catalog::Error> {
        let mut summaries = catalog.repositories().await?;
        summaries.retain(|RepositorySummary { name, .. }| self.is_wanted(&name.namespace, &name.name));
        let mut views = Vec::new();
        for summary in summaries {
            let files = FilesView::new(catalog, &summary).await?;
            views.push(RepositoryView::new(summary, files, now));
        }
        Ok(views)
    }
}

/// A repository as JSON, and as the API has it. `ready` and `files` are null if only Kubeapps' syncer has written it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RepositoryView {
    namespace: String,
    name: String,
    url: String,
    ready: Option<bool>,
    reason: String,
    message: String,
    /// True if the sync keeps failing until a user changes something.
    stalled: bool,
    #[serde(default)]
    failures: u32,
    charts: u64,
    versions: u64,
    #[serde(skip_deserializing)]
    files: Option<FilesView>,
    last_attempt_time: Option<Timestamp>,
    last_success_time: Option<Timestamp>,
    next_sync_time: Option<Timestamp>,
    #[serde(skip_deserializing)]
    last_sync: Option<serde_json::Value>,
}

/// The import of chart files. Counts all versions, because --chart-files of `portolan run` is unknown.
#[derive(Debug, Default, Serialize)]
pub(super) struct FilesView {
    imported: u64,
    /// Duplicate versions count once.
    total: u64,
    /// Versions whose archive failed repeatedly.
    failed: u64,
    /// The first versions whose archive failed, or has another digest than the index contains.
    problems: Vec<FileProblem>,
}

#[derive(Debug, Serialize)]
struct FileProblem {
    chart: String,
    reason: String,
}

impl FilesView {
    async fn new(catalog: &Catalog, summary: &RepositorySummary) -> Result<Option<Self>, catalog::Error> {
        if summary.record.is_none() {
            return Ok(None);
        }
        let progress = catalog.files_progress(&summary.name, FilesMode::All).await?;
        let problems = catalog.files_problems(&summary.name, MAX_PROBLEMS).await?.into_iter();
        Ok(Some(Self {
            imported: progress.imported,
            total: progress.total,
            failed: progress.failed,
            problems: problems.map(|(chart, reason)| FileProblem { chart, reason }).collect(),
        }))
    }
}

impl RepositoryView {
    pub(super) fn new(summary: RepositorySummary, files: Option<FilesView>, now: Timestamp) -> Self {
        let record = summary.record.unwrap_or_default();
        Self {
            next_sync_time: next_sync(&record, now),
            namespace: summary.name.namespace,
            name: summary.name.name,
            url: output::redacted_url(&summary.url),
            ready: record.state.ready,
            reason: record.state.reason,
            message: record.state.message,
            stalled: record.state.stalled,
            failures: record.state.failures,
            charts: summary.charts,
            versions: summary.versions,
            files,
            last_attempt_time: record.last_attempt,
            last_success_time: record.last_success,
            last_sync: record.last_sync,
        }
    }

    fn files(&self) -> String {
        let counts = |files: &FilesView| format!("{}/{}", files.imported, files.total);
        self.files.as_ref().map_or_else(|| "-".to_owned(), counts)
    }

    fn ready(&self) -> &'static str {
        match self.ready {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        }
    }
}

fn next_sync(record: &Record, now: Timestamp) -> Option<Timestamp> {
    cron::next_due(record.schedule.as_deref()?, &record.uid, now)
}

/// Formats a table and the messages of repositories that are not ready, or with `is_detailed` of all, with missing files.
fn text(views: &[RepositoryView], is_detailed: bool, now: Timestamp) -> String {
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
        return "no repositories found\n".to_owned();
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
            output::distance(view.last_success_time, now),
            output::distance(view.next_sync_time, now),
        ]
    });
    let messages = views
        .iter()
        .filter(|view| (is_detailed || view.ready == Some(false)) && !view.message.is_empty())
        .map(|view| format!("{}/{}: {}", view.namespace, view.name, view.message));
    let mut text = output::table(&HEADER, rows) + &output::section("\n", messages);
    if is_detailed {
        let problems = views
            .iter()
            .flat_map(|view| &view.files)
            .flat_map(|files| &files.problems);
        let problems = problems.map(|problem| format!("  {}: {}", problem.chart, problem.reason));
        text.push_str(&output::section("\nmissing files:\n", problems));
    }
    text
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::api::NamespacedName;
    use crate::catalog::RecordState;

    fn now() -> Timestamp {
        "2026-03-01T12:03:00Z".parse().unwrap()
    }

    fn view(name: &str, ready: Option<bool>, message: &str) -> RepositoryView {
        let record = Record {
            uid: "uid".to_owned(),
            schedule: Some("*/10 * * * *".to_owned()),
            last_success: Some("2026-03-01T12:00:30Z".parse().unwrap()),
            state: RecordState {
                ready,
                reason: "Reason".to_owned(),
                message: message.to_owned(),
                ..RecordState::default()
            },
            ..Record::default()
        };
        let name = NamespacedName::new("default", name);
        RepositoryView::new(
            RepositorySummary {
                name,
                url: "https://x".to_owned(),
                charts: 3,
                versions: 7,
                record: Some(record),
            },
            Some(FilesView {
                imported: 4,
                total: 6,
                failed: 1,
                problems: vec![FileProblem {
                    chart: "good/web-1.0.0".to_owned(),
                    reason: "no\u{1b}[2J archive".to_owned(),
                }],
            }),
            now(),
        )
    }

    #[test]
    fn the_table_shows_each_repository_and_the_messages_of_failed_ones() {
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
    fn one_repository_is_shown_with_its_missing_files() {
        let text = text(&[view("good", Some(true), "")], true, now());
        assert!(
            text.ends_with("\nmissing files:\n  good/web-1.0.0: no [2J archive\n"),
            "{text}"
        );
    }

    #[test]
    fn the_next_sync_is_the_next_tick_with_its_jitter() {
        let next = view("good", Some(true), "").next_sync_time.unwrap();
        let tick: Timestamp = "2026-03-01T12:10:00Z".parse().unwrap();
        assert_eq!(
            next,
            tick + SignedDuration::try_from(cron::jitter("uid", std::time::Duration::from_secs(600))).unwrap()
        );
    }

    #[test]
    fn a_repository_without_a_record_is_unknown() {
        let summary = RepositorySummary {
            name: NamespacedName::new("kubeapps", "bitnami"),
            url: String::new(),
            charts: 1,
            versions: 1,
            record: None,
        };
        let view = RepositoryView::new(summary, None, now());
        assert_eq!((view.ready(), view.next_sync_time), ("Unknown", None));
        assert_eq!(view.files(), "-");
    }
}
