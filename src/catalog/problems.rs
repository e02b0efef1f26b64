use super::{Catalog, Error, engine::select};
use crate::api::NamespacedName;

impl Catalog {
    /// Returns up to `limit` versions without files, ordered by ID, each with the reason.
    pub async fn files_problems(&self, name: &NamespacedName, limit: usize) -> Result<Vec<(String, String)>, Error> {
        const SELECT: &str = "SELECT chart_files_id, message FROM portolan_files
            WHERE namespace = $1 AND name = $2 AND tries > 0 ORDER BY chart_files_id LIMIT $3";
        self.read("read the failures of chart files", async {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            Ok(select!(fetch_all, self.0.pools, SELECT, name, limit))
        })
        .await
    }
}
