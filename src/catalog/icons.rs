//! Raster icons in the chart rows, as Kubeapps' syncer writes them, and failed icons: `portolan_icons`.

pub(super) mod svg;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use sqlx::FromRow;

use super::engine::{Transaction, execute, select};
use super::files::failures;
use super::repositories::ReposRow;
use super::{Catalog, Error, SaveOutcome, StoredBytes, record, stored_bytes};
use crate::api::NamespacedName;

/// Maximum total length of the URLs that one query returns. `data:` URLs contain whole images.
const MAX_URL_BYTES: i64 = 2 << 20;

#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct MissingIcon {
    pub chart_id: String,
    pub url: String,
    #[sqlx(try_from = "i64")]
    pub tries: u32,
}

impl Catalog {
    /// Returns up to `limit` charts without their icon, fewer if the URLs are long, except failed ones not due.
    pub async fn missing_icons(
        &self,
        name: &NamespacedName,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<MissingIcon>, Error> {
        const SELECT: &str = "SELECT chart_id, url, tries FROM (
                SELECT chart_id, url, tries, sum(length(url)) OVER (ORDER BY chart_id) - length(url) AS before FROM (
                    SELECT c.chart_id, c.info ->> 'icon' AS url, coalesce(p.tries, 0) AS tries
                    FROM charts c LEFT JOIN portolan_icons p ON p.namespace = $1 AND p.name = $2
                        AND p.chart_id = c.chart_id AND p.url = c.info ->> 'icon'
                    WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IS NOT NULL
                        AND c.info ->> 'icon' <> '' AND c.info ->> 'raw_icon' IS NULL AND coalesce(p.next_try, 0) <= $3
                        AND NOT EXISTS (SELECT 1 FROM portolan_svg_icons s WHERE s.namespace = $1 AND s.name = $2
                            AND s.chart_id = c.chart_id AND s.url = c.info ->> 'icon')
                    ORDER BY c.chart_id LIMIT $4) AS icon) AS measured
            WHERE before < $5 ORDER BY chart_id";
        self.read("list missing icons", &name.namespace, async |connection| {
            let (now, limit) = (now.as_millisecond(), i64::try_from(limit).unwrap_or(i64::MAX));
            Ok(select!(fetch_all, connection, SELECT, name, now, limit, MAX_URL_BYTES))
        })
        .await
    }

    pub async fn next_icon_try(&self, name: &NamespacedName, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        const SELECT: &str =
            "SELECT min(next_try) FROM portolan_icons WHERE namespace = $1 AND name = $2 AND next_try > $3";
        self.read(
            "read the time of the next icon retry",
            &name.namespace,
            async |connection| {
                let (next,): (Option<i64>,) = select!(fetch_one, connection, SELECT, name, now.as_millisecond());
                Ok(next.and_then(|time| Timestamp::from_millisecond(time).ok()))
            },
        )
        .await
    }

    /// Writes a PNG into the row of the chart, if its icon still has this URL.
    pub async fn save_icon(
        &self,
        name: &NamespacedName,
        uid: &str,
        icon: &MissingIcon,
        png: &[u8],
    ) -> Result<SaveOutcome, Error> {
        const SQLITE: &str =
            "UPDATE charts SET info = json_set(info, '$.raw_icon', $5, '$.icon_content_type', 'image/png')
            WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = $3 AND info ->> 'icon' = $4
                AND (info ->> 'raw_icon' IS NOT $5 OR info ->> 'icon_content_type' IS NOT 'image/png')";
        const POSTGRES: &str = "UPDATE charts
            SET info = info || jsonb_build_object('raw_icon', $5::text, 'icon_content_type', 'image/png')
            WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = $3 AND info ->> 'icon' = $4
                AND (info ->> 'raw_icon', info ->> 'icon_content_type') IS DISTINCT FROM ($5::text, 'image/png')";
        self.write("write an icon", &name.namespace, async |tx| {
            if !is_current(tx, name, uid, icon).await? {
                return Ok(SaveOutcome::Obsolete);
            }
            // Locked before the charts, as in a commit.
            let repos = ReposRow::find(tx, name).await?;
            let (statement, raw_icon) = (tx.choose(SQLITE, POSTGRES), BASE64_STANDARD.encode(png));
            if execute!(tx, statement, name, &icon.chart_id, &icon.url, &raw_icon) > 0 {
                let bytes = StoredBytes {
                    charts: i64::try_from(raw_icon.len()).unwrap_or(i64::MAX),
                    files: 0,
                };
                stored_bytes::add(tx, name, bytes).await?;
                if let Some(repos) = repos {
                    repos.touch(tx, name).await?;
                }
            }
            failures::delete_icon(tx, name, icon).await?;
            Ok(SaveOutcome::Written)
        })
        .await
    }

    pub async fn record_icon_failure(
        &self,
        name: &NamespacedName,
        uid: &str,
        icon: &MissingIcon,
        message: &str,
        next_try: Timestamp,
    ) -> Result<SaveOutcome, Error> {
        self.write("record a failed icon", &name.namespace, async |tx| {
            if !is_current(tx, name, uid, icon).await? {
                return Ok(SaveOutcome::Obsolete);
            }
            failures::record_icon(tx, name, icon, message, next_try).await?;
            Ok(SaveOutcome::Written)
        })
        .await
    }
}

/// Locks the repository. Returns true if the chart still exists with the same icon URL.
async fn is_current(tx: &mut Transaction, name: &NamespacedName, uid: &str, icon: &MissingIcon) -> Result<bool, Error> {
    const COUNT: &str = "SELECT count(*) FROM charts
        WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = $3 AND info ->> 'icon' = $4";
    if !record::lock_if_uid(tx, name, uid).await? {
        return Ok(false);
    }
    let (count,): (i64,) = select!(fetch_one, tx, COUNT, name, &icon.chart_id, &icon.url);
    Ok(count > 0)
}
