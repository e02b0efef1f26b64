//! Portolan with a control plane, and its resource usage.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::rig;
use crate::rig::measure::{Sample, cpu_with_children, peak_memory_with_children};
use crate::support::portolan::{Portolan, command};
use crate::support::process::ScratchDir;

/// A process without requests for this long has nothing left to do.
const QUIET: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(300);

/// A running process with its own SQLite database.
pub struct Running {
    portolan: Portolan,
    _directory: ScratchDir,
}

impl Running {
    /// Starts a process that watches one namespace or the whole cluster.
    pub fn start(kubeconfig: &Path, namespace: Option<&str>) -> Self {
        let flags = namespace.map(|namespace| format!("--watch-namespace={namespace}"));
        Self::start_with(kubeconfig, flags.as_slice())
    }

    pub fn start_with(kubeconfig: &Path, flags: &[String]) -> Self {
        let directory = ScratchDir::new("bench");
        let database = format!("sqlite://{}", directory.join("portolan.db").display());
        let mut run = command(["run", "--database-url", &database]);
        // The tests decode every index twice.
        run.env("PORTOLAN_VERIFY_DELTA", "false");
        run.arg("--kubeconfig").arg(kubeconfig).args(flags);
        Self {
            portolan: Portolan::start(run),
            _directory: directory,
        }
    }

    /// Waits until this many Applications are ready and the process has nothing left to do.
    pub async fn idle(&self, ready: usize) -> Sample {
        self.portolan.ready(PATIENCE).await;
        // On a busy machine, the first lists may arrive late.
        rig::until(async || self.sum("portolan_applications", &[("ready", "True")]).await >= ready).await;
        self.settled().await
    }

    /// Waits until this many passes over KubeVela's Applications have ended and the process has nothing left to do.
    pub async fn reconciled(&self, passes: usize) -> Sample {
        self.portolan.ready(PATIENCE).await;
        rig::until(async || self.passes().await >= passes).await;
        self.settled().await
    }

    pub async fn settled(&self) -> Sample {
        let started = Instant::now();
        let (mut last, mut since) = (self.used().await, Instant::now());
        while since.elapsed() < QUIET {
            assert!(started.elapsed() < PATIENCE, "requests end within {PATIENCE:?}");
            tokio::time::sleep(POLL).await;
            let now = self.used().await;
            if now.requests != last.requests {
                since = Instant::now();
            }
            last = now;
        }
        last
    }

    pub async fn used(&self) -> Sample {
        Sample {
            requests: Some(self.sum("rest_client_requests_total", &[]).await),
            cpu: cpu_with_children(self.portolan.id()).expect("it runs").as_secs_f64(),
            peak: peak_memory_with_children(self.portolan.id()),
            ..Sample::default()
        }
    }

    /// Returns the number of components whose owner references were written.
    pub async fn adopted(&self) -> usize {
        self.sum("portolan_application_owner_changes_total", &[]).await
    }

    /// Returns the number of passes over KubeVela's Applications.
    pub async fn passes(&self) -> usize {
        self.sum("portolan_oam_passes_total", &[]).await
    }

    /// Returns the number of evaluated CUE texts.
    pub async fn evaluations(&self) -> usize {
        self.sum("portolan_cue_evaluations_total", &[]).await
    }

    async fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> usize {
        let sum = self.portolan.metrics().await.sum(metric, labels);
        sum.unwrap_or_default() as usize
    }

    pub async fn end(self) {
        rig::end(self.portolan).await;
    }
}
