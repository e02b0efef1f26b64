//! Incremental syncs and full comparisons must give the same rows and counts.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use portolan::api::NamespacedName;
use portolan::catalog::Fence;
use portolan::catalog::{ChartInfo, CommitSummary, ErrorKind, Record};
use proptest::{prelude::*, test_runner::TestRunner};
use rstest::rstest;

use super::{
    Fixture, On, at, chart,
    chart_digests::{commit, compared, read_state},
    retention::keep,
};

const CACHE_KEY: &str = "decoder 1";
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A change before a sync.
#[derive(Clone, Debug)]
enum Change {
    /// The index has this chart with these of three versions (none: not at all) and this text.
    Chart(usize, [bool; 3], u8),
    /// The index has this chart, without a row.
    Deprecated(usize),
    /// All creation times change.
    Created,
    /// Another process deletes a row.
    Removed(usize),
    /// Another process replaces a row.
    Replaced(usize),
    /// Kubeapps' syncer writes a row and its row of the repository.
    Written(usize),
    Recreated,
    /// Expired versions are deleted without a sync.
    Expired,
}

#[derive(Clone, Debug)]
struct Sync {
    changes: Vec<Change>,
    /// Changes of the database happen between the reads and the commit of the sync.
    meanwhile: bool,
    keep: bool,
    seconds: i64,
}

fn syncs() -> impl Strategy<Value = Vec<Sync>> {
    let name = 0..NAMES.len();
    let change = prop_oneof![
        6 => (name.clone(), any::<[bool; 3]>(), 0..2_u8).prop_map(|(name, versions, text)| Change::Chart(name, versions, text)),
        1 => name.clone().prop_map(Change::Deprecated),
        1 => Just(Change::Created),
        1 => name.clone().prop_map(Change::Removed),
        1 => name.clone().prop_map(Change::Replaced),
        1 => name.prop_map(Change::Written),
        1 => Just(Change::Recreated),
        1 => Just(Change::Expired),
    ];
    let changes = proptest::collection::vec(change, 0..4);
    let sync = (changes, any::<bool>(), proptest::bool::weighted(0.7), 0..80_i64);
    let sync = sync.prop_map(|(changes, meanwhile, keep, seconds)| Sync {
        changes,
        meanwhile,
        keep,
        seconds,
    });
    proptest::collection::vec(sync, 1..8)
}

/// Two repositories with the same index, synced in different ways.
struct SyncPair<'a> {
    fixture: &'a Fixture,
    on: On,
    delta: NamespacedName,
    full: NamespacedName,
    index: BTreeMap<usize, ChartInfo>,
    created: u32,
    now: i64,
}

impl SyncPair<'_> {
    fn change_index(&mut self, change: &Change) {
        match change {
            Change::Chart(name, versions, text) => {
                let versions: Vec<&str> = ["3", "2", "1"]
                    .into_iter()
                    .zip(versions)
                    .filter_map(|(version, is_there)| is_there.then_some(version))
                    .collect();
                if versions.is_empty() {
                    self.index.remove(name);
                } else {
                    let mut info = chart(NAMES[*name], &versions);
                    info.description = format!("text {text}");
                    self.index.insert(*name, info);
                }
            }
            Change::Deprecated(name) => {
                let mut info = chart(NAMES[*name], &["1"]);
                info.category = "deprecated".into();
                self.index.insert(*name, info);
            }
            Change::Created => self.created += 1,
            _ => {}
        }
    }

    /// Changes the rows of both repositories.
    async fn change_rows(&self, change: &Change) {
        let (theirs, new_id) = match self.on {
            On::Sqlite => (
                "json_set(info, '$.description', 'theirs')",
                "id + (SELECT max(id) FROM charts)",
            ),
            On::Postgres => (
                "jsonb_set(info, '{description}', '\"theirs\"')",
                "nextval(pg_get_serial_sequence('charts', 'id'))",
            ),
        };
        let sql = match change {
            Change::Removed(name) => format!("DELETE FROM charts WHERE chart_id = 'stable/{}'", NAMES[*name]),
            Change::Replaced(name) => format!(
                "UPDATE charts SET id = {new_id}, info = {theirs} WHERE chart_id = 'stable/{}'",
                NAMES[*name]
            ),
            Change::Written(name) => format!(
                "UPDATE charts SET info = {theirs} WHERE chart_id = 'stable/{}'; UPDATE repos SET last_update = last_update || '+'",
                NAMES[*name]
            ),
            Change::Recreated => return self.fixture.catalog.recreate().await.unwrap(),
            Change::Expired => {
                for name in [&self.delta, &self.full] {
                    let (record, now) = (Record::new(name.clone(), "uid-1"), at(self.now));
                    let dropped = self.fixture.catalog.drop_expired(&record, "uid-1", now, &[]);
                    dropped.await.unwrap();
                }
                return;
            }
            _ => return,
        };
        self.fixture.tables.execute(&sql).await;
    }

    /// Syncs both. Returns their counts and the number of charts that the first one skipped.
    async fn sync(&mut self, sync: &Sync) -> (CommitSummary, CommitSummary, u64) {
        for change in &sync.changes {
            self.change_index(change);
        }
        self.now += sync.seconds;
        if !sync.meanwhile {
            self.change_all_rows(sync).await;
        }
        let keep = sync.keep.then(|| keep(self.now));
        let mut charts: Vec<ChartInfo> = self.index.values().cloned().collect();
        for version in charts.iter_mut().flat_map(|info| &mut info.chart_versions) {
            version.created = format!("2020-01-01T00:00:00.{:03}Z", self.created);
        }
        let seen = read_state(self.fixture, &self.delta, CACHE_KEY).await;
        let seen_by_full = read_state(self.fixture, &self.full, CACHE_KEY).await;
        if sync.meanwhile {
            self.change_all_rows(sync).await;
        }
        let (changed, digests) = compared(seen.digests.as_ref(), CACHE_KEY, &charts);
        let skipped = digests.unchanged.len() as u64;
        let delta = match commit(self.fixture, &seen, keep.clone(), changed, Some(digests)).await {
            Err(error) if sync.meanwhile && *error.kind() == ErrorKind::StaleDigests => {
                let (changed, digests) = compared(None, CACHE_KEY, &charts);
                commit(self.fixture, &seen, keep.clone(), changed, Some(digests)).await
            }
            committed => committed,
        };
        let (all, _) = compared(None, CACHE_KEY, &charts);
        let full = commit(self.fixture, &seen_by_full, keep, all, None).await;
        (delta.unwrap(), full.unwrap(), skipped)
    }

    async fn change_all_rows(&self, sync: &Sync) {
        for change in &sync.changes {
            self.change_rows(change).await;
        }
    }

    async fn state(&self, name: &NamespacedName) -> Vec<String> {
        let tables = &self.fixture.tables;
        let name = &name.name;
        let charts = "SELECT chart_id || CAST(info AS TEXT) FROM charts WHERE repo_name";
        let marks =
            "SELECT chart_id || version || missing_since || ' ' || expires FROM portolan_kept_versions WHERE name";
        let mut state = tables.texts(&format!("{charts} = '{name}' ORDER BY chart_id")).await;
        state.extend(tables.texts(&format!("{marks} = '{name}' ORDER BY 1")).await);
        state
    }
}

/// Runs the syncs in two new repositories.
async fn run_syncs(fixture: &Fixture, on: On, at: u64, syncs: &[Sync]) -> Result<u64, TestCaseError> {
    let name = |way: &str| NamespacedName::new("kubeapps", format!("{way}-{at}"));
    let mut pair = SyncPair {
        fixture,
        on,
        delta: name("delta"),
        full: name("full"),
        index: BTreeMap::new(),
        created: 0,
        now: 0,
    };
    let mut skipped = 0;
    for (at, sync) in syncs.iter().enumerate() {
        let (mut delta, full, skipped_now) = pair.sync(sync).await;
        delta.repos_id = full.repos_id;
        prop_assert_eq!(delta, full, "counts of sync {}", at);
        let (delta, full) = (pair.state(&pair.delta).await, pair.state(&pair.full).await);
        prop_assert_eq!(delta, full, "rows of sync {}", at);
        skipped += skipped_now;
    }
    for name in [&pair.delta, &pair.full] {
        fixture.catalog.remove(name, Fence::None).await.unwrap();
        let digests = format!(
            "SELECT count(*) FROM portolan_chart_digests WHERE name = '{}'",
            name.name
        );
        prop_assert_eq!(fixture.tables.number(&digests).await, 0);
    }
    Ok(skipped)
}

#[rstest]
fn incremental_and_full_syncs_write_the_same_rows(#[values(On::Sqlite, On::Postgres)] on: On) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fixture = runtime.block_on(Fixture::new(on));
    let (cases, skipped) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: ProptestConfig::default().cases.min(100),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let outcome = runner.run(&syncs(), |syncs| {
        let at = cases.fetch_add(1, Ordering::Relaxed);
        skipped.fetch_add(
            runtime.block_on(run_syncs(&fixture, on, at, &syncs))?,
            Ordering::Relaxed,
        );
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    let (cases, skipped) = (cases.into_inner(), skipped.into_inner());
    assert!(skipped > cases, "{skipped} charts were skipped in {cases} cases");
    let _inside = runtime.enter();
    drop(fixture);
}
