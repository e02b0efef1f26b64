//! Icons in the charts' rows, as Kubeapps' syncer puts them there, and those that failed: `portolan_icons`.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use sqlx::FromRow;

use super::engine::{Engine, Transaction, on_engine};
use super::files::failures;
use super::{Catalog, Error, SHORT_DEADLINE, Saved, record};
use crate::api::NamespacedName;

/// The length from which on the URLs of icons that are wanted are no more looked up together: `data:` URLs hold whole pictures.
const URLS: i64 = 2 << 20;

/// A chart whose icon is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedIcon {
    /// The chart.
    pub chart_id: String,
    /// URL of its icon.
    pub url: String,
    /// How often this URL has failed.
    pub tries: u32,
}

#[derive(FromRow)]
struct IconRow {
    chart_id: String,
    url: String,
    tries: i64,
}

impl Catalog {
    /// Up to `limit` charts of a repository that name an icon and have none, by their id, and fewer where their URLs are long; without those whose icon has failed and
    /// is to be tried again later than `now`.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn icons_wanted(
        &self,
        name: &NamespacedName,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<WantedIcon>, Error> {
        const SELECT: &str = "SELECT chart_id, url, tries FROM (
                SELECT chart_id, url, tries, sum(length(url)) OVER (ORDER BY chart_id) - length(url) AS before FROM (
                    SELECT c.chart_id, c.info ->> 'icon' AS url, coalesce(p.tries, 0) AS tries
                    FROM charts c LEFT JOIN portolan_icons p ON p.namespace = $1 AND p.name = $2
                        AND p.chart_id = c.chart_id AND p.url = c.info ->> 'icon'
                    WHERE c.repo_namespace = $1 AND c.repo_name = $2 AND c.chart_id IS NOT NULL
                        AND c.info ->> 'icon' <> '' AND c.info ->> 'raw_icon' IS NULL AND coalesce(p.next_try, 0) <= $3
                    ORDER BY c.chart_id LIMIT $4) AS wanted) AS measured
            WHERE before < $5 ORDER BY chart_id";
        self.look("looking for icons to fetch", async {
            let rows: Vec<IconRow> = on_engine!(self.0.pools.reader(), pool => sqlx::query_as(SELECT)
                .bind(&name.namespace)
                .bind(&name.name)
                .bind(now.as_millisecond())
                .bind(i64::try_from(limit).unwrap_or(i64::MAX))
                .bind(URLS)
                .fetch_all(pool)
                .await?);
            Ok(rows.into_iter().map(WantedIcon::from).collect())
        })
        .await
    }

    /// When the next of the icons is to be tried again that have failed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn icons_next_try(&self, name: &NamespacedName, now: Timestamp) -> Result<Option<Timestamp>, Error> {
        const SELECT: &str =
            "SELECT min(next_try) FROM portolan_icons WHERE namespace = $1 AND name = $2 AND next_try > $3";
        self.look("looking for icons to try again", async {
            let next: Option<i64> = on_engine!(self.0.pools.reader(), pool => sqlx::query_scalar(SELECT)
                .bind(&name.namespace)
                .bind(&name.name)
                .bind(now.as_millisecond())
                .fetch_one(pool)
                .await?);
            Ok(next.and_then(|time| Timestamp::from_millisecond(time).ok()))
        })
        .await
    }

    /// Puts a PNG into the chart's row, if it still names the icon by this URL.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn save_icon(
        &self,
        name: &NamespacedName,
        uid: &str,
        wanted: &WantedIcon,
        png: &[u8],
    ) -> Result<Saved, Error> {
        self.must_be_writable()?;
        self.call("writing an icon", SHORT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            if !still_wanted(&mut tx, name, uid, wanted).await? {
                return Ok(Saved::Gone);
            }
            write(&mut tx, name, wanted, &BASE64_STANDARD.encode(png)).await?;
            failures::ICONS.forget(&mut tx, name, &[&wanted.chart_id]).await?;
            tx.commit().await?;
            Ok(Saved::Written)
        })
        .await
    }

    /// Notes that an icon could not be had, which counts one try, and when it is to be tried again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn icon_failed(
        &self,
        name: &NamespacedName,
        uid: &str,
        wanted: &WantedIcon,
        message: &str,
        next_try: Timestamp,
    ) -> Result<Saved, Error> {
        self.must_be_writable()?;
        self.call("writing that an icon failed", SHORT_DEADLINE, async {
            let mut tx = self.0.pools.begin().await?;
            if !still_wanted(&mut tx, name, uid, wanted).await? {
                return Ok(Saved::Gone);
            }
            failures::ICONS
                .note(&mut tx, name, &[&wanted.chart_id], &wanted.url, message, next_try)
                .await?;
            tx.commit().await?;
            Ok(Saved::Written)
        })
        .await
    }
}

/// Takes the repository's lock, and looks whether the chart is still there and its icon the same.
async fn still_wanted(
    tx: &mut Transaction,
    name: &NamespacedName,
    uid: &str,
    wanted: &WantedIcon,
) -> Result<bool, Error> {
    const COUNT: &str = "SELECT count(*) FROM charts
        WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = $3 AND info ->> 'icon' = $4";
    if !record::lock_if_of(tx, name, uid).await? {
        return Ok(false);
    }
    let count: i64 = on_engine!(tx, tx => sqlx::query_scalar(COUNT)
        .bind(&name.namespace)
        .bind(&name.name)
        .bind(&wanted.chart_id)
        .bind(&wanted.url)
        .fetch_one(&mut **tx)
        .await?);
    Ok(count > 0)
}

async fn write(tx: &mut Transaction, name: &NamespacedName, wanted: &WantedIcon, raw: &str) -> Result<(), Error> {
    const SQLITE: &str = "UPDATE charts SET info = json_set(info, '$.raw_icon', $5, '$.icon_content_type', 'image/png')
        WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = $3 AND info ->> 'icon' = $4
            AND (info ->> 'raw_icon' IS NOT $5 OR info ->> 'icon_content_type' IS NOT 'image/png')";
    const POSTGRES: &str = "UPDATE charts
        SET info = info || jsonb_build_object('raw_icon', $5::text, 'icon_content_type', 'image/png')
        WHERE repo_namespace = $1 AND repo_name = $2 AND chart_id = $3 AND info ->> 'icon' = $4
            AND (info ->> 'raw_icon', info ->> 'icon_content_type') IS DISTINCT FROM ($5::text, 'image/png')";
    let statement = match tx {
        Engine::Sqlite(_) => SQLITE,
        Engine::Postgres(_) => POSTGRES,
    };
    on_engine!(tx, tx => {
        sqlx::query(statement)
            .bind(&name.namespace)
            .bind(&name.name)
            .bind(&wanted.chart_id)
            .bind(&wanted.url)
            .bind(raw)
            .execute(&mut **tx)
            .await?;
    });
    Ok(())
}

impl From<IconRow> for WantedIcon {
    fn from(row: IconRow) -> Self {
        Self {
            chart_id: row.chart_id,
            url: row.url,
            tries: u32::try_from(row.tries).unwrap_or(u32::MAX),
        }
    }
}
