//! Syncs published versions of real indexes one after the other, and compares all rows with a reference model. Long
//! histories are sampled, which the output reports.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rstest::rstest;
use serde_json::{Value, json};
use sqlx::PgPool;

use super::{World, model};
use crate::support::chart_server::Page;
use crate::support::portolan::{self, command};
use crate::support::{corpus, index_generator, postgres};

/// Larger histories are sampled.
const WHOLE_BELOW: usize = 8 << 20;
const SAMPLED: usize = 4;

/// The indexes of a directory in order, sampled if they are large.
fn history(directory: &Path) -> Vec<String> {
    let Ok(listed) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = listed.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    paths.sort();
    let all: Vec<String> = paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let bytes: usize = all.iter().map(String::len).sum();
    let count = all.len();
    let steps: Vec<usize> = if bytes <= WHOLE_BELOW {
        (0..count).collect()
    } else {
        (0..SAMPLED).map(|step| step * (count - 1) / (SAMPLED - 1)).collect()
    };
    println!("{}: {} of {count} indexes", directory.display(), steps.len());
    steps.into_iter().map(|step| all[step].clone()).collect()
}

/// Generated histories, if no real ones are available.
fn generated() -> Vec<String> {
    vec![
        index_generator::generate(7, 12, 8),
        index_generator::generate(7, 13, 9),
        index_generator::generate(7, 12, 10),
        index_generator::generate(8, 12, 10),
    ]
}

/// Serves and syncs one index after the other, and compares the rows.
struct Replay {
    world: World,
    url: String,
    repository: Value,
}

impl Replay {
    async fn new() -> Self {
        let world = World::new().await;
        let url = world.server.url("/stable");
        Self {
            repository: json!({"namespace": "kubeapps", "name": "stable", "url": url, "type": ""}),
            world,
            url,
        }
    }

    fn expected(&self, index: &str) -> BTreeMap<String, Value> {
        model::rows(index, &self.repository).unwrap()
    }

    async fn sync(&self, index: &str, database_url: &str) -> std::process::Output {
        self.world
            .server
            .serve("/stable/index.yaml", Page::new(index.to_owned()));
        let mut sync = command(["sync", "stable", &self.url, "helm", "--namespace=kubeapps"]);
        sync.args(["--chart-files=none", "--database-url", database_url]);
        portolan::run(sync).await
    }

    async fn step(&self, index: &str, database_url: &str) {
        let output = self.sync(index, database_url).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    async fn stored(&self) -> BTreeMap<String, Value> {
        super::by_id(&self.world.texts("SELECT info FROM charts").await)
    }
}

/// A documented difference: a row is not rewritten if only its times changed, since some publishers change them
/// constantly.
fn followed_by(before: &BTreeMap<String, Value>, after: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let without_times = |info: &Value| {
        let mut info = info.clone();
        for version in info["chartVersions"].as_array_mut().unwrap() {
            version["created"].take();
        }
        info
    };
    let stays = |id: &String, info: Value| match before.get(id) {
        Some(before) if without_times(before) == without_times(&info) => before.clone(),
        _ => info,
    };
    after
        .into_iter()
        .map(|(id, info)| (id.clone(), stays(&id, info)))
        .collect()
}

/// Compares one by one for readable output.
#[track_caller]
fn assert_same(stored: &BTreeMap<String, Value>, expected: &BTreeMap<String, Value>) {
    assert!(
        stored.keys().eq(expected.keys()),
        "{:?}\n{:?}",
        stored.keys(),
        expected.keys()
    );
    for (id, expected) in expected {
        let stored = &stored[id];
        let keys = expected
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| stored[key.as_str()] != expected[key.as_str()]);
        for key in keys {
            let versions = stored[key]
                .as_array()
                .zip(expected[key].as_array())
                .filter(|_| key == "chartVersions");
            if let Some((stored, expected)) = versions {
                for (stored, expected) in stored.iter().zip(expected) {
                    assert_eq!(stored, expected, "{id}");
                }
            }
            assert_eq!(stored[key], expected[key], "{key} of {id}");
        }
        assert_eq!(
            stored.as_object().unwrap().len(),
            expected.as_object().unwrap().len(),
            "{id}"
        );
    }
}

#[rstest]
#[tokio::test]
async fn rows_match_the_model_after_each_index_of_a_history(
    #[values(
        "argoproj__argo-helm",
        "aws__eks-charts",
        "cilium__charts",
        "deliveryhero__helm-charts",
        "fluxcd-community__helm-charts",
        "grafana__helm-charts",
        "k8s-at-home__charts",
        "kedacore__charts",
        "kubernetes-sigs__metrics-server",
        "open-telemetry__opentelemetry-helm-charts"
    )]
    repository: &str,
) {
    let histories = match corpus::corpus() {
        Some(corpus) => ["history", "history-sparse"].map(|kind| history(&corpus.join(repository).join(kind))),
        None => [generated(), Vec::new()],
    };
    assert!(!histories[0].is_empty());
    for history in histories {
        let replay = Replay::new().await;
        let mut expected = BTreeMap::new();
        for index in history {
            replay.step(&index, &replay.world.database_url()).await;
            expected = followed_by(&expected, replay.expected(&index));
            assert_same(&replay.stored().await, &expected);
        }
    }
}

/// Postgres also shows that unchanged rows are not rewritten.
#[rstest]
#[tokio::test]
async fn only_changed_rows_are_written_to_postgres(
    #[values("kedacore__charts", "fluxcd-community__helm-charts", "aws__eks-charts")] repository: &str,
) {
    let history = match corpus::corpus() {
        Some(corpus) => history(&corpus.join(repository).join("history")),
        None => generated(),
    };
    let replay = Replay::new().await;
    let database = postgres::database().await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let mut before: BTreeMap<String, (String, Value)> = BTreeMap::new();
    let mut expected = BTreeMap::new();
    for index in history {
        replay.step(&index, &database.url).await;
        expected = followed_by(&expected, replay.expected(&index));
        let statement = "SELECT chart_id, id || ' ' || ctid || ' ' || xmin, info FROM charts";
        let rows: Vec<(String, String, Value)> = sqlx::query_as(statement).fetch_all(&pool).await.unwrap();
        let stored = rows.iter().map(|(id, _, info)| (id.clone(), info.clone())).collect();
        assert_same(&stored, &expected);
        for (id, place, info) in &rows {
            if let Some((place_before, info_before)) = before.get(id) {
                assert_eq!(place == place_before, info == info_before, "{id}");
            }
        }
        before = rows.into_iter().map(|(id, place, info)| (id, (place, info))).collect();
    }
}

/// Unusual indexes are read; invalid ones change nothing.
#[tokio::test]
async fn unusual_indexes_match_the_model_and_invalid_ones_change_nothing() {
    let Some(corpus) = corpus::corpus() else {
        println!("skipped: requires the unusual indexes of the corpus");
        return;
    };
    let mut refused = Vec::new();
    let mut paths: Vec<PathBuf> = fs::read_dir(corpus.join("edge-cases"))
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    paths.sort();
    for path in paths
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
    {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let index = fs::read_to_string(path).unwrap();
        let replay = Replay::new().await;
        let before = index_generator::generate(1, 1, 2);
        replay.step(&before, &replay.world.database_url()).await;
        let output = replay.sync(&index, &replay.world.database_url()).await;
        let stored = replay.stored().await;
        if output.status.success() {
            println!("{name}: {} charts", stored.len());
            assert_same(&stored, &replay.expected(&index));
        } else {
            println!("{name}: {}", String::from_utf8_lossy(&output.stderr));
            assert_same(&stored, &replay.expected(&before));
            refused.push(name.to_owned());
        }
    }
    let expected = [
        "codecentric-2019-04-15-only-newline", // a publisher's mishap, not an empty repository
        "eks-2019-10-03-entries-empty-map",    // shrinks, so that it must be confirmed
        "keda-2022-08-12-broken-yaml",
    ];
    assert_eq!(refused, expected);
}
