//! A control plane and a process for all namespaces, shared by tests of many Applications.

use std::path::Path;
use std::process::Command;

use futures::FutureExt;
use tokio::sync::OnceCell;

use super::setup;
use crate::support::control_plane::ControlPlane;
use crate::support::cue;
use crate::support::eventually::SOON;
use crate::support::portolan::{Portolan, command};
use crate::support::process::ScratchDir;

/// Nobody renews the lease of the node, therefore nobody may judge it and its pods.
const CONTROLLERS: &str = "*,-node-lifecycle-controller,-pod-garbage-collector-controller";

pub struct Estate {
    pub control_plane: ControlPlane,
    pub portolan: Portolan,
    _directory: ScratchDir,
}

/// Returns the estate, started on first use.
pub async fn estate() -> &'static Estate {
    static SHARED: OnceCell<Option<Estate>> = OnceCell::const_new();
    // A failed start is not repeated by every test.
    let start = async || std::panic::AssertUnwindSafe(Estate::start()).catch_unwind().await.ok();
    let estate = SHARED.get_or_init(start).await;
    estate
        .as_ref()
        .expect("the estate starts; see the failure of the first test that needs it")
}

impl Estate {
    async fn start() -> Self {
        let control_plane = ControlPlane::start_with(CONTROLLERS).await;
        setup::install(&control_plane).await;
        let directory = ScratchDir::new("estate");
        let portolan = Portolan::start(run(&directory, &control_plane.kubeconfig()));
        portolan.ready(SOON).await;
        Self {
            control_plane,
            portolan,
            _directory: directory,
        }
    }
}

/// Returns the command that runs the controller as KubeVela ran for the records, but with short backoffs.
pub fn run(directory: &ScratchDir, kubeconfig: &Path) -> Command {
    let database = format!("sqlite://{}", directory.join("portolan.db").display());
    let mut command = command(["run", "--controllers=oam", "--database-url", &database]);
    command.args([
        "--compat-version=UNKNOWN",
        "--application-re-sync-period=1m",
        "--max-workflow-wait-backoff-time=1",
        "--max-workflow-failed-backoff-time=1",
    ]);
    command.arg(format!("--cue-evaluator={}", cue::executable().display()));
    command.arg("--kubeconfig").arg(kubeconfig);
    command
}
