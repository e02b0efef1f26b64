//! Reads the charts of a repository in pages. A statement ends soon, and others use the connection in between.

use futures::TryStreamExt;

use super::engine::{on_engine, select};
use super::{Catalog, Error};
use crate::api::NamespacedName;

/// Rows of a page. Each may have many MiB.
pub(super) const PAGE_ROWS: i64 = 256;

impl Catalog {
    /// Passes `chart_id` and `info` of the next charts of a repository to `visit`, with one row in memory. The first page follows
    /// the empty ID. Returns the ID after which the next page follows; `None` after the last page.
    ///
    /// The order is that of the database: other engines and collations have another one.
    pub async fn visit_page_of_charts(
        &self,
        name: &NamespacedName,
        after: &str,
        mut visit: impl FnMut(&str, &str) + Send,
    ) -> Result<Option<String>, Error> {
        // The index of the unique key has this order.
        const SELECT: &str = "SELECT chart_id, CAST(info AS TEXT) FROM charts
            WHERE repo_name = $1 AND repo_namespace = $2 AND chart_id > $3 ORDER BY chart_id LIMIT $4";
        self.read(
            "read the charts of the repository",
            &name.namespace,
            async |connection| {
                let (mut count, mut last) = (0, None);
                on_engine!(connection.executor(), executor => {
                    let mut rows = sqlx::query_as::<_, (String, String)>(SELECT)
                        .bind(&name.name)
                        .bind(&name.namespace)
                        .bind(after)
                        .bind(PAGE_ROWS)
                        .fetch(executor);
                    while let Some((chart_id, info)) = rows.try_next().await? {
                        visit(&chart_id, &info);
                        count += 1;
                        last = Some(chart_id);
                    }
                });
                Ok(last.filter(|_| count == PAGE_ROWS))
            },
        )
        .await
    }

    /// Counts the charts of a repository that have no ID, and so no address.
    pub async fn count_charts_without_id(&self, name: &NamespacedName) -> Result<usize, Error> {
        const SELECT: &str = "SELECT count(*) FROM charts
            WHERE repo_namespace = $1 AND repo_name = $2 AND (chart_id IS NULL OR chart_id = '')";
        self.read(
            "count the charts of the repository",
            &name.namespace,
            async |connection| {
                let (count,): (i64,) = select!(fetch_one, connection, SELECT, name);
                Ok(usize::try_from(count).unwrap_or_default())
            },
        )
        .await
    }
}
