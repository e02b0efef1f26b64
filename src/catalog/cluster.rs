//! The cluster that uses the database: a row per cluster ID, renewed by `portolan run`. Two clusters that declare
//! repositories of the same name would overwrite each other's charts.

use std::time::Duration;

use super::engine::{Transaction, on_engine};
use super::identity::{advisory_key, advisory_lock};
use super::{Catalog, Error, ErrorKind};

pub const RENEW_INTERVAL: Duration = Duration::from_secs(60);

/// Age of a claim after which its cluster no longer uses the database.
pub(super) const MAX_AGE: Duration = Duration::from_secs(5 * 60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterClaim {
    Held,
    /// Another origin held it, and has not renewed it for five minutes.
    TakenOver {
        from: String,
    },
}

impl Catalog {
    /// Claims the database for `origin` among clusters with the same ID, or renews the claim. Fails with
    /// [`ErrorKind::OtherCluster`] if another origin renewed its claim within the last five minutes.
    pub async fn claim(&self, cluster_id: &str, origin: &str) -> Result<ClusterClaim, Error> {
        self.write("claim the database for this cluster", "", async |tx| {
            advisory_lock(tx, advisory_key(&["cluster", cluster_id])).await?;
            let now = now(tx).await?;
            let claim = match holder(tx, cluster_id).await? {
                Some((holder, renewed)) if holder != origin => {
                    let age = Duration::from_millis(u64::try_from(now - renewed).unwrap_or_default());
                    if age < MAX_AGE {
                        return Err(ErrorKind::OtherCluster {
                            holder,
                            seconds: age.as_secs(),
                        }
                        .into());
                    }
                    ClusterClaim::TakenOver { from: holder }
                }
                _ => ClusterClaim::Held,
            };
            upsert(tx, cluster_id, origin, now).await?;
            Ok(claim)
        })
        .await
    }

    /// Returns true if another origin has claimed the database within the last five minutes.
    pub async fn has_other_cluster(&self, origin: &str) -> Result<bool, Error> {
        const SQLITE: &str = "SELECT count(*) FROM portolan_clusters
            WHERE origin <> $1 AND renewed > CAST(unixepoch('subsec') * 1000 AS INTEGER) - $2";
        const POSTGRES: &str = "SELECT count(*) FROM portolan_clusters
            WHERE origin <> $1 AND renewed > CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) - $2";
        let max_age = i64::try_from(MAX_AGE.as_millis()).unwrap_or(i64::MAX);
        let others: i64 = self
            .read("list the clusters that use the database", "", async |connection| {
                let statement = connection.choose(SQLITE, POSTGRES);
                Ok(on_engine!(connection.executor(), executor =>
                    sqlx::query_scalar(statement).bind(origin).bind(max_age).fetch_one(executor).await?))
            })
            .await?;
        Ok(others > 0)
    }
}

/// Returns the time of the database in milliseconds since 1970: the clocks of two clusters may differ.
pub(super) async fn now(tx: &mut Transaction) -> Result<i64, Error> {
    const SQLITE: &str = "SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER)";
    const POSTGRES: &str = "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";
    let statement = tx.choose(SQLITE, POSTGRES);
    Ok(on_engine!(tx.executor(), executor => sqlx::query_scalar(statement).fetch_one(executor).await?))
}

async fn holder(tx: &mut Transaction, cluster_id: &str) -> Result<Option<(String, i64)>, Error> {
    const SELECT: &str = "SELECT origin, renewed FROM portolan_clusters WHERE cluster_id = $1";
    Ok(on_engine!(tx.executor(), executor =>
        sqlx::query_as(SELECT).bind(cluster_id).fetch_optional(executor).await?))
}

async fn upsert(tx: &mut Transaction, cluster_id: &str, origin: &str, now: i64) -> Result<(), Error> {
    const UPSERT: &str = "INSERT INTO portolan_clusters (cluster_id, origin, renewed) VALUES ($1, $2, $3)
        ON CONFLICT (cluster_id) DO UPDATE SET origin = excluded.origin, renewed = excluded.renewed";
    on_engine!(tx.executor(), executor => {
        let query = sqlx::query(UPSERT).bind(cluster_id).bind(origin).bind(now);
        query.execute(executor).await?;
    });
    Ok(())
}
