//! Which versions have no files yet, told by the database itself: the charts of a large repository are not moved out of it for that.
//!
//! All statements begin with the versions of a repository, a first entry for each, and most go on with those of them that are
//! open. The parameters of these two are `$1` (namespace), `$2` (name) and `$3` (only the newest version of each chart).

use jiff::Timestamp;
use sqlx::FromRow;

use super::{
    Error, FilesMode, Progress, RepositoryName, Wanted, WantedFiles,
    engine::{Engine, Pools, Transaction, on_engine},
    record::unsigned,
};

/// A mode that wants something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    only_newest: bool,
}

impl Mode {
    pub(super) const fn of(mode: FilesMode) -> Option<Self> {
        match mode {
            FilesMode::All => Some(Self { only_newest: false }),
            FilesMode::Latest => Some(Self { only_newest: true }),
            FilesMode::None => None,
        }
    }
}

macro_rules! versions_sqlite {
    () => {
        "WITH versions AS MATERIALIZED (
            SELECT chart_id, at, digest, version, chart_id || '-' || version AS files_id, urls FROM (
                SELECT c.chart_id, e.key + 1 AS at, e.value ->> 'version' AS version,
                    coalesce(e.value ->> 'digest', '') AS digest, e.value -> 'urls' AS urls,
                    row_number() OVER (PARTITION BY c.chart_id, e.value ->> 'version' ORDER BY e.key) AS nth
                FROM charts c, json_each(c.info, '$.chartVersions') AS e
                WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IS NOT NULL
                    AND e.value ->> 'version' <> '' AND (NOT $3 OR e.key = 0)
            ) AS entries WHERE nth = 1)"
    };
}

macro_rules! versions_postgres {
    () => {
        "WITH versions AS MATERIALIZED (
            SELECT chart_id, at, digest, version, chart_id || '-' || version AS files_id, urls FROM (
                SELECT c.chart_id, e.at, e.entry ->> 'version' AS version,
                    coalesce(e.entry ->> 'digest', '') AS digest, CAST(e.entry -> 'urls' AS TEXT) AS urls,
                    row_number() OVER (PARTITION BY c.chart_id, e.entry ->> 'version' ORDER BY e.at) AS nth
                FROM charts c CROSS JOIN jsonb_array_elements(CASE jsonb_typeof(c.info -> 'chartVersions')
                    WHEN 'array' THEN c.info -> 'chartVersions' ELSE '[]' END) WITH ORDINALITY AS e (entry, at)
                WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IS NOT NULL
                    AND e.entry ->> 'version' <> '' AND (NOT $3 OR e.at = 1)
            ) AS entries WHERE nth = 1)"
    };
}

/// Those without files, those with files of another archive, and those with empty ones; with what is known of earlier tries of
/// this very archive. A row that belongs to another chart, which has come to the same id, is not touched.
macro_rules! open {
    ($is_of_this_archive:expr) => {
        concat!(
            ", open AS MATERIALIZED (
            SELECT v.chart_id, v.at, v.version, v.digest, v.urls,
                CASE WHEN p.digest = v.digest THEN p.tries ELSE 0 END AS tries,
                CASE WHEN p.digest = v.digest THEN p.next_try ELSE 0 END AS next_try
            FROM versions v
            LEFT JOIN files f ON f.repo_namespace = $1 AND f.chart_files_id = v.files_id
            LEFT JOIN portolan_files p ON p.namespace = $1 AND p.name = $2
                AND p.chart_id = v.chart_id AND p.chart_files_id = v.files_id
            WHERE f.id IS NULL OR (f.chart_id = v.chart_id
                AND ((v.digest = '' AND p.digest IS NOT NULL) OR NOT coalesce(",
            $is_of_this_archive,
            ", FALSE))))"
        )
    };
}

/// By our index alone, since whoever asked the row itself for its digest would read the README too. Where somebody has taken the
/// index away, or Kubeapps has made the table anew, that is the shorter way all the same.
macro_rules! open_sqlite {
    () => {
        open!(
            "CASE WHEN (SELECT count(*) FROM sqlite_master WHERE name = 'portolan_files_content') > 0 THEN
                (SELECT TRUE FROM files m WHERE m.repo_name = $2 AND m.repo_namespace = $1 AND m.chart_id = v.chart_id
                    AND m.chart_files_id || char(10) || (m.info ->> 'Digest') = v.files_id || char(10) || v.digest LIMIT 1)
                ELSE f.info ->> 'Digest' = v.digest END"
        )
    };
}

macro_rules! open_postgres {
    () => {
        open!(
            "CASE WHEN (SELECT to_regclass('portolan_files_content') IS NOT NULL) THEN
                (SELECT TRUE FROM files m WHERE m.repo_name = $2 AND m.repo_namespace = $1 AND m.chart_id = v.chart_id
                    AND hashtextextended(m.chart_files_id || chr(10) || (m.info ->> 'Digest'), 0)
                        = hashtextextended(v.files_id || chr(10) || v.digest, 0) LIMIT 1)
                ELSE f.info ->> 'Digest' = v.digest END"
        )
    };
}

/// One row in any case, so that the next time is told where nothing is wanted now. `$4` is now, `$5` how many.
macro_rules! select_wanted {
    () => {
        " SELECT n.next_try, w.chart_id, w.version, w.digest, w.urls, w.tries
        FROM (SELECT min(next_try) AS next_try FROM open WHERE next_try > $4) AS n
        LEFT JOIN (SELECT * FROM open WHERE next_try <= $4 ORDER BY at, chart_id LIMIT $5) AS w ON TRUE
        ORDER BY w.at, w.chart_id"
    };
}

/// `$4` is the number of tries that make a failure.
macro_rules! select_progress {
    () => {
        " SELECT (SELECT count(*) FROM versions), (SELECT count(*) FROM open),
            (SELECT count(*) FROM open WHERE tries >= $4)"
    };
}

/// Those behind the first `$4` of each chart that have no row.
macro_rules! left_out {
    () => {
        "versions v WHERE v.at > $4
            AND NOT EXISTS (SELECT 1 FROM files f WHERE f.repo_namespace = $1 AND f.chart_files_id = v.files_id)"
    };
}

macro_rules! note_left_out {
    () => {
        concat!(
            " INSERT INTO portolan_files (namespace, name, chart_id, chart_files_id, digest, tries, next_try, message)
            SELECT $1, $2, v.chart_id, v.files_id, v.digest, 0, 0, '' FROM ",
            left_out!(),
            " ON CONFLICT DO NOTHING"
        )
    };
}

macro_rules! write_left_out {
    ($info:expr) => {
        concat!(
            " INSERT INTO files (chart_id, repo_name, repo_namespace, chart_files_id, info)
            SELECT v.chart_id, $2, $1, v.files_id, ",
            $info,
            " FROM ",
            left_out!(),
            " ON CONFLICT DO NOTHING"
        )
    };
}

const WANTED_SQLITE: &str = concat!(versions_sqlite!(), open_sqlite!(), select_wanted!());
const WANTED_POSTGRES: &str = concat!(versions_postgres!(), open_postgres!(), select_wanted!());
const PROGRESS_SQLITE: &str = concat!(versions_sqlite!(), open_sqlite!(), select_progress!());
const PROGRESS_POSTGRES: &str = concat!(versions_postgres!(), open_postgres!(), select_progress!());
const NOTE_LEFT_OUT_SQLITE: &str = concat!(versions_sqlite!(), note_left_out!());
const NOTE_LEFT_OUT_POSTGRES: &str = concat!(versions_postgres!(), note_left_out!());
const WRITE_LEFT_OUT_SQLITE: &str = concat!(
    versions_sqlite!(),
    write_left_out!(
        "json_object('ID', v.files_id, 'Readme', '', 'DefaultValues', '', 'AdditionalDefaultValues', json('{}'),
            'Schema', '', 'Repo', (SELECT json(c.info -> 'repo') FROM charts c
                WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = v.chart_id), 'Digest', '')"
    )
);
const WRITE_LEFT_OUT_POSTGRES: &str = concat!(
    versions_postgres!(),
    write_left_out!(
        "jsonb_build_object('ID', v.files_id, 'Readme', '', 'DefaultValues', '', 'AdditionalDefaultValues', '{}'::jsonb,
            'Schema', '', 'Repo', (SELECT c.info -> 'repo' FROM charts c
                WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id = v.chart_id), 'Digest', '')"
    )
);

pub(super) async fn files(
    pools: &Pools,
    name: &RepositoryName,
    mode: Mode,
    now: Timestamp,
    limit: usize,
) -> Result<Wanted, Error> {
    let reader = pools.reader();
    let statement = match reader {
        Engine::Sqlite(_) => WANTED_SQLITE,
        Engine::Postgres(_) => WANTED_POSTGRES,
    };
    let rows: Vec<WantedRow> = on_engine!(reader, pool => sqlx::query_as(statement)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(mode.only_newest)
        .bind(now.as_millisecond())
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(pool)
        .await?);
    let next_try = rows.first().and_then(|row| row.next_try);
    Ok(Wanted {
        files: rows.into_iter().filter_map(WantedRow::files).collect(),
        next_try: next_try.and_then(|millis| Timestamp::from_millisecond(millis).ok()),
    })
}

pub(super) async fn progress(pools: &Pools, name: &RepositoryName, mode: Mode) -> Result<Progress, Error> {
    let reader = pools.reader();
    let statement = match reader {
        Engine::Sqlite(_) => PROGRESS_SQLITE,
        Engine::Postgres(_) => PROGRESS_POSTGRES,
    };
    let (total, open, failed): (i64, i64, i64) = on_engine!(reader, pool => sqlx::query_as(statement)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(mode.only_newest)
        .bind(i64::from(Progress::TRIES))
        .fetch_one(pool)
        .await?);
    Ok(Progress {
        total: unsigned(total),
        imported: unsigned(total - open),
        failed: unsigned(failed),
    })
}

/// Empty rows for all versions but the first `passed_over` of each chart, where there is none. Says how many.
pub(super) async fn leave_out(tx: &mut Transaction, name: &RepositoryName, passed_over: i64) -> Result<u64, Error> {
    let statements = match tx {
        Engine::Sqlite(_) => [NOTE_LEFT_OUT_SQLITE, WRITE_LEFT_OUT_SQLITE],
        Engine::Postgres(_) => [NOTE_LEFT_OUT_POSTGRES, WRITE_LEFT_OUT_POSTGRES],
    };
    let mut written = 0;
    for statement in statements {
        written = on_engine!(&mut *tx, tx => sqlx::query(statement)
            .bind(&name.namespace)
            .bind(&name.name)
            .bind(false)
            .bind(passed_over)
            .execute(&mut **tx)
            .await?
            .rows_affected());
    }
    Ok(written)
}

/// All but the next time is null where nothing is wanted now.
#[derive(FromRow)]
struct WantedRow {
    next_try: Option<i64>,
    chart_id: Option<String>,
    version: Option<String>,
    digest: Option<String>,
    urls: Option<String>,
    tries: Option<i64>,
}

impl WantedRow {
    fn files(self) -> Option<WantedFiles> {
        let urls = self
            .urls
            .and_then(|urls| serde_json::from_str::<Option<Vec<String>>>(&urls).ok());
        Some(WantedFiles {
            chart_id: self.chart_id?,
            version: self.version?,
            digest: self.digest?,
            urls: urls.flatten().filter(|urls| !urls.is_empty()),
            tries: u32::try_from(self.tries?).unwrap_or(u32::MAX),
        })
    }
}
