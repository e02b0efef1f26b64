//! Controller machinery that is independent of our custom resources.

pub mod boot_time;
pub mod controller;
pub mod cron;
pub mod events;
pub mod fair_semaphore;
pub mod jitter;
pub mod kube_client;
pub mod leader_election;
pub mod manifests;
pub mod owner_refs;
pub mod ownership;
pub mod shards;
pub mod three_way;
pub mod watch;
pub mod worker_process;
pub mod workqueue;
