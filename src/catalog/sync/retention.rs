//! Versions that left the index and stay for a while, marked in `portolan_kept_versions`.
//!
//! ```text
//!  stored versions ─ versions of the index = missing ──┬─ not marked: marked with now    ─► stays in the chart's row
//!                                                      ├─ marked, its time is not over   ─► stays
//!                                                      └─ marked, its time is over       ─► goes, with its files
//!  marked, and back in the index ─► the mark goes
//! ```

use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;
use sqlx::{FromRow, types::Json};

use crate::api::NamespacedName;
use crate::catalog::engine::{Engine, Transaction, on_engine};
use crate::catalog::{ChartInfo, Error};

/// How long versions stay that have left the index: an installed one that vanishes can't be managed by Kubeapps any more.
#[derive(Clone, Debug)]
pub struct Keep {
    /// The time of this sync: versions that are missing for the first time count from it.
    pub now: Timestamp,
    /// How long they stay.
    pub duration: Duration,
    /// The order of versions in an index: `Less` is the newer one, which stands first.
    pub order: fn(&str, &str) -> Ordering,
    /// Charts, by `chart_id`, that a filter has taken out: of them nothing is kept.
    pub filtered_out: HashSet<String>,
    /// Charts, by `chart_id`, of which it is not known what has left, so that it stays whatever the duration.
    pub held: HashMap<String, Held>,
}

/// What of a chart stays because nothing is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// All of it.
    Chart,
    /// These versions.
    Versions(HashSet<String>),
}

impl Held {
    fn holds(&self, version: &str) -> bool {
        match self {
            Self::Chart => true,
            Self::Versions(versions) => versions.contains(version),
        }
    }
}

impl Keep {
    /// When the time of a version is over that is missing since then; both in milliseconds since 1970.
    fn expires(&self, version: &Version, missing_since: i64) -> i64 {
        let held = self.held.get(&version.chart_id);
        if held.is_some_and(|held| held.holds(&version.version)) {
            return i64::MAX;
        }
        missing_since.saturating_add(i64::try_from(self.duration.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Decides for one sync what stays, and notes it.
pub(super) struct Keeper {
    /// Nothing where nothing is kept.
    keep: Option<Keep>,
    stored: HashMap<Version, Mark>,
    /// As the marks are to be.
    marks: HashMap<Version, Mark>,
}

/// A version of a chart, as its mark is found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Version {
    chart_id: String,
    version: String,
}

/// In milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    missing_since: i64,
    expires: i64,
}

impl Keeper {
    pub(super) async fn load(tx: &mut Transaction, name: &NamespacedName, keep: Option<Keep>) -> Result<Self, Error> {
        const SELECT: &str = "SELECT chart_id, version, missing_since, expires FROM portolan_kept_versions
            WHERE namespace = $1 AND name = $2";
        let rows: Vec<MarkRow> = if keep.is_none() {
            Vec::new()
        } else {
            on_engine!(tx, tx => sqlx::query_as(SELECT)
                .bind(&name.namespace)
                .bind(&name.name)
                .fetch_all(&mut **tx)
                .await?)
        };
        Ok(Self {
            keep,
            stored: rows.into_iter().map(MarkRow::parts).collect(),
            marks: HashMap::new(),
        })
    }

    pub(super) const fn is_on(&self) -> bool {
        self.keep.is_some()
    }

    /// Which of these versions of a chart stay, although the index has only others of it.
    pub(super) fn keep_of_versions(&mut self, chart_id: &str, missing: Vec<&str>) -> HashSet<String> {
        let Some(keep) = &self.keep else {
            return HashSet::new();
        };
        let now = keep.now.as_millisecond();
        let mut kept = HashSet::new();
        for version in missing {
            let version = Version {
                chart_id: chart_id.to_owned(),
                version: version.to_owned(),
            };
            let missing_since = self.stored.get(&version).map_or(now, |mark| mark.missing_since);
            let expires = keep.expires(&version, missing_since);
            if expires > now {
                kept.insert(version.version.clone());
                self.marks.insert(version, Mark { missing_since, expires });
            }
        }
        kept
    }

    /// Which versions stay of a chart that is not in the index at all.
    pub(super) fn keep_of_chart(&mut self, chart_id: &str, versions: &[String]) -> HashSet<String> {
        if self
            .keep
            .as_ref()
            .is_some_and(|keep| keep.filtered_out.contains(chart_id))
        {
            return HashSet::new();
        }
        self.keep_of_versions(chart_id, versions.iter().map(String::as_str).collect())
    }

    /// Puts the kept ones of the stored versions where they belong among those of the index.
    pub(super) fn merge(&self, chart: &mut ChartInfo, stored: ChartInfo, kept: &HashSet<String>) {
        let Some(keep) = &self.keep else { return };
        let mut kept = stored
            .chart_versions
            .into_iter()
            .filter(|version| kept.contains(&version.version))
            .peekable();
        let index = std::mem::take(&mut chart.chart_versions);
        for version in index {
            while let Some(newer) = kept.next_if(|kept| (keep.order)(&kept.version, &version.version) == Ordering::Less)
            {
                chart.chart_versions.push(newer);
            }
            chart.chart_versions.push(version);
        }
        chart.chart_versions.extend(kept);
    }

    /// Writes those marks that differ, and says how many versions are kept.
    pub(super) async fn save(self, tx: &mut Transaction, name: &NamespacedName) -> Result<u64, Error> {
        let Self { keep, stored, marks } = self;
        if keep.is_none() {
            delete_all(tx, name).await?;
            return Ok(0);
        }
        let (kept, mut changed) = (marks.len() as u64, Vec::new());
        let gone = stored.keys().filter(|version| !marks.contains_key(version));
        let gone: Vec<Version> = gone.cloned().collect();
        for (version, mark) in marks {
            if stored.get(&version) != Some(&mark) {
                changed.push(MarkRow::of(version, mark));
            }
        }
        delete(tx, name, &gone).await?;
        upsert(tx, name, &changed).await?;
        Ok(kept)
    }
}

/// SQLite reads it from a JSON text, by these names.
#[derive(FromRow, Serialize)]
struct MarkRow {
    chart_id: String,
    version: String,
    missing_since: i64,
    expires: i64,
}

impl MarkRow {
    fn of(version: Version, mark: Mark) -> Self {
        Self {
            chart_id: version.chart_id,
            version: version.version,
            missing_since: mark.missing_since,
            expires: mark.expires,
        }
    }

    fn parts(self) -> (Version, Mark) {
        let version = Version {
            chart_id: self.chart_id,
            version: self.version,
        };
        let mark = Mark {
            missing_since: self.missing_since,
            expires: self.expires,
        };
        (version, mark)
    }
}

async fn delete_all(tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
    const DELETE: &str = "DELETE FROM portolan_kept_versions WHERE namespace = $1 AND name = $2";
    on_engine!(tx, tx => {
        sqlx::query(DELETE).bind(&name.namespace).bind(&name.name).execute(&mut **tx).await?;
    });
    Ok(())
}

async fn delete(tx: &mut Transaction, name: &NamespacedName, gone: &[Version]) -> Result<(), Error> {
    const SQLITE: &str = "DELETE FROM portolan_kept_versions WHERE namespace = $1 AND name = $2
        AND (chart_id, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each($3))";
    const POSTGRES: &str = "DELETE FROM portolan_kept_versions WHERE namespace = $1 AND name = $2
        AND (chart_id, version) IN (SELECT * FROM unnest($3::text[], $4::text[]))";
    if gone.is_empty() {
        return Ok(());
    }
    let gone = gone.iter().map(|gone| (&*gone.chart_id, &*gone.version));
    match tx {
        Engine::Sqlite(tx) => {
            let query = sqlx::query(SQLITE).bind(&name.namespace).bind(&name.name);
            let query = query.bind(Json(gone.collect::<Vec<_>>()));
            query.execute(&mut **tx).await?;
        }
        Engine::Postgres(tx) => {
            let (charts, versions): (Vec<&str>, Vec<&str>) = gone.unzip();
            let query = sqlx::query(POSTGRES).bind(&name.namespace).bind(&name.name);
            query.bind(charts).bind(versions).execute(&mut **tx).await?;
        }
    }
    Ok(())
}

async fn upsert(tx: &mut Transaction, name: &NamespacedName, rows: &[MarkRow]) -> Result<(), Error> {
    // "WHERE true" tells SQLite's parser that ON CONFLICT is no join.
    const SQLITE: &str =
        "INSERT INTO portolan_kept_versions (namespace, name, chart_id, version, missing_since, expires)
        SELECT $1, $2, value ->> '$.chart_id', value ->> '$.version', value ->> '$.missing_since', value ->> '$.expires'
        FROM json_each($3) WHERE true
        ON CONFLICT (namespace, name, chart_id, version) DO UPDATE
            SET missing_since = excluded.missing_since, expires = excluded.expires";
    const POSTGRES: &str =
        "INSERT INTO portolan_kept_versions (namespace, name, chart_id, version, missing_since, expires)
        SELECT $1, $2, row.* FROM unnest($3::text[], $4::text[], $5::bigint[], $6::bigint[])
            AS row (chart_id, version, missing_since, expires)
        ON CONFLICT (namespace, name, chart_id, version) DO UPDATE
            SET missing_since = excluded.missing_since, expires = excluded.expires";
    if rows.is_empty() {
        return Ok(());
    }
    match tx {
        Engine::Sqlite(tx) => {
            let query = sqlx::query(SQLITE).bind(&name.namespace).bind(&name.name);
            query.bind(Json(rows)).execute(&mut **tx).await?;
        }
        Engine::Postgres(tx) => {
            let query = sqlx::query(POSTGRES).bind(&name.namespace).bind(&name.name);
            let query = query
                .bind(rows.iter().map(|row| &*row.chart_id).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| &*row.version).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.missing_since).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.expires).collect::<Vec<_>>());
            query.execute(&mut **tx).await?;
        }
    }
    Ok(())
}
