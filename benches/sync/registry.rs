//! One repository of a real registry: the first sync of all its tags, and what an unchanged one costs.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::numbers::thousands;
use crate::report::{Case, Report, Table};
use crate::rig::{Database, EVERY_SECOND, RUNS, Rig, UNLIMITED, asked, end, imported, written};
use crate::support::archives::{Archive, Chart};
use crate::support::chart_server::{ChartServer, Seen};
use crate::support::registry::{Registry, Setup};

pub const TAGS: usize = 500;
/// Syncs over which the unchanged ones are averaged.
const UNCHANGED: usize = 20;
const REPOSITORY: &str = "charts/galleon";
const LIST: &str = "/v2/charts/galleon/tags/list";
const NO_FILES: &str = "--chart-files=none";
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures it on both databases.
pub async fn run(report: &mut Report) {
    let registry = Registry::start(Setup::default()).await;
    registry
        .push_charts(REPOSITORY, (0..TAGS).map(|number| chart(&format!("1.{number}.0"))))
        .await;
    // It counts the requests, and takes its time for passing them on.
    let proxy = ChartServer::before(registry.upstream()).await;
    let mut table = Table {
        about: format!("{TAGS} tags of one chart in the CNCF's distribution registry 3"),
        rows: Vec::new(),
    };
    println!("{}", table.about);
    for database in [Database::Sqlite, Database::Postgres] {
        let mut rig = Rig::new(database).await;
        declare(&rig, &proxy, "");
        let mut requests = String::new();
        for _ in 0..RUNS {
            rig.fresh_database().await;
            requests = first(&mut rig, &proxy, &[NO_FILES, UNLIMITED[0], UNLIMITED[1]], 0).await;
        }
        let samples = rig.take();
        table.rows.push(rig.row(Case::FirstTags, &samples, &requests));

        declare(&rig, &proxy, EVERY_SECOND);
        let portolan = rig.start(&[NO_FILES]);
        asked(&proxy, LIST, 2).await;
        end(portolan).await;
        let before = proxy.all_seen().len();
        let lists = proxy.count(LIST);
        rig.unchanged(&proxy, LIST, UNCHANGED, &[NO_FILES]).await;
        let seen = proxy.all_seen();
        assert_eq!(
            seen.len() - before,
            proxy.count(LIST) - lists,
            "an unchanged repository costs a request for its tags: {:#?}",
            kinds(&seen[before..])
        );
        let samples = rig.take();
        table.rows.push(rig.row(Case::UnchangedTags, &samples, "1 list"));

        let requests = more_tags(&mut rig, &registry, &proxy).await;
        let samples = rig.take();
        table.rows.push(rig.row(Case::NewTag, &samples, &requests));
    }
    let mut rig = Rig::new(Database::Sqlite).await;
    declare(&rig, &proxy, "");
    let flags = ["--chart-files=all", UNLIMITED[0], UNLIMITED[1]];
    let requests = first(&mut rig, &proxy, &flags, TAGS).await;
    let samples = rig.take();
    table.rows.push(rig.row(Case::TagsWithFiles, &samples, &requests));
    rig.fresh_database().await;
    let requests = first(&mut rig, &proxy, &[NO_FILES], 0).await;
    let samples = rig.take();
    table.rows.push(rig.row(Case::LimitedTags, &samples, &requests));
    report.registry = Some(table);
}

/// Declares the repository, with more lines of its `spec`.
fn declare(rig: &Rig, proxy: &ChartServer, more: &str) {
    let url = proxy.url("/charts");
    rig.declare(&format!(
        "  type: oci\n  url: {url}\n  ociRepositories: [galleon]\n{more}"
    ));
}

/// A process from its start until it has written all charts, and so many files; the requests that took.
async fn first(rig: &mut Rig, proxy: &ChartServer, flags: &[&str], files: usize) -> String {
    let before = proxy.all_seen().len();
    let started = Instant::now();
    let portolan = rig.start(flags);
    written(&portolan, 1).await;
    if files > 0 {
        assert_eq!(imported(&portolan, files).await, files, "all are good");
    }
    rig.note_from_start(&portolan, started);
    end(portolan).await;
    kinds(&proxy.all_seen()[before..])
}

/// A process that finds one more tag, time and again; the requests that one took. The tags are gone afterwards.
async fn more_tags(rig: &mut Rig, registry: &Registry, proxy: &ChartServer) -> String {
    let portolan = rig.start(&[NO_FILES]);
    portolan.ready(PATIENCE).await;
    asked(proxy, LIST, 2).await;
    let mut pulled = String::new();
    for number in 1..=RUNS {
        let seen_before = proxy.all_seen().len();
        let before = rig.readings(&portolan).await;
        registry.push_charts(REPOSITORY, [chart(&new_version(number))]).await;
        written(&portolan, number).await;
        rig.note_since(&before, &portolan, 1).await;
        let mut seen = proxy.all_seen().split_off(seen_before);
        // A sync may have come before the tag, and one after it.
        seen.retain(|request| request.path != LIST);
        pulled = kinds(&seen);
    }
    end(portolan).await;
    for number in 1..=RUNS {
        registry.delete_tag(REPOSITORY, &new_version(number)).await;
    }
    format!("1 list, {pulled}")
}

fn new_version(number: usize) -> String {
    format!("2.{number}.0")
}

/// A chart whose Chart.yaml is as long as usual, and whose files are few.
fn chart(version: &str) -> Archive {
    let maintainer = |name: &str| json!({"name": name, "email": format!("{name}@example.com")});
    let changes = "- kind: changed\n  description: The rudder turns both ways\n".repeat(6);
    Chart::new("galleon", version)
        .field("appVersion", version)
        .field("home", "https://example.com/galleon")
        .field("icon", "https://example.com/galleon/icon.png")
        .field("keywords", json!(["ship", "sail", "harbour", "trade"]))
        .field("maintainers", json!([maintainer("navigator"), maintainer("boatswain")]))
        .field("sources", json!(["https://example.com/galleon.git"]))
        .field("annotations", json!({"artifacthub.io/changes": changes}))
        .file("README.md", "# Galleon\n".repeat(400))
        .file("values.yaml", "berths: 3\n".repeat(400))
        .pack()
}

/// Requests by what they ask for.
fn kinds(seen: &[Seen]) -> String {
    let of = |part: &str| seen.iter().filter(|request| request.path.contains(part)).count();
    let counts = [
        ("/tags/list", "list"),
        ("/manifests/", "manifests"),
        ("/blobs/", "blobs"),
    ];
    let known: usize = counts.iter().map(|(part, _)| of(part)).sum();
    let mut parts: Vec<String> = counts
        .iter()
        .filter(|(part, _)| of(part) > 0)
        .map(|(part, name)| format!("{} {name}", thousands(of(part))))
        .collect();
    if seen.len() > known {
        parts.push(format!("{} others", thousands(seen.len() - known)));
    }
    parts.join(", ")
}
