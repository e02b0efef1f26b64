//! Looks for processes that divide the same objects in another way: they would own the same objects.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use tokio::time::Instant;

use super::marks::Marks;
use super::record::{ObservedLease, holder};
use super::{MAX_SHARDS, Timing};
use crate::runtime::kube_client::{ApiError, call, call_within};

/// Far more than a namespace holds.
const MAX_LEASES: u32 = 5_000;

/// The Leases of the same name with another number of shards or another selector.
#[derive(Debug)]
pub(super) struct Others {
    leases: Api<Lease>,
    marks: Marks,
    duration: Duration,
    timeout: Duration,
    observed: BTreeMap<String, ObservedLease>,
    logged: Option<String>,
}

impl Others {
    pub(super) fn new(leases: Api<Lease>, marks: Marks, timing: Timing) -> Self {
        Self {
            leases,
            marks,
            duration: timing.lease_duration,
            timeout: timing.renew_deadline / 2,
            observed: BTreeMap::new(),
            logged: None,
        }
    }

    /// Returns true if another process is active, or if that is unknown. Logs each reason once.
    pub(super) async fn are_active(&mut self) -> bool {
        let reason = match self.find_active().await {
            Ok(None) => None,
            Ok(Some(active)) => Some(active),
            // The right came with shards, which an installation without shards may lack.
            Err(error) if !self.marks.is_division() && error.is_forbidden() => {
                tracing::info!(%error, "not allowed to read leases of shards, replicas with --shards are not detected");
                return false;
            }
            Err(error) => Some(format!("failed to read leases: {error}")),
        };
        match &reason {
            Some(reason) => self.log(&format!("waiting to contend for leases: {reason}")),
            None => self.logged = None,
        }
        reason.is_some()
    }

    fn log(&mut self, message: &str) {
        if self.logged.as_deref() != Some(message) {
            tracing::warn!(lease = self.marks.lease, "{message}");
            self.logged = Some(message.to_owned());
        }
    }

    async fn find_active(&mut self) -> Result<Option<String>, ApiError> {
        let leases = if self.marks.shards > 1 {
            let parameters = ListParams::default().limit(MAX_LEASES);
            call_within(self.timeout, self.leases.list(&parameters)).await??.items
        } else {
            // A list is not limited to names.
            call_within(self.timeout, find_shards(&self.leases, &self.marks.lease)).await??
        };
        let now = Instant::now();
        let mut active = None;
        for lease in leases {
            let Some(marks) = Marks::of(&lease, &self.marks.lease) else {
                continue;
            };
            if marks.shards == self.marks.shards && marks.selector == self.marks.selector {
                continue;
            }
            let name = lease.metadata.name.clone().unwrap_or_default();
            let spec = lease.spec.unwrap_or_default();
            let observed = self.observed.entry(name.clone()).or_default();
            if !observed.may_take(&spec, self.duration, now) {
                active.get_or_insert_with(|| conflict(&name, holder(&spec).unwrap_or_default(), &marks));
            }
        }
        Ok(active)
    }
}

/// Returns the Leases of the shards of a Lease, by name. The first shard's Lease tells their number, held or not.
pub(super) async fn find_shards(leases: &Api<Lease>, name: &str) -> Result<Vec<Lease>, ApiError> {
    let get = |shard: u32| {
        let (leases, name) = (leases.clone(), format!("{name}-{shard}"));
        async move { call(leases.get_opt(&name)).await }
    };
    let Some(first) = get(0).await? else {
        return Ok(Vec::new());
    };
    let shards = Marks::of(&first, name).map_or(1, |marks| marks.shards);
    let others = try_join_all((1..shards.min(MAX_SHARDS)).map(get)).await?;
    Ok(others.into_iter().flatten().chain([first]).collect())
}

fn conflict(name: &str, holder: &str, marks: &Marks) -> String {
    let selector = match marks.selector.as_str() {
        "" => String::new(),
        selector => format!(" and --watch-label-selector={selector}"),
    };
    let shards = marks.shards;
    format!(
        "{holder} holds the lease {name} with --shards={shards}{selector}; stop all replicas with other values of these flags, or set another --leader-election-name"
    )
}
