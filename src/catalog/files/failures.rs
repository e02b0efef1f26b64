//! Failed downloads and their next retry: `portolan_files` and `portolan_icons`, two tables of the same form.
//!
//! A row counts the tries of one subject (an archive by its digest, an icon by its URL). A new subject starts at 1.

use jiff::Timestamp;

use crate::api::NamespacedName;
use crate::catalog::engine::{Transaction, execute, on_engine, select};
use crate::catalog::record::storable;
use crate::catalog::{Catalog, Error};

pub(in crate::catalog) struct Failures {
    upsert: &'static str,
    delete: &'static str,
    retry: &'static str,
}

/// Failed archives. The key is the `chart_id` and the `chart_files_id`.
pub(in crate::catalog) const FILES: Failures = Failures {
    upsert: "INSERT INTO portolan_files (namespace, name, next_try, message, chart_id, chart_files_id, digest, tries)
        VALUES ($1, $2, $3, $4, $5, $6, $7, 1)
        ON CONFLICT (namespace, name, chart_id, chart_files_id) DO UPDATE SET digest = excluded.digest,
            tries = CASE WHEN portolan_files.digest = excluded.digest THEN portolan_files.tries + 1 ELSE 1 END,
            next_try = excluded.next_try, message = excluded.message",
    delete: "DELETE FROM portolan_files WHERE namespace = $1 AND name = $2 AND chart_id = $3 AND chart_files_id = $4",
    retry: "UPDATE portolan_files SET next_try = 0 WHERE namespace = $1 AND name = $2 AND next_try > 0",
};

pub(crate) const ICONS: Failures = Failures {
    upsert: "INSERT INTO portolan_icons (namespace, name, next_try, message, chart_id, url, tries)
        VALUES ($1, $2, $3, $4, $5, $6, 1)
        ON CONFLICT (namespace, name, chart_id) DO UPDATE SET url = excluded.url,
            tries = CASE WHEN portolan_icons.url = excluded.url THEN portolan_icons.tries + 1 ELSE 1 END,
            next_try = excluded.next_try, message = excluded.message",
    delete: "DELETE FROM portolan_icons WHERE namespace = $1 AND name = $2 AND chart_id = $3",
    retry: "UPDATE portolan_icons SET next_try = 0 WHERE namespace = $1 AND name = $2 AND next_try > 0",
};

impl Failures {
    /// Adds a failed try of the subject (a digest or URL) and sets the next one.
    pub(crate) async fn record(
        &self,
        tx: &mut Transaction,
        name: &NamespacedName,
        key: &[&str],
        subject: &str,
        message: &str,
        next_try: Timestamp,
    ) -> Result<(), Error> {
        on_engine!(tx.executor(), executor => {
            let mut query = sqlx::query(self.upsert)
                .bind(&name.namespace)
                .bind(&name.name)
                .bind(next_try.as_millisecond())
                .bind(storable(message));
            for part in key {
                query = query.bind(*part);
            }
            query.bind(subject).execute(executor).await?;
        });
        Ok(())
    }

    pub(crate) async fn delete(&self, tx: &mut Transaction, name: &NamespacedName, key: &[&str]) -> Result<(), Error> {
        on_engine!(tx.executor(), executor => {
            let mut query = sqlx::query(self.delete).bind(&name.namespace).bind(&name.name);
            for part in key {
                query = query.bind(*part);
            }
            query.execute(executor).await?;
        });
        Ok(())
    }

    pub(in crate::catalog) async fn retry(&self, tx: &mut Transaction, name: &NamespacedName) -> Result<u64, Error> {
        Ok(execute!(tx, self.retry, name))
    }
}

impl Catalog {
    /// Returns up to `limit` versions without files, ordered by ID, each with the reason.
    pub async fn files_problems(&self, name: &NamespacedName, limit: usize) -> Result<Vec<(String, String)>, Error> {
        const SELECT: &str = "SELECT chart_files_id, message FROM portolan_files
            WHERE namespace = $1 AND name = $2 AND tries > 0 ORDER BY chart_files_id LIMIT $3";
        self.read(
            "read the failures of chart files",
            &name.namespace,
            async |connection| {
                let limit = i64::try_from(limit).unwrap_or(i64::MAX);
                Ok(select!(fetch_all, connection, SELECT, name, limit))
            },
        )
        .await
    }
}
