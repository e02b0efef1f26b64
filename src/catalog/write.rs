//! The charts of a sync against those that are stored, one by one.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
};

use futures::TryStreamExt;

use super::{
    ChartInfo, ChartRow, Committed, Error, Keep, RepoRef, RepositoryName,
    batch::{Batch, Change},
    chart::Fingerprint,
    engine::{Engine, Transaction, on_engine},
    keep::Keeper,
};

/// How many rows are deleted by one statement.
const DELETE_AT_ONCE: usize = 1000;

/// Writes what differs, and removes what is no more or keeps it for a while.
pub(super) async fn charts(
    tx: &mut Transaction,
    name: &RepositoryName,
    rows: impl Iterator<Item = io::Result<ChartRow>> + Send,
    keep: Option<Keep>,
    committed: &mut Committed,
) -> Result<(), Error> {
    let mut keeper = Keeper::load(tx, name, keep).await?;
    let (mut stored, mut gone) = stored_charts(tx, name, keeper.is_on()).await?;
    let (mut batch, mut repo) = (Batch::default(), None);
    for row in rows {
        let mut row = row.map_err(|source| Error::Rows { source })?;
        repo.get_or_insert_with(|| row.info.repo.clone());
        let change = match stored.get_mut(&row.chart_id) {
            None => {
                stored.insert(row.chart_id.clone(), Stored::new_row());
                Change::Insert
            }
            Some(stored) if stored.seen => {
                let reason = "another chart of this repository has the same id".to_owned();
                committed.rejected.push((row.chart_id, reason));
                continue;
            }
            Some(stored) => {
                stored.seen = true;
                add_kept(tx, &mut keeper, stored, &mut row).await?;
                if stored.fingerprint == Some(row.info.fingerprint()) {
                    committed.unchanged += 1;
                    continue;
                }
                stored.change_to(&row.info)
            }
        };
        batch.push(row, change)?;
        if batch.is_full() {
            batch.write(tx, name, committed).await?;
        }
    }
    for (chart_id, stored) in stored.into_iter().filter(|(_, stored)| !stored.seen) {
        let is_of_other_index = repo.is_some() && stored.repo != repo;
        let versions: &[String] = if is_of_other_index { &[] } else { &stored.versions };
        let kept = keeper.keep_of_chart(&chart_id, versions);
        if kept.is_empty() {
            gone.push(stored.id);
        } else if kept.len() == stored.versions.len() {
            committed.unchanged += 1;
        } else if let Some(mut info) = stored_info(tx, stored.id).await? {
            info.chart_versions.retain(|version| kept.contains(&version.version));
            batch.push(ChartRow { chart_id, info }, Change::update(stored.id))?;
            if batch.is_full() {
                batch.write(tx, name, committed).await?;
            }
        }
    }
    batch.write(tx, name, committed).await?;
    committed.removed = delete_charts(tx, name, &gone).await?;
    committed.kept = keeper.save(tx, name).await?;
    Ok(())
}

/// Puts those versions into the row that left the index and stay for a while.
async fn add_kept(tx: &mut Transaction, keeper: &mut Keeper, stored: &Stored, row: &mut ChartRow) -> Result<(), Error> {
    let kept = keeper.keep_of_versions(&row.chart_id, stored.missing_in(&row.info));
    if !kept.is_empty()
        && let Some(info) = stored_info(tx, stored.id).await?
    {
        keeper.merge(&mut row.info, info, &kept);
    }
    Ok(())
}

/// What is known of a stored chart while the new ones go by.
struct Stored {
    id: i64,
    /// Nothing where the row is not of Kubeapps' shape: it differs from whatever comes.
    fingerprint: Option<Fingerprint>,
    /// URL of the icon that was imported, if one was.
    icon: Option<String>,
    /// It is in the new index too.
    seen: bool,
    /// Its versions, where versions are kept that leave the index; else nothing, since there may be many.
    versions: Vec<String>,
    /// Where they are from: what left another index is not missing in this one.
    repo: Option<RepoRef>,
}

impl Stored {
    fn of(id: i64, info: &str, with_versions: bool) -> Self {
        let info: Option<ChartInfo> = serde_json::from_str(info).ok();
        let versions = info.iter().filter(|_| with_versions).flat_map(ChartInfo::versions);
        let versions: BTreeSet<&str> = versions.collect();
        Self {
            id,
            versions: versions.into_iter().map(str::to_owned).collect(),
            fingerprint: info.as_ref().map(ChartInfo::fingerprint),
            repo: info.as_ref().filter(|_| with_versions).map(|info| info.repo.clone()),
            icon: info.filter(ChartInfo::has_imported_icon).map(|info| info.icon),
            seen: false,
        }
    }

    /// One that comes with this very sync: a second of its id is seen by it.
    const fn new_row() -> Self {
        Self {
            id: 0,
            fingerprint: None,
            icon: None,
            seen: true,
            versions: Vec::new(),
            repo: None,
        }
    }

    /// The versions that the chart has no more.
    fn missing_in(&self, info: &ChartInfo) -> Vec<&str> {
        if self.versions.is_empty() || self.repo.as_ref() != Some(&info.repo) {
            return Vec::new();
        }
        let present: HashSet<&str> = info.versions().collect();
        let stored = self.versions.iter().map(String::as_str);
        stored.filter(|version| !present.contains(version)).collect()
    }

    /// An imported icon stays while the chart names the same one.
    fn change_to(&self, info: &ChartInfo) -> Change {
        Change::Update {
            id: self.id,
            keep_icon: self.icon.is_some() && info.raw_icon.is_none() && self.icon.as_deref() == Some(&info.icon),
        }
    }
}

/// The stored charts of a repository by chart_id, read one by one; and the rows that have none, which nobody can find.
async fn stored_charts(
    tx: &mut Transaction,
    name: &RepositoryName,
    with_versions: bool,
) -> Result<(HashMap<String, Stored>, Vec<i64>), Error> {
    const SELECT: &str = "SELECT CAST(id AS BIGINT), chart_id, CAST(info AS TEXT) FROM charts
        WHERE repo_name = $1 AND repo_namespace = $2";
    let mut stored = HashMap::new();
    let mut nameless = Vec::new();
    on_engine!(tx, tx => {
        let mut rows = sqlx::query_as::<_, (i64, Option<String>, String)>(SELECT)
            .bind(&name.name)
            .bind(&name.namespace)
            .fetch(&mut **tx);
        while let Some((id, chart_id, info)) = rows.try_next().await? {
            match chart_id {
                Some(chart_id) => {
                    stored.insert(chart_id, Stored::of(id, &info, with_versions));
                }
                None => nameless.push(id),
            }
        }
    });
    Ok((stored, nameless))
}

/// A stored chart; nothing where it is not of Kubeapps' shape.
async fn stored_info(tx: &mut Transaction, id: i64) -> Result<Option<ChartInfo>, Error> {
    const SELECT: &str = "SELECT CAST(info AS TEXT) FROM charts WHERE id = $1";
    let info: Option<String> =
        on_engine!(tx, tx => sqlx::query_scalar(SELECT).bind(id).fetch_optional(&mut **tx).await?);
    Ok(info.and_then(|info| serde_json::from_str(&info).ok()))
}

/// Deletes charts by the ids of their rows. Their files go with them, and so does what we remember of those.
pub(super) async fn delete_charts(tx: &mut Transaction, name: &RepositoryName, ids: &[i64]) -> Result<u64, Error> {
    const FORGET: [&str; 2] = [
        "DELETE FROM portolan_files WHERE namespace = $1 AND name = $2 AND NOT EXISTS (SELECT 1 FROM charts c
            WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = portolan_files.chart_id)",
        "DELETE FROM portolan_icons WHERE namespace = $1 AND name = $2 AND NOT EXISTS (SELECT 1 FROM charts c
            WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = portolan_icons.chart_id)",
    ];
    let mut deleted = 0;
    for ids in ids.chunks(DELETE_AT_ONCE) {
        deleted += match tx {
            Engine::Sqlite(tx) => sqlx::query("DELETE FROM charts WHERE id IN (SELECT value FROM json_each($1))")
                .bind(sqlx::types::Json(ids))
                .execute(&mut **tx)
                .await?
                .rows_affected(),
            Engine::Postgres(tx) => sqlx::query("DELETE FROM charts WHERE id = ANY($1)")
                .bind(ids)
                .execute(&mut **tx)
                .await?
                .rows_affected(),
        };
    }
    if deleted > 0 {
        for statement in FORGET {
            on_engine!(&mut *tx, tx => {
                sqlx::query(statement).bind(&name.namespace).bind(&name.name).execute(&mut **tx).await?;
            });
        }
    }
    Ok(deleted)
}
