//! Retention of versions that left the index, recorded in `portolan_kept_versions`.
//!
//! ```text
//!  stored versions - versions of the index = missing ─┬─ no mark: gets one with the current time ─► stays in the chart row
//!                                                     ├─ mark not expired ─► stays
//!                                                     └─ mark expired ─► deleted with its files
//!  mark, and back in the index ─► the mark is deleted
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
use crate::catalog::engine::{Engine, Transaction, execute, select};
use crate::catalog::{ChartInfo, Error};

/// Retention of versions that left the index. Kubeapps can't manage an installed version that is no longer listed.
#[derive(Clone, Debug)]
pub struct Retention {
    /// Time of this sync. Versions that are missing for the first time expire `duration` later.
    pub now: Timestamp,
    pub duration: Duration,
    /// Version order of an index: `Less` is newer and comes first.
    pub order: fn(&str, &str) -> Ordering,
    /// Charts, by `chart_id`, that a filter removed. They are not retained.
    pub filtered_out: HashSet<String>,
    /// Charts, by `chart_id`, whose current content is unknown. They are retained regardless of the duration.
    pub retained: HashMap<String, RetainedPart>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetainedPart {
    Chart,
    Versions(HashSet<String>),
}

impl RetainedPart {
    fn holds(&self, version: &str) -> bool {
        match self {
            Self::Chart => true,
            Self::Versions(versions) => versions.contains(version),
        }
    }
}

impl Retention {
    /// Returns the expiry of a missing version in milliseconds since 1970.
    fn expires(&self, version: &VersionKey, missing_since: i64) -> i64 {
        let retained = self.retained.get(&version.chart_id);
        if retained.is_some_and(|retained| retained.holds(&version.version)) {
            return i64::MAX;
        }
        missing_since.saturating_add(i64::try_from(self.duration.as_millis()).unwrap_or(i64::MAX))
    }
}

pub(super) struct RetentionPlan {
    retention: Option<Retention>,
    stored: HashMap<VersionKey, RetentionMark>,
    marks: HashMap<VersionKey, RetentionMark>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, FromRow, Serialize)]
struct VersionKey {
    chart_id: String,
    version: String,
}

/// Times in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRow, Serialize)]
struct RetentionMark {
    missing_since: i64,
    expires: i64,
}

impl RetentionPlan {
    pub(super) async fn load(
        tx: &mut Transaction,
        name: &NamespacedName,
        retention: Option<Retention>,
    ) -> Result<Self, Error> {
        const SELECT: &str = "SELECT chart_id, version, missing_since, expires FROM portolan_kept_versions
            WHERE namespace = $1 AND name = $2";
        let rows: Vec<MarkRow> = match retention {
            Some(_) => select!(fetch_all, tx, SELECT, name),
            None => Vec::new(),
        };
        Ok(Self {
            retention,
            stored: rows.into_iter().map(|row| (row.version, row.mark)).collect(),
            marks: HashMap::new(),
        })
    }

    pub(super) const fn is_enabled(&self) -> bool {
        self.retention.is_some()
    }

    /// Returns the retained versions among the missing versions of a chart that is still in the index.
    pub(super) fn retain_versions(&mut self, chart_id: &str, missing: Vec<&str>) -> HashSet<String> {
        let Some(retention) = &self.retention else {
            return HashSet::new();
        };
        let now = retention.now.as_millisecond();
        let mut kept = HashSet::new();
        for version in missing {
            let version = VersionKey {
                chart_id: chart_id.to_owned(),
                version: version.to_owned(),
            };
            let missing_since = self.stored.get(&version).map_or(now, |mark| mark.missing_since);
            let expires = retention.expires(&version, missing_since);
            if expires > now {
                kept.insert(version.version.clone());
                self.marks.insert(version, RetentionMark { missing_since, expires });
            }
        }
        kept
    }

    pub(super) fn retain_chart(&mut self, chart_id: &str, versions: &[String]) -> HashSet<String> {
        if self
            .retention
            .as_ref()
            .is_some_and(|retention| retention.filtered_out.contains(chart_id))
        {
            return HashSet::new();
        }
        self.retain_versions(chart_id, versions.iter().map(String::as_str).collect())
    }

    pub(super) fn merge(&self, chart: &mut ChartInfo, stored: ChartInfo, kept: &HashSet<String>) {
        let Some(retention) = &self.retention else { return };
        let mut kept = stored
            .chart_versions
            .into_iter()
            .filter(|version| kept.contains(&version.version))
            .peekable();
        let index = std::mem::take(&mut chart.chart_versions);
        for version in index {
            while let Some(newer) =
                kept.next_if(|kept| (retention.order)(&kept.version, &version.version) == Ordering::Less)
            {
                chart.chart_versions.push(newer);
            }
            chart.chart_versions.push(version);
        }
        chart.chart_versions.extend(kept);
    }

    pub(super) async fn save(self, tx: &mut Transaction, name: &NamespacedName) -> Result<u64, Error> {
        const DELETE_ALL: &str = "DELETE FROM portolan_kept_versions WHERE namespace = $1 AND name = $2";
        let Self {
            retention,
            stored,
            marks,
        } = self;
        if retention.is_none() {
            execute!(tx, DELETE_ALL, name);
            return Ok(0);
        }
        let kept = marks.len() as u64;
        let deleted = stored.keys().filter(|version| !marks.contains_key(version));
        let deleted: Vec<&VersionKey> = deleted.collect();
        delete(tx, name, &deleted).await?;
        let rows = marks.into_iter().map(|(version, mark)| MarkRow { version, mark });
        let changed: Vec<MarkRow> = rows.filter(|row| stored.get(&row.version) != Some(&row.mark)).collect();
        upsert(tx, name, &changed).await?;
        Ok(kept)
    }
}

#[derive(FromRow, Serialize)]
struct MarkRow {
    #[sqlx(flatten)]
    #[serde(flatten)]
    version: VersionKey,
    #[sqlx(flatten)]
    #[serde(flatten)]
    mark: RetentionMark,
}

async fn delete(tx: &mut Transaction, name: &NamespacedName, deleted: &[&VersionKey]) -> Result<(), Error> {
    const SQLITE: &str = "DELETE FROM portolan_kept_versions WHERE namespace = $1 AND name = $2
        AND (chart_id, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each($3))";
    const POSTGRES: &str = "DELETE FROM portolan_kept_versions WHERE namespace = $1 AND name = $2
        AND (chart_id, version) IN (SELECT * FROM unnest($3::text[], $4::text[]))";
    if deleted.is_empty() {
        return Ok(());
    }
    let deleted = deleted.iter().map(|deleted| (&*deleted.chart_id, &*deleted.version));
    match tx.executor() {
        Engine::Sqlite(connection) => {
            let query = sqlx::query(SQLITE).bind(&name.namespace).bind(&name.name);
            let query = query.bind(Json(deleted.collect::<Vec<_>>()));
            query.execute(connection).await?;
        }
        Engine::Postgres(connection) => {
            let (charts, versions): (Vec<&str>, Vec<&str>) = deleted.unzip();
            let query = sqlx::query(POSTGRES).bind(&name.namespace).bind(&name.name);
            query.bind(charts).bind(versions).execute(connection).await?;
        }
    }
    Ok(())
}

async fn upsert(tx: &mut Transaction, name: &NamespacedName, rows: &[MarkRow]) -> Result<(), Error> {
    // SQLite needs WHERE to parse ON CONFLICT after SELECT.
    const SQLITE: &str =
        "INSERT INTO portolan_kept_versions (namespace, name, chart_id, version, missing_since, expires)
        SELECT $1, $2, value ->> '$.chart_id', value ->> '$.version', value ->> '$.missing_since', value ->> '$.expires'
        FROM json_each($3) WHERE true
        ON CONFLICT (namespace, name, chart_id, version) DO UPDATE
            SET missing_since = excluded.missing_since, expires = excluded.expires";
    const POSTGRES: &str =
        "INSERT INTO portolan_kept_versions (namespace, name, chart_id, version, missing_since, expires)
        SELECT $1, $2, row.* FROM jsonb_to_recordset($3)
            AS row (chart_id text, version text, missing_since bigint, expires bigint)
        ON CONFLICT (namespace, name, chart_id, version) DO UPDATE
            SET missing_since = excluded.missing_since, expires = excluded.expires";
    if rows.is_empty() {
        return Ok(());
    }
    let statement = tx.choose(SQLITE, POSTGRES);
    execute!(tx, statement, name, Json(rows));
    Ok(())
}
