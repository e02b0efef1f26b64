//! Objects by which one tenant takes from others, and a user whom the API server throttles.

use serde_json::{Value, json};

use super::cluster::{Cluster, REPOSITORY};
use super::finalizers::with_finalizers;
use super::selectors::not_in;
use crate::applications;
use crate::oam_apps;
use crate::oam_apps::apps::{config, spec};
use crate::oam_apps::stories_hostile::SLOW;
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiFault, ApiRequest};

pub const POLICY: &str = "core.oam.dev/v1alpha1 Policy";
/// Objects of a hostile namespace.
pub const OBJECTS: usize = 8;
/// Elements of a list of 1.3 MB, about as large as the API server allows.
pub const LARGEST: usize = 165_000;
/// ConfigMaps that the hostile Applications select.
const CONFIG_MAPS: usize = 1_000;
/// Size of a spec that leaves no room for as many components.
const DESCRIPTION: usize = 1_500_000;
const SLOW_COMPONENTS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectFault {
    /// AppRepositories with pod templates of 1.3 MB that are a hundred times as large once they are parsed.
    PodTemplates,
    /// Policies of the same size.
    LargePolicies,
    /// Applications with selectors of 100,000 and of 1,000 values beside 1,000 ConfigMaps.
    Selectors,
    /// Applications whose objects have 50,000 finalizers.
    Finalizers,
    /// Applications that leave no room for a status of 1,000 components.
    Statuses,
    /// 429 for each request of one impersonated user.
    ThrottledUser,
    /// Templates of 2 s in each of four namespaces.
    SlowTemplates,
}

impl ObjectFault {
    pub const ALL: [Self; 7] = [
        Self::PodTemplates,
        Self::LargePolicies,
        Self::Selectors,
        Self::Finalizers,
        Self::Statuses,
        Self::ThrottledUser,
        Self::SlowTemplates,
    ];

    pub async fn inject(self, cluster: &Cluster) {
        match self {
            Self::PodTemplates => cluster.attack(REPOSITORY, 0, OBJECTS, |_| pod_template(LARGEST)).await,
            Self::LargePolicies => cluster.attack(POLICY, 0, OBJECTS, |_| policy(LARGEST)).await,
            Self::Selectors => {
                config_maps(cluster).await;
                let values = |number: usize| if number.is_multiple_of(2) { 100_000 } else { 1_000 };
                let application = |number| selecting(&not_in(values(number)), 0);
                cluster.attack(applications::APPLICATION, 0, OBJECTS, application).await;
            }
            Self::Finalizers => {
                let app =
                    |number: usize| json!({ "spec": spec(&[with_finalizers(&format!("hostile-{number}"), 50_000)]) });
                cluster.attack(oam_apps::APPLICATION, 0, OBJECTS, app).await;
            }
            Self::Statuses => {
                config_maps(cluster).await;
                let application = |_| selecting(&json!({ "matchLabels": { "app": "shop" } }), DESCRIPTION);
                cluster.attack(applications::APPLICATION, 0, OBJECTS, application).await;
            }
            Self::ThrottledUser => throttle(cluster).await,
            Self::SlowTemplates => slow_templates(cluster).await,
        }
    }

    /// Ends the fault, and waits until the objects of the hostile tenants are gone.
    pub async fn lift(self, cluster: &Cluster) {
        cluster.proxy.clear_faults();
        let kinds: &[&str] = match self {
            Self::PodTemplates => &[REPOSITORY],
            Self::LargePolicies => &[POLICY],
            Self::Selectors | Self::Statuses => &[applications::APPLICATION, oam_apps::CONFIG_MAP],
            Self::Finalizers | Self::ThrottledUser => &[oam_apps::APPLICATION],
            Self::SlowTemplates => &[oam_apps::APPLICATION, oam_apps::DEFINITION],
        };
        for kind in kinds {
            cluster.withdraw(kind).await;
        }
    }
}

/// Returns an object with a list of this length. Each element takes 8 bytes as text, and some 700 parsed.
pub fn large(length: usize) -> Value {
    json!({ "list": vec![json!({ "a": 0 }); length] })
}

pub fn pod_template(length: usize) -> Value {
    json!({ "spec": {
        "type": "helm", "url": "https://charts.example.com", "suspend": true,
        "syncJobPodTemplate": { "spec": large(length) },
    } })
}

pub fn policy(length: usize) -> Value {
    json!({ "type": "topology", "properties": large(length) })
}

fn selecting(selector: &Value, description: usize) -> Value {
    json!({ "spec": {
        "componentKinds": [{ "group": "", "kind": "ConfigMap" }],
        "selector": selector,
        "descriptor": { "description": "x".repeat(description) },
    } })
}

async fn config_maps(cluster: &Cluster) {
    let object = |_| json!({ "metadata": { "labels": { "app": "shop" } } });
    cluster.attack(oam_apps::CONFIG_MAP, 0, CONFIG_MAPS, object).await;
}

async fn throttle(cluster: &Cluster) {
    cluster.allow(0).await;
    let user = format!("system:serviceaccount:{}:default", cluster.hostile[0]);
    let is_theirs = move |request: &ApiRequest| request.user == user;
    cluster.proxy.inject(usize::MAX, ApiFault::Throttled, is_theirs.clone());
    let app = |number: usize| {
        let annotations = json!({ "app.oam.dev/service-account-name": "default" });
        let spec = spec(&[config(&format!("settings-{number}"), "one")]);
        json!({ "metadata": { "annotations": annotations }, "spec": spec })
    };
    cluster.attack(oam_apps::APPLICATION, 0, OBJECTS, app).await;
    eventually(SOON, "a request of the user", async || {
        cluster.proxy.requests().iter().any(&is_theirs).then_some(())
    })
    .await;
}

async fn slow_templates(cluster: &Cluster) {
    let definition = json!({ "spec": {
        "workload": { "type": "autodetects.core.oam.dev" },
        "schematic": { "cue": { "template": SLOW } },
    } });
    for namespace in 0..cluster.hostile.len() {
        cluster
            .attack(oam_apps::DEFINITION, namespace, 1, |_| definition.clone())
            .await;
        let component = |number| json!({ "name": format!("slow-{number}"), "type": "hostile-0", "properties": { "number": number } });
        let components: Vec<Value> = (0..SLOW_COMPONENTS).map(component).collect();
        cluster
            .attack(
                oam_apps::APPLICATION,
                namespace,
                1,
                |_| json!({ "spec": spec(&components) }),
            )
            .await;
    }
}
