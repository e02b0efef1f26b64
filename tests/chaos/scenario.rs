//! The scenarios.

use super::environment::Environment;
use super::kubevela::Kubelet;
use super::point::Interruption;
use super::{applications, kubevela, repositories};
use crate::support::control_plane::{ControlPlane, control_plane};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    Repositories,
    Applications,
    KubeVela,
}

impl Scenario {
    pub fn name(self) -> &'static str {
        match self {
            Self::Repositories => "AppRepository",
            Self::Applications => "Application (app.k8s.io)",
            Self::KubeVela => "Application (core.oam.dev)",
        }
    }

    /// Returns the control plane with the definitions of the scenario.
    pub async fn control_plane(self) -> &'static ControlPlane {
        let control_plane = match self {
            Self::Repositories | Self::Applications => control_plane().await,
            Self::KubeVela => kubevela::control_plane().await,
        };
        for crd in portolan::api::crds() {
            control_plane.install_crd(&crd).await;
        }
        control_plane
    }

    pub fn arguments(self, environment: &Environment, interruption: Option<&Interruption>) -> Vec<String> {
        match self {
            Self::Repositories => repositories::arguments(interruption),
            Self::Applications => applications::arguments(),
            Self::KubeVela => kubevela::arguments(environment),
        }
    }

    /// Creates what is there before the process starts. Returns what serves pods during the run.
    pub async fn prepare(self, environment: &Environment) -> Option<Kubelet> {
        match self {
            Self::Repositories => {
                repositories::prepare(environment).await;
                None
            }
            Self::Applications => None,
            Self::KubeVela => Some(kubevela::kubelet(environment)),
        }
    }

    /// Acts as users, and waits for the result of each act.
    pub async fn drive(self, environment: &Environment) {
        match self {
            Self::Repositories => repositories::drive(environment).await,
            Self::Applications => applications::drive(environment).await,
            Self::KubeVela => kubevela::drive(environment).await,
        }
    }

    /// Returns the kinds of the objects that belong to the end of a run.
    pub fn kinds(self) -> &'static [&'static str] {
        match self {
            Self::Repositories => &repositories::KINDS,
            Self::Applications => &applications::KINDS,
            Self::KubeVela => &kubevela::KINDS,
        }
    }
}
