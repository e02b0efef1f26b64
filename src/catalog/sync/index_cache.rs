//! What a commit takes from the memory of an index, and what it leaves there.

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use sqlx::{FromRow, types::Json};

use crate::api::NamespacedName;
use crate::catalog::engine::{Engine, Transaction, on_engine, sql};
use crate::catalog::record::storable;
use crate::catalog::{ChartDigest, DigestUpdate, Error, Record, Unchanged};

/// How many cuts one statement writes or deletes.
const AT_ONCE: usize = 500;

/// A chart under a longer key is decoded each time: Postgres' indexes take 2,704 bytes, the repository's name among them.
const KEY_BYTES: usize = 1024;

/// What is remembered of a repository's index, in the transaction that writes its charts.
pub(super) struct Memory {
    /// Nothing where nothing is to be remembered.
    cuts: Option<DigestUpdate>,
    /// Whether the stored cuts are of the same stamp and key.
    is_same_index: bool,
    /// Keys of the stored cuts, where they are.
    stored: Vec<String>,
    untouched: HashMap<String, i64>,
}

/// A stored cut without its digest.
#[derive(FromRow)]
struct StoredCut {
    key: String,
    chart_id: Option<String>,
    row_id: Option<i64>,
    /// Whether the row holds versions that have left the index.
    is_marked: bool,
}

/// The row of an index.
#[derive(FromRow)]
struct StoredIndex {
    cache_key: String,
    digest_key: String,
    trusted: bool,
}

impl Memory {
    /// Looks up what `cuts` calls unchanged. The repository's lock is held, and Kubeapps' row of it too.
    ///
    /// # Errors
    /// [`Error::OutdatedCuts`] where that is not what is stored any more.
    pub(super) async fn recall(
        tx: &mut Transaction,
        record: &Record,
        cuts: Option<DigestUpdate>,
    ) -> Result<Self, Error> {
        let Some(cuts) = cuts else {
            return Ok(Self {
                cuts: None,
                is_same_index: false,
                stored: Vec::new(),
                untouched: HashMap::new(),
            });
        };
        let index = index(tx, &record.name).await?;
        let is_same_index = index.as_ref().is_some_and(|index| {
            index.cache_key == storable(&cuts.stamp) && index.digest_key == storable(&cuts.secret)
        });
        let stored = if is_same_index {
            stored(tx, &record.name).await?
        } else {
            Vec::new()
        };
        let untouched = if cuts.unchanged.is_empty() {
            HashMap::new()
        } else {
            // Without a revision it is not known whether the cuts were written since they were read.
            let is_as_read = record.revision.is_some() && index.is_some_and(|index| index.trusted);
            let untouched = is_as_read.then(|| untouched(&cuts, &stored)).flatten();
            untouched.ok_or(Error::OutdatedCuts)?
        };
        Ok(Self {
            cuts: Some(cuts),
            is_same_index,
            stored: stored.into_iter().map(|cut| cut.key).collect(),
            untouched,
        })
    }

    /// Charts that are what they were, by chart_id, with the id that the row of each should have.
    pub(super) const fn untouched(&self) -> &HashMap<String, i64> {
        &self.untouched
    }

    /// Brings the memory up to date, once the charts are written. What the database has `rejected`, by chart_id, is not
    /// remembered: it is tried again each time.
    pub(super) async fn save(
        self,
        tx: &mut Transaction,
        name: &NamespacedName,
        rejected: &[(String, String)],
    ) -> Result<(), Error> {
        let Some(cuts) = self.cuts else {
            return forget(tx, name).await;
        };
        if !self.is_same_index {
            begin_anew(tx, name, &cuts).await?;
        }
        let new = memorable(&cuts.new, rejected);
        let unchanged = cuts.unchanged.iter().map(|cut| &*cut.key);
        let kept: HashSet<&str> = unchanged.chain(new.iter().map(|cut| cut.key)).collect();
        let gone = self.stored.iter().map(String::as_str);
        let gone: Vec<&str> = gone.filter(|key| !kept.contains(key)).collect();
        delete(tx, name, &gone).await?;
        for new in new.chunks(AT_ONCE) {
            upsert(tx, name, new).await?;
        }
        Ok(())
    }
}

/// The rows that need not be looked at, by chart_id, with their ids; nothing where what is called unchanged is not what is stored, or
/// a new chart would come to a row of them.
fn untouched(cuts: &DigestUpdate, stored: &[StoredCut]) -> Option<HashMap<String, i64>> {
    let stored: HashMap<&str, &StoredCut> = stored.iter().map(|cut| (&*cut.key, cut)).collect();
    let (mut keys, mut rows) = (HashSet::new(), HashMap::new());
    for Unchanged { key, chart_id } in &cuts.unchanged {
        let cut = stored.get(&**key)?;
        if cut.chart_id != *chart_id || cut.is_marked || !keys.insert(&**key) {
            return None;
        }
        if let Some(chart_id) = chart_id
            && rows.insert(chart_id.clone(), cut.row_id?).is_some()
        {
            return None;
        }
    }
    let is_taken =
        |new: &ChartDigest| keys.contains(&*new.key) || new.chart_id.as_ref().is_some_and(|id| rows.contains_key(id));
    (!cuts.new.iter().any(is_taken)).then_some(rows)
}

/// SQLite reads it from a JSON text, by these names.
#[derive(Clone, Copy, Serialize)]
struct CutRow<'a> {
    key: &'a str,
    digest: &'a str,
    stats: &'a str,
    chart_id: Option<&'a str>,
}

/// Those cuts that can be remembered. Of several of one chart_id it can't be told by which the row would be made once one of them goes.
fn memorable<'a>(new: &'a [ChartDigest], rejected: &[(String, String)]) -> Vec<CutRow<'a>> {
    let rejected: HashSet<&str> = rejected.iter().map(|(chart_id, _)| &**chart_id).collect();
    let (mut keys, mut charts) = (HashMap::<&str, usize>::new(), HashMap::<&str, usize>::new());
    for cut in new {
        *keys.entry(&cut.key).or_default() += 1;
        if let Some(chart_id) = &cut.chart_id {
            *charts.entry(chart_id).or_default() += 1;
        }
    }
    let is_memorable = |row: &CutRow<'_>| {
        let texts = [Some(row.key), Some(row.digest), Some(row.stats), row.chart_id];
        row.key.len() <= KEY_BYTES
            && keys.get(row.key) == Some(&1)
            && row.chart_id.is_none_or(|id| charts.get(id) == Some(&1) && !rejected.contains(id))
            // Postgres can't store NUL.
            && !texts.into_iter().flatten().any(|text| text.contains('\0'))
    };
    new.iter()
        .map(|cut| CutRow {
            key: &cut.key,
            digest: &cut.digest,
            stats: &cut.memo,
            chart_id: cut.chart_id.as_deref(),
        })
        .filter(is_memorable)
        .collect()
}

async fn index(tx: &mut Transaction, name: &NamespacedName) -> Result<Option<StoredIndex>, Error> {
    const SELECT: &str = "SELECT i.cache_key, i.digest_key,
            coalesce(r.id = p.repos_id AND r.checksum = p.repos_checksum AND r.last_update = p.repos_last_update, FALSE) AS trusted
        FROM portolan_index_cache i
            LEFT JOIN portolan_repositories p ON p.namespace = i.namespace AND p.name = i.name
            LEFT JOIN repos r ON r.namespace = i.namespace AND r.name = i.name
        WHERE i.namespace = $1 AND i.name = $2";
    Ok(on_engine!(tx, tx => sqlx::query_as(SELECT)
        .bind(&name.namespace)
        .bind(&name.name)
        .fetch_optional(&mut **tx)
        .await?))
}

async fn stored(tx: &mut Transaction, name: &NamespacedName) -> Result<Vec<StoredCut>, Error> {
    const SELECT: &str = "SELECT k.key, k.chart_id, k.row_id, EXISTS (SELECT 1 FROM portolan_kept_versions v
            WHERE v.namespace = k.namespace AND v.name = k.name AND v.chart_id = k.chart_id) AS is_marked
        FROM portolan_chart_digests k WHERE k.namespace = $1 AND k.name = $2";
    Ok(on_engine!(tx, tx => sqlx::query_as(SELECT)
        .bind(&name.namespace)
        .bind(&name.name)
        .fetch_all(&mut **tx)
        .await?))
}

/// Nothing is remembered of the index any more. Where there is no index, there are no cuts.
async fn forget(tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
    const DELETE: &str = "DELETE FROM portolan_index_cache WHERE namespace = $1 AND name = $2";
    let indexes = on_engine!(&mut *tx, tx => sqlx::query(DELETE)
        .bind(&name.namespace)
        .bind(&name.name)
        .execute(&mut **tx)
        .await?
        .rows_affected());
    if indexes > 0 {
        delete_all(tx, name).await?;
    }
    Ok(())
}

async fn begin_anew(tx: &mut Transaction, name: &NamespacedName, cuts: &DigestUpdate) -> Result<(), Error> {
    const UPSERT: &str =
        "INSERT INTO portolan_index_cache (namespace, name, cache_key, digest_key) VALUES ($1, $2, $3, $4)
        ON CONFLICT (namespace, name) DO UPDATE SET cache_key = excluded.cache_key, digest_key = excluded.digest_key";
    delete_all(tx, name).await?;
    on_engine!(tx, tx => {
        sqlx::query(UPSERT)
            .bind(&name.namespace)
            .bind(&name.name)
            .bind(storable(&cuts.stamp))
            .bind(storable(&cuts.secret))
            .execute(&mut **tx)
            .await?;
    });
    Ok(())
}

async fn delete_all(tx: &mut Transaction, name: &NamespacedName) -> Result<(), Error> {
    const DELETE: &str = "DELETE FROM portolan_chart_digests WHERE namespace = $1 AND name = $2";
    on_engine!(tx, tx => {
        sqlx::query(DELETE).bind(&name.namespace).bind(&name.name).execute(&mut **tx).await?;
    });
    Ok(())
}

async fn delete(tx: &mut Transaction, name: &NamespacedName, keys: &[&str]) -> Result<(), Error> {
    const SQLITE: &str = "DELETE FROM portolan_chart_digests WHERE namespace = $1 AND name = $2
        AND key IN (SELECT value FROM json_each($3))";
    const POSTGRES: &str = "DELETE FROM portolan_chart_digests WHERE namespace = $1 AND name = $2 AND key = ANY($3)";
    for keys in keys.chunks(AT_ONCE) {
        match tx {
            Engine::Sqlite(tx) => {
                let query = sqlx::query(SQLITE).bind(&name.namespace).bind(&name.name);
                query.bind(Json(keys)).execute(&mut **tx).await?;
            }
            Engine::Postgres(tx) => {
                let query = sqlx::query(POSTGRES).bind(&name.namespace).bind(&name.name);
                query.bind(keys).execute(&mut **tx).await?;
            }
        }
    }
    Ok(())
}

async fn upsert(tx: &mut Transaction, name: &NamespacedName, new: &[CutRow<'_>]) -> Result<(), Error> {
    let statement = sql!(tx, "chart_digests_upsert.sql");
    match tx {
        Engine::Sqlite(tx) => {
            let query = sqlx::query(statement).bind(&name.namespace).bind(&name.name);
            query.bind(Json(new)).execute(&mut **tx).await?;
        }
        Engine::Postgres(tx) => {
            let query = sqlx::query(statement).bind(&name.namespace).bind(&name.name);
            let query = query
                .bind(new.iter().map(|cut| cut.key).collect::<Vec<_>>())
                .bind(new.iter().map(|cut| cut.digest).collect::<Vec<_>>())
                .bind(new.iter().map(|cut| cut.stats).collect::<Vec<_>>())
                .bind(new.iter().map(|cut| cut.chart_id).collect::<Vec<_>>());
            query.execute(&mut **tx).await?;
        }
    }
    Ok(())
}
