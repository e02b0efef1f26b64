//! What is wrong with chart files, to be shown.

use super::{Catalog, Error, engine::on_engine};
use crate::api::NamespacedName;

impl Catalog {
    /// The first `limit` versions of a repository whose files could not be had, by id, each with the reason.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn files_problems(&self, name: &NamespacedName, limit: usize) -> Result<Vec<(String, String)>, Error> {
        const SELECT: &str = "SELECT chart_files_id, message FROM portolan_files
            WHERE namespace = $1 AND name = $2 AND tries > 0 ORDER BY chart_files_id LIMIT $3";
        self.look("reading why chart files are missing", async {
            Ok(on_engine!(self.0.pools.reader(), pool => sqlx::query_as(SELECT)
                .bind(&name.namespace)
                .bind(&name.name)
                .bind(i64::try_from(limit).unwrap_or(i64::MAX))
                .fetch_all(pool)
                .await?))
        })
        .await
    }
}
