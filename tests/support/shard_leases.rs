//! The Leases of shards, and the replicas that hold them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use portolan::runtime::shards::Shards;
use serde_json::json;

use super::eventually::eventually;

/// Longer than the lease duration of these tests.
pub const MOVED: Duration = Duration::from_secs(60);

/// Flags of a replica in these tests.
pub const FLAGS: [&str; 4] = [
    "--enable-leader-election",
    "--leader-election-lease-duration=8s",
    "--leader-election-renew-deadline=6s",
    "--leader-election-retry-period=1s",
];

/// The Leases `<name>-<shard>` of a namespace.
pub struct ShardLeases {
    api: Api<Lease>,
    name: &'static str,
    shards: usize,
}

impl ShardLeases {
    pub fn new(client: &Client, namespace: &str, name: &'static str, shards: usize) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            name,
            shards,
        }
    }

    fn names(&self) -> impl Iterator<Item = (usize, String)> + use<'_> {
        (0..self.shards).map(|shard| (shard, format!("{}-{shard}", self.name)))
    }

    /// Returns the replica that holds each of the shards, without those that are free.
    async fn holders(&self) -> BTreeMap<usize, String> {
        let mut holders = BTreeMap::new();
        for (shard, name) in self.names() {
            let lease = self.api.get_opt(&name).await.unwrap();
            let holder = lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            if let Some((replica, _)) = holder.split_once('_') {
                holders.insert(shard, replica.to_owned());
            }
        }
        holders
    }

    /// Waits until these replicas hold all shards, and returns the replica of each shard.
    pub async fn until_held(&self, by: &[&str]) -> BTreeMap<usize, String> {
        eventually(MOVED, &format!("all shards to be held by {by:?}"), async || {
            let holders = self.holders().await;
            if holders.len() == self.shards && holders.values().all(|holder| by.contains(&holder.as_str())) {
                Ok(holders)
            } else {
                Err(format!("{holders:?}"))
            }
        })
        .await
    }

    /// Creates the Leases with another holder, so that all replicas contend when they are released.
    pub async fn hold(&self) {
        for (_, name) in self.names() {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(name),
                    ..ObjectMeta::default()
                },
                spec: Some(LeaseSpec {
                    holder_identity: Some("foreign".to_owned()),
                    lease_duration_seconds: Some(3600),
                    ..LeaseSpec::default()
                }),
            };
            self.api.create(&PostParams::default(), &lease).await.unwrap();
        }
    }

    /// Creates objects again, with other UIDs, until each shard has one.
    pub async fn spread(&self, count: usize, uid: impl AsyncFn(usize) -> String, create_again: impl AsyncFn(usize)) {
        loop {
            let mut by_shard = vec![Vec::new(); self.shards];
            for number in 0..count {
                by_shard[self.shard_of(&uid(number).await)].push(number);
            }
            if by_shard.iter().all(|numbers| !numbers.is_empty()) {
                return;
            }
            let largest = by_shard.iter().max_by_key(|numbers| numbers.len());
            create_again(*largest.and_then(|numbers| numbers.first()).expect("objects")).await;
        }
    }

    fn shard_of(&self, uid: &str) -> usize {
        let owns = |shard: &usize| {
            let shards = Shards::new(u32::try_from(self.shards).unwrap());
            shards.add(u32::try_from(*shard).unwrap());
            shards.owns(uid)
        };
        (0..self.shards).find(owns).expect("each object has a shard")
    }

    pub async fn release(&self) {
        let released = Patch::Merge(json!({ "spec": { "holderIdentity": "" } }));
        for (_, name) in self.names() {
            self.api.patch(&name, &PatchParams::default(), &released).await.unwrap();
        }
    }
}
