//! Cached state of a registry's repositories and tags, so that only new tags are pulled: `portolan_oci_repositories`
//! and `portolan_oci_tags`. All of it can be fetched again, so it is not bound to a UID, and survives the loss of
//! Kubeapps' tables.

use std::collections::BTreeMap;

use futures::TryStreamExt;
use jiff::Timestamp;
use serde::Serialize;
use sqlx::{FromRow, types::Json};

use super::{
    COMMIT_DEADLINE, Catalog, Error,
    engine::{Transaction, execute, on_engine, select},
    record::{self, parse_time, storable},
};
use crate::api::NamespacedName;

/// Limits of one statement. The metadata of a tag may be large.
const MAX_BYTES: usize = 1 << 20;
const MAX_ROWS: usize = 1000;

/// A repository of a registry: one chart, with one tag per version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OciRepository {
    /// Path below `/v2/`, or another name that is unique in its source.
    pub repository: String,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    /// Time of the last digest check of known tags; `None` if a check is due.
    pub digests_checked: Option<Timestamp>,
    pub tags: BTreeMap<String, OciTag>,
}

/// State of a tag. The metadata stays in the database because it may be large.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OciTag {
    pub digest: String,
    /// Reason that the tag is not a chart. Without one it is a chart, or, with an empty digest, was never pulled.
    pub problem: Option<String>,
    pub tries: u32,
    pub next_try: Option<Timestamp>,
}

impl OciTag {
    #[must_use]
    pub const fn is_chart(&self) -> bool {
        self.problem.is_none() && !self.digest.is_empty()
    }

    /// Returns true if the stored chart is outdated because the current manifest can't be pulled.
    #[must_use]
    pub const fn is_outdated(&self) -> bool {
        self.is_chart() && self.tries > 0
    }

    /// Returns true if the tag was never pulled, because of transient failures.
    #[must_use]
    pub const fn is_pending(&self) -> bool {
        self.problem.is_none() && self.digest.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OciChange {
    pub name: String,
    pub tag: OciTag,
    /// Chart.yaml as JSON; `None` keeps the stored metadata.
    pub metadata: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct OciMetadata {
    pub tag: String,
    pub digest: String,
    pub metadata: String,
}

impl Catalog {
    /// Omits metadata and other sources. `source` is a digest of the URL, the type and the repository list.
    pub async fn oci_repositories(&self, name: &NamespacedName, source: &str) -> Result<Vec<OciRepository>, Error> {
        const SELECT: &str = "SELECT r.repository, r.etag, r.last_modified, r.digests_checked,
                t.tag, t.digest, t.problem, t.tries, t.next_try
            FROM portolan_oci_repositories r LEFT JOIN portolan_oci_tags t
                ON t.namespace = r.namespace AND t.name = r.name AND t.repository = r.repository
            WHERE r.namespace = $1 AND r.name = $2 AND r.source = $3";
        self.read_with(
            "read the cached registry state",
            &name.namespace,
            COMMIT_DEADLINE,
            async |connection| {
                let mut repositories = BTreeMap::new();
                on_engine!(connection.executor(), executor => {
                    let mut rows = sqlx::query_as::<_, OciRow>(SELECT)
                        .bind(&name.namespace)
                        .bind(&name.name)
                        .bind(source)
                        .fetch(executor);
                    while let Some(row) = rows.try_next().await? {
                        row.add_to(&mut repositories);
                    }
                });
                Ok(repositories.into_values().collect())
            },
        )
        .await
    }

    /// Returns up to `limit` charts of a repository of the registry, ordered by tag, after the tag `after`.
    pub async fn oci_metadata(
        &self,
        name: &NamespacedName,
        repository: &str,
        after: &str,
        limit: u32,
    ) -> Result<Vec<OciMetadata>, Error> {
        const SELECT: &str = "SELECT tag, digest, metadata FROM portolan_oci_tags
            WHERE namespace = $1 AND name = $2 AND repository = $3 AND tag > $4 AND metadata IS NOT NULL
            ORDER BY tag LIMIT $5";
        self.read_with(
            "read the cached chart metadata",
            &name.namespace,
            COMMIT_DEADLINE,
            async |connection| {
                let (repository, limit) = (storable(repository), i64::from(limit));
                Ok(select!(fetch_all, connection, SELECT, name, repository, after, limit))
            },
        )
        .await
    }

    /// Ignores `repository.tags`. Deletes state of other sources; [`Catalog::delete_oci`] what left the registry.
    pub async fn save_oci(
        &self,
        name: &NamespacedName,
        source: &str,
        repository: &OciRepository,
        changed: &[OciChange],
    ) -> Result<(), Error> {
        self.write_long("write the cached registry state", &name.namespace, async |tx| {
            record::lock(tx, name).await?;
            delete_other_sources(tx, name, source).await?;
            upsert_repository(tx, name, source, repository).await?;
            upsert_tags(tx, name, &repository.repository, changed).await
        })
        .await
    }

    /// Resets validators, digest checks and retries, so that the next sync checks everything.
    pub async fn recheck_oci(&self, name: &NamespacedName, now: Timestamp) -> Result<(), Error> {
        const REPOSITORIES: &str = "UPDATE portolan_oci_repositories
            SET etag = NULL, last_modified = NULL, digests_checked = NULL WHERE namespace = $1 AND name = $2";
        const TAGS: &str = "UPDATE portolan_oci_tags SET next_try = $3
            WHERE namespace = $1 AND name = $2 AND next_try IS NOT NULL";
        self.write_long("reset the cached registry state", &name.namespace, async |tx| {
            record::lock(tx, name).await?;
            execute!(tx, REPOSITORIES, name);
            execute!(tx, TAGS, name, now.to_string());
            Ok(())
        })
        .await
    }
}

async fn delete_other_sources(tx: &mut Transaction, name: &NamespacedName, source: &str) -> Result<(), Error> {
    for statement in [
        "DELETE FROM portolan_oci_tags WHERE namespace = $1 AND name = $2 AND repository IN (SELECT repository
            FROM portolan_oci_repositories WHERE namespace = $1 AND name = $2 AND source <> $3)",
        "DELETE FROM portolan_oci_repositories WHERE namespace = $1 AND name = $2 AND source <> $3",
    ] {
        execute!(tx, statement, name, source);
    }
    Ok(())
}

pub(super) async fn upsert_repository(
    tx: &mut Transaction,
    name: &NamespacedName,
    source: &str,
    repository: &OciRepository,
) -> Result<(), Error> {
    const UPSERT: &str = "INSERT INTO portolan_oci_repositories AS r
            (namespace, name, repository, source, etag, last_modified, digests_checked)
        VALUES ($1, $2, $3, $4, $5, $6, $7)
        ON CONFLICT (namespace, name, repository) DO UPDATE SET etag = excluded.etag,
            last_modified = excluded.last_modified, digests_checked = excluded.digests_checked
        WHERE r.etag IS DISTINCT FROM excluded.etag OR r.last_modified IS DISTINCT FROM excluded.last_modified
            OR r.digests_checked IS DISTINCT FROM excluded.digests_checked";
    execute!(
        tx,
        UPSERT,
        name,
        storable(&repository.repository),
        source,
        repository.etag.as_deref().map(storable),
        repository.last_modified.as_deref().map(storable),
        repository.digests_checked.map(|time| time.to_string()),
    );
    Ok(())
}

async fn upsert_tags(
    tx: &mut Transaction,
    name: &NamespacedName,
    repository: &str,
    changed: &[OciChange],
) -> Result<(), Error> {
    let mut rows: Vec<TagRow> = Vec::new();
    let mut bytes = 0;
    for change in changed {
        let row = TagRow::of(change);
        bytes += row.metadata.as_ref().map_or(0, String::len);
        rows.push(row);
        if bytes >= MAX_BYTES || rows.len() >= MAX_ROWS {
            upsert_batch(tx, name, repository, &std::mem::take(&mut rows)).await?;
            bytes = 0;
        }
    }
    upsert_batch(tx, name, repository, &rows).await
}

async fn upsert_batch(
    tx: &mut Transaction,
    name: &NamespacedName,
    repository: &str,
    rows: &[TagRow],
) -> Result<(), Error> {
    // SQLite needs WHERE to parse ON CONFLICT after SELECT.
    const SQLITE: &str = "INSERT INTO portolan_oci_tags AS t
            (namespace, name, repository, tag, digest, metadata, problem, tries, next_try)
        SELECT $1, $2, $3, value ->> '$.tag', value ->> '$.digest', value ->> '$.metadata', value ->> '$.problem',
            value ->> '$.tries', value ->> '$.next_try' FROM json_each($4) WHERE true
        ON CONFLICT (namespace, name, repository, tag) DO UPDATE SET digest = excluded.digest,
            metadata = CASE WHEN excluded.problem IS NULL THEN coalesce(excluded.metadata, t.metadata) END,
            problem = excluded.problem, tries = excluded.tries, next_try = excluded.next_try";
    const POSTGRES: &str = "INSERT INTO portolan_oci_tags AS t
            (namespace, name, repository, tag, digest, metadata, problem, tries, next_try)
        SELECT $1, $2, $3, row.* FROM jsonb_to_recordset($4)
            AS row (tag text, digest text, metadata text, problem text, tries bigint, next_try text)
        ON CONFLICT (namespace, name, repository, tag) DO UPDATE SET digest = excluded.digest,
            metadata = CASE WHEN excluded.problem IS NULL THEN coalesce(excluded.metadata, t.metadata) END,
            problem = excluded.problem, tries = excluded.tries, next_try = excluded.next_try";
    if rows.is_empty() {
        return Ok(());
    }
    let statement = tx.choose(SQLITE, POSTGRES);
    execute!(tx, statement, name, storable(repository), Json(rows));
    Ok(())
}

#[derive(Serialize)]
struct TagRow {
    tag: String,
    digest: String,
    metadata: Option<String>,
    problem: Option<String>,
    tries: i64,
    next_try: Option<String>,
}

impl TagRow {
    fn of(OciChange { name, tag, metadata }: &OciChange) -> Self {
        let text = |text: &String| storable(text).into_owned();
        Self {
            tag: text(name),
            digest: text(&tag.digest),
            metadata: metadata.as_ref().map(text),
            problem: tag.problem.as_ref().map(text),
            tries: tag.tries.into(),
            next_try: tag.next_try.map(|time| time.to_string()),
        }
    }
}

/// A tag with its repository. The tag columns are null for a repository without tags.
#[derive(FromRow)]
struct OciRow {
    repository: String,
    etag: Option<String>,
    last_modified: Option<String>,
    digests_checked: Option<String>,
    tag: Option<String>,
    digest: Option<String>,
    problem: Option<String>,
    tries: Option<i64>,
    next_try: Option<String>,
}

impl OciRow {
    fn add_to(mut self, repositories: &mut BTreeMap<String, OciRepository>) {
        let repository = repositories
            .entry(self.repository.clone())
            .or_insert_with(|| OciRepository {
                repository: self.repository.clone(),
                etag: self.etag.take(),
                last_modified: self.last_modified.take(),
                digests_checked: parse_time(self.digests_checked.as_deref()),
                tags: BTreeMap::new(),
            });
        repository.tags.extend(self.tag());
    }

    fn tag(self) -> Option<(String, OciTag)> {
        let tag = OciTag {
            digest: self.digest?,
            problem: self.problem,
            tries: u32::try_from(self.tries?).unwrap_or(u32::MAX),
            next_try: parse_time(self.next_try.as_deref()),
        };
        Some((self.tag?, tag))
    }
}
