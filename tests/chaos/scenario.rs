//! The scenarios.

use std::any::Any;

use tokio::sync::OnceCell;

use super::environment::{DEFINITIONS, Environment};
use super::point::Interruption;
use super::{applications, clusters, garbage, jobs, kubevela, news, repositories, webhooks};
use crate::support::control_plane::{ControlPlane, control_plane};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    Repositories,
    Applications,
    KubeVela,
    Jobs,
    Garbage,
    Clusters,
    Webhooks,
    News,
}

impl Scenario {
    pub fn name(self) -> &'static str {
        match self {
            Self::Repositories => "AppRepository",
            Self::Applications => "Application (app.k8s.io)",
            Self::KubeVela => "Application (core.oam.dev)",
            Self::Jobs => "AppRepository with Jobs",
            Self::Garbage => "garbage collection",
            Self::Clusters => "Application (core.oam.dev) in a joined cluster",
            Self::Webhooks => "Application (core.oam.dev) with webhooks",
            Self::News => "AppRepository with news",
        }
    }

    /// Returns the control plane with the definitions of the scenario.
    pub async fn control_plane(self) -> &'static ControlPlane {
        let control_plane = match self {
            Self::KubeVela | Self::Clusters | Self::Webhooks => kubevela::control_plane().await,
            _ => control_plane().await,
        };
        static INSTALLED: OnceCell<()> = OnceCell::const_new();
        let install = async || {
            for crd in portolan::api::crds() {
                control_plane.install_crd(&crd).await;
            }
        };
        INSTALLED.get_or_init(install).await;
        control_plane
    }

    pub fn arguments(self, environment: &Environment, interruption: Option<&Interruption>) -> Vec<String> {
        match self {
            Self::Repositories => repositories::arguments(interruption),
            Self::Applications => applications::arguments(),
            Self::KubeVela => kubevela::arguments(environment),
            Self::Jobs => jobs::arguments(environment),
            Self::Garbage => garbage::arguments(environment),
            Self::Clusters => clusters::arguments(environment),
            Self::Webhooks => webhooks::arguments(environment),
            Self::News => news::arguments(interruption),
        }
    }

    /// Creates what is there before the process starts. Returns what serves pods during the run.
    pub async fn prepare(self, environment: &Environment) -> Option<Box<dyn Any + Send>> {
        match self {
            Self::Repositories => repositories::prepare(environment).await,
            Self::Garbage => garbage::prepare(environment).await,
            Self::News => news::prepare(environment).await,
            // The sites of the other two serve pods.
            Self::Applications | Self::Clusters | Self::Webhooks => {}
            Self::KubeVela => return Some(Box::new(kubevela::kubelet(environment))),
            Self::Jobs => return Some(Box::new(jobs::prepare(environment).await)),
        }
        None
    }

    /// Acts as users, and waits for the result of each act.
    pub async fn drive(self, environment: &Environment) {
        match self {
            Self::Repositories => repositories::drive(environment).await,
            Self::Applications => applications::drive(environment).await,
            Self::KubeVela => kubevela::drive(environment).await,
            Self::Jobs => jobs::drive(environment).await,
            Self::Garbage => garbage::drive(environment).await,
            Self::Clusters => clusters::drive(environment).await,
            Self::Webhooks => webhooks::drive(environment).await,
            Self::News => news::drive(environment).await,
        }
    }

    /// Returns the kinds of the objects that belong to the end of a run.
    pub fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Repositories => &repositories::KINDS,
            Self::Applications => &applications::KINDS,
            Self::KubeVela | Self::Webhooks => &kubevela::KINDS,
            Self::Jobs => &jobs::KINDS,
            Self::Garbage => &garbage::KINDS,
            Self::Clusters => &clusters::KINDS,
            Self::News => &news::KINDS,
        }
    }

    /// Returns true for what its campaign interrupts, and that of `KubeVela` does not.
    pub fn has(self, interruption: &Interruption) -> bool {
        match self {
            Self::Clusters => !interruption.point.key.contains(DEFINITIONS),
            Self::Webhooks => interruption.fault.kills(),
            _ => true,
        }
    }
}
