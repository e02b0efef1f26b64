//! What could not be fetched for a chart, and when it is to be tried again: `portolan_files` and `portolan_icons`, two tables of one
//! form. A row counts the tries of one thing (an archive by its digest, an icon by its URL), and another thing begins anew.

use jiff::Timestamp;

use crate::api::NamespacedName;
use crate::catalog::Error;
use crate::catalog::engine::{Transaction, on_engine};
use crate::catalog::record::storable;

/// One of the two tables.
pub(in crate::catalog) struct Failures {
    note: &'static str,
    forget: &'static str,
    retry: &'static str,
}

/// Of archives: a key is the chart and the id of its files.
pub(super) const FILES: Failures = Failures {
    note: "INSERT INTO portolan_files (namespace, name, next_try, message, chart_id, chart_files_id, digest, tries)
        VALUES ($1, $2, $3, $4, $5, $6, $7, 1)
        ON CONFLICT (namespace, name, chart_id, chart_files_id) DO UPDATE SET digest = excluded.digest,
            tries = CASE WHEN portolan_files.digest = excluded.digest THEN portolan_files.tries + 1 ELSE 1 END,
            next_try = excluded.next_try, message = excluded.message",
    forget: "DELETE FROM portolan_files WHERE namespace = $1 AND name = $2 AND chart_id = $3 AND chart_files_id = $4",
    retry: "UPDATE portolan_files SET next_try = 0 WHERE namespace = $1 AND name = $2 AND next_try > 0",
};

/// Of icons: a key is the chart.
pub(crate) const ICONS: Failures = Failures {
    note: "INSERT INTO portolan_icons (namespace, name, next_try, message, chart_id, url, tries)
        VALUES ($1, $2, $3, $4, $5, $6, 1)
        ON CONFLICT (namespace, name, chart_id) DO UPDATE SET url = excluded.url,
            tries = CASE WHEN portolan_icons.url = excluded.url THEN portolan_icons.tries + 1 ELSE 1 END,
            next_try = excluded.next_try, message = excluded.message",
    forget: "DELETE FROM portolan_icons WHERE namespace = $1 AND name = $2 AND chart_id = $3",
    retry: "UPDATE portolan_icons SET next_try = 0 WHERE namespace = $1 AND name = $2 AND next_try > 0",
};

impl Failures {
    /// Counts one more try of the thing `of` (a digest, a URL), and notes when the next is due.
    pub(crate) async fn note(
        &self,
        tx: &mut Transaction,
        name: &NamespacedName,
        key: &[&str],
        of: &str,
        message: &str,
        next_try: Timestamp,
    ) -> Result<(), Error> {
        on_engine!(tx, tx => {
            let mut query = sqlx::query(self.note)
                .bind(&name.namespace)
                .bind(&name.name)
                .bind(next_try.as_millisecond())
                .bind(storable(message));
            for part in key {
                query = query.bind(*part);
            }
            query.bind(of).execute(&mut **tx).await?;
        });
        Ok(())
    }

    /// Forgets the tries of what has come by now.
    pub(crate) async fn forget(&self, tx: &mut Transaction, name: &NamespacedName, key: &[&str]) -> Result<(), Error> {
        on_engine!(tx, tx => {
            let mut query = sqlx::query(self.forget).bind(&name.namespace).bind(&name.name);
            for part in key {
                query = query.bind(*part);
            }
            query.execute(&mut **tx).await?;
        });
        Ok(())
    }

    /// Lets all of a repository be tried again now. Says how many.
    pub(super) async fn retry(&self, tx: &mut Transaction, name: &NamespacedName) -> Result<u64, Error> {
        Ok(on_engine!(tx, tx => sqlx::query(self.retry)
            .bind(&name.namespace)
            .bind(&name.name)
            .execute(&mut **tx)
            .await?
            .rows_affected()))
    }
}
