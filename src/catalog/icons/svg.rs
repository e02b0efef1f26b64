//! SVG icons of charts: `portolan_svg_icons`. Kubeapps would serve them from its own origin if they stood in its rows.
//!
//! A row counts while its chart has the URL from which the icon was fetched.

use std::collections::HashSet;

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::is_current;
use crate::api::NamespacedName;
use crate::catalog::engine::{Transaction, execute, select};
use crate::catalog::files::failures;
use crate::catalog::pages::PAGE_ROWS;
use crate::catalog::repositories::ReposRow;
use crate::catalog::{Catalog, Error, MissingIcon, SaveOutcome, stored_bytes};

impl Catalog {
    /// Writes an SVG, if the icon of the chart still has this URL. Fails with [`crate::catalog::ErrorKind::QuotaExceeded`] beyond the
    /// allowed space.
    pub async fn save_svg_icon(
        &self,
        name: &NamespacedName,
        uid: &str,
        icon: &MissingIcon,
        svg: &[u8],
    ) -> Result<SaveOutcome, Error> {
        const UPSERT: &str = "INSERT INTO portolan_svg_icons AS s (namespace, name, chart_id, url, svg)
            VALUES ($1, $2, $3, $4, $5)
            ON CONFLICT (namespace, name, chart_id) DO UPDATE SET url = excluded.url, svg = excluded.svg
            WHERE s.url <> excluded.url OR s.svg <> excluded.svg";
        self.write("write an SVG icon", &name.namespace, async |tx| {
            if !is_current(tx, name, uid, icon).await? {
                return Ok(SaveOutcome::Obsolete);
            }
            // Locked before other rows, as in a commit.
            let repos = ReposRow::find(tx, name).await?;
            let before = size(tx, name, &icon.chart_id).await?;
            let svg = BASE64_STANDARD.encode(svg);
            if execute!(tx, UPSERT, name, &icon.chart_id, &icon.url, &svg) > 0 {
                let change = size(tx, name, &icon.chart_id).await? - before;
                stored_bytes::add_svg_icon(tx, name, change, self.limits()).await?;
                if let Some(repos) = repos {
                    repos.touch(tx, name).await?;
                }
            }
            failures::delete_icon(tx, name, icon).await?;
            Ok(SaveOutcome::Written)
        })
        .await
    }

    pub async fn svg_icon(&self, name: &NamespacedName, chart_id: &str) -> Result<Option<Vec<u8>>, Error> {
        const SELECT: &str = "SELECT s.svg FROM portolan_svg_icons s JOIN charts c
                ON c.repo_namespace = s.namespace AND c.repo_name = s.name AND c.chart_id = s.chart_id
            WHERE s.namespace = $1 AND s.name = $2 AND s.chart_id = $3 AND c.info ->> 'icon' = s.url LIMIT 1";
        self.read("read an SVG icon", &name.namespace, async |connection| {
            let row: Option<(String,)> = select!(fetch_optional, connection, SELECT, name, chart_id);
            Ok(row.and_then(|(svg,)| BASE64_STANDARD.decode(svg).ok()))
        })
        .await
    }

    pub async fn has_svg_icon(&self, name: &NamespacedName, chart_id: &str) -> Result<bool, Error> {
        const SELECT: &str = "SELECT count(*) FROM portolan_svg_icons s JOIN charts c
                ON c.repo_namespace = s.namespace AND c.repo_name = s.name AND c.chart_id = s.chart_id
            WHERE s.namespace = $1 AND s.name = $2 AND s.chart_id = $3 AND c.info ->> 'icon' = s.url";
        self.read("look for an SVG icon", &name.namespace, async |connection| {
            let (count,): (i64,) = select!(fetch_one, connection, SELECT, name, chart_id);
            Ok(count > 0)
        })
        .await
    }

    /// Returns the IDs of charts that have an SVG icon, at least those on the page of charts after this ID.
    pub async fn charts_with_svg_icon(&self, name: &NamespacedName, after: &str) -> Result<HashSet<String>, Error> {
        // Each has a chart, so those of the page are among the first.
        const SELECT: &str = "SELECT s.chart_id FROM portolan_svg_icons s JOIN charts c
                ON c.repo_namespace = s.namespace AND c.repo_name = s.name AND c.chart_id = s.chart_id
            WHERE s.namespace = $1 AND s.name = $2 AND s.chart_id > $3 AND c.info ->> 'icon' = s.url
            ORDER BY s.chart_id LIMIT $4";
        self.read("list SVG icons", &name.namespace, async |connection| {
            let rows: Vec<(String,)> = select!(fetch_all, connection, SELECT, name, after, PAGE_ROWS);
            Ok(rows.into_iter().map(|(chart_id,)| chart_id).collect())
        })
        .await
    }
}

/// Returns the stored bytes of the icon of a chart; 0 without one.
async fn size(tx: &mut Transaction, name: &NamespacedName, chart_id: &str) -> Result<i64, Error> {
    const SQLITE: &str = "SELECT coalesce(sum(octet_length(svg) + octet_length(url)), 0) FROM portolan_svg_icons
        WHERE namespace = $1 AND name = $2 AND chart_id = $3";
    const POSTGRES: &str = "SELECT CAST(coalesce(sum(pg_column_size(svg) + pg_column_size(url)), 0) AS BIGINT)
        FROM portolan_svg_icons WHERE namespace = $1 AND name = $2 AND chart_id = $3";
    let statement = tx.choose(SQLITE, POSTGRES);
    let (bytes,): (i64,) = select!(fetch_one, tx, statement, name, chart_id);
    Ok(bytes)
}

/// Selects a row if there is an icon whose chart is gone, or has another icon.
pub(in crate::catalog) const SELECT_STRAY: &str = "SELECT s.chart_id FROM portolan_svg_icons s
    WHERE s.namespace = $1 AND s.name = $2 AND NOT EXISTS (SELECT 1 FROM charts c WHERE c.repo_namespace = $1
        AND c.repo_name = $2 AND c.chart_id = s.chart_id AND c.info ->> 'icon' = s.url) LIMIT 1";

/// Deletes the icons that [`SELECT_STRAY`] finds, and returns their bytes.
pub(in crate::catalog) async fn delete_stray(tx: &mut Transaction, name: &NamespacedName) -> Result<i64, Error> {
    const SQLITE: &str = "DELETE FROM portolan_svg_icons AS s
        WHERE s.namespace = $1 AND s.name = $2 AND NOT EXISTS (SELECT 1 FROM charts c WHERE c.repo_namespace = $1
            AND c.repo_name = $2 AND c.chart_id = s.chart_id AND c.info ->> 'icon' = s.url)
        RETURNING octet_length(svg) + octet_length(url)";
    const POSTGRES: &str = "DELETE FROM portolan_svg_icons AS s
        WHERE s.namespace = $1 AND s.name = $2 AND NOT EXISTS (SELECT 1 FROM charts c WHERE c.repo_namespace = $1
            AND c.repo_name = $2 AND c.chart_id = s.chart_id AND c.info ->> 'icon' = s.url)
        RETURNING CAST(pg_column_size(svg) + pg_column_size(url) AS BIGINT)";
    let statement = tx.choose(SQLITE, POSTGRES);
    let rows: Vec<(i64,)> = select!(fetch_all, tx, statement, name);
    Ok(rows.into_iter().map(|(bytes,)| bytes).sum())
}
