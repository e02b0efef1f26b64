//! Looks for a holder of a Lease without contending for it.

use std::time::Duration;

use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::{Api, Client, ResourceExt};
use tokio::time::{Instant, sleep};

use super::others::find_shards;
use super::record::{ObservedLease, holder};
use super::{Marks, Timing};
use crate::runtime::kube_client::{ApiError, call};

/// A difference between two clocks that a working cluster does not have.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(1);
const MAX_WAIT: Duration = Duration::from_mins(2);

/// The Lease may be of one of the shards. Returns its name and holder. Waits like [`active_holder`].
pub async fn active_holder_of_any(
    client: &Client,
    namespace: &str,
    name: &str,
    timing: Timing,
) -> Result<Option<(String, String)>, ApiError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let mut names = vec![name.to_owned()];
    match find_shards(&leases, name).await {
        Ok(shards) => names.extend(
            shards
                .iter()
                .filter(|lease| Marks::of(lease, name).is_some())
                .map(ResourceExt::name_any),
        ),
        // The right came with shards; the Lease of a single leader can be read without it.
        Err(error) if error.is_forbidden() => {
            tracing::info!(%error, "not allowed to read leases of shards, replicas with --shards are not detected");
        }
        Err(error) => return Err(error),
    }
    let find = names.into_iter().map(async |name| {
        let holder = active_holder(client, namespace, &name, timing).await?;
        Ok::<_, ApiError>(holder.map(|holder| (name, holder)))
    });
    Ok(try_join_all(find).await?.into_iter().flatten().next())
}

/// Waits until the Lease is renewed or has expired, since its timestamps come from another clock.
pub async fn active_holder(
    client: &Client,
    namespace: &str,
    name: &str,
    timing: Timing,
) -> Result<Option<String>, ApiError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let started = Instant::now();
    let mut observed = ObservedLease::default();
    let mut first = None::<LeaseSpec>;
    loop {
        let Some(lease) = call(leases.get_opt(name)).await? else {
            return Ok(None);
        };
        let spec = lease.spec.unwrap_or_default();
        let is_free = observed.may_take(&spec, timing.lease_duration, Instant::now());
        if is_free || is_long_expired(&spec, Timestamp::now()) {
            return Ok(None);
        }
        let holder = holder(&spec).unwrap_or_default().to_owned();
        match &first {
            None => tracing::info!(lease = name, holder, "waiting until the lease is renewed or expires"),
            Some(first) if *first == spec && started.elapsed() < MAX_WAIT => {}
            Some(_) => return Ok(Some(holder)),
        }
        first.get_or_insert(spec);
        sleep(timing.retry_period).await;
    }
}

/// Returns true if the Lease expired so long ago that even a wrong clock would see it.
fn is_long_expired(spec: &LeaseSpec, now: Timestamp) -> bool {
    let (Some(renewed), Some(seconds)) = (&spec.renew_time, spec.lease_duration_seconds) else {
        return false;
    };
    now.duration_since(renewed.0) > SignedDuration::from_secs(seconds.into()) + MAX_CLOCK_SKEW
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;

    #[test]
    fn only_a_lease_that_expired_over_a_minute_ago_is_free_at_first_sight() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let renewed_before = |seconds: i64| LeaseSpec {
            renew_time: Some(MicroTime(now - SignedDuration::from_secs(seconds))),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        assert!(!is_long_expired(&renewed_before(75), now));
        assert!(is_long_expired(&renewed_before(76), now));
        assert!(!is_long_expired(&renewed_before(-500), now));
        assert!(!is_long_expired(&LeaseSpec::default(), now));
    }
}
