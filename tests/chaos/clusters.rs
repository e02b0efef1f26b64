//! Applications (core.oam.dev) in a joined cluster: deployed, changed, restored, and deleted.

use serde_json::json;

use super::environment::{Environment, JOINED_CONFIG_MAP};
use super::kubevela::{self, KIND, TRACKER, deploy};
use crate::oam_apps::apps::config;
use crate::oam_apps::{CONFIG_MAP, REVISION};
use crate::oam_clusters::fleet::{Fleet, PATIENT, has, placed};
use crate::support::fault_proxy::FaultProxy;

pub const KINDS: [&str; 5] = [KIND, REVISION, TRACKER, CONFIG_MAP, JOINED_CONFIG_MAP];

/// A cluster that is joined by the name `east`, behind a proxy.
pub struct Joined {
    pub fleet: Fleet,
    pub api: FaultProxy,
}

impl Joined {
    pub async fn new() -> Self {
        let fleet = Fleet::without_clusters().await;
        let api = fleet.join_proxy("east", &fleet.east).await;
        Self { fleet, api }
    }
}

pub fn arguments(environment: &Environment) -> Vec<String> {
    let joined = environment.joined.as_ref().expect("a cluster is joined");
    let definitions = format!("--system-definition-namespace={}", joined.fleet.definitions);
    let mut arguments = kubevela::arguments(environment);
    arguments.extend([definitions, PATIENT.to_owned()]);
    arguments
}

pub async fn drive(environment: &Environment) {
    let both = ["local", "east"];
    let components = [config("settings", "one"), config("old", "one")];
    deploy(environment, "shop", placed(&components, &both)).await;
    // Changes a component, removes another and adds a third.
    let components = [config("settings", "two"), config("more", "one")];
    deploy(environment, "shop", placed(&components, &both)).await;
    environment.until_gone(CONFIG_MAP, "old").await;
    environment.until_gone(JOINED_CONFIG_MAP, "old").await;

    let drift = json!({ "data": { "key": "drift" } });
    environment.edit(JOINED_CONFIG_MAP, "settings", drift).await;
    environment
        .until(JOINED_CONFIG_MAP, "settings", "restored", has("two"))
        .await;

    deploy(environment, "brief", placed(&[config("brief", "one")], &["east"])).await;
    environment.delete(KIND, "brief").await;
    environment.until_gone(KIND, "brief").await;
    environment.until_gone(JOINED_CONFIG_MAP, "brief").await;
}
