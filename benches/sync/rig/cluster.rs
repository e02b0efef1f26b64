//! Portolan with a control plane, and its resource usage.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::measure::{PEAK, Sample, children, cpu_with_children, memory};
use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane};
use crate::support::fault_proxy::{ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;
use crate::support::process::ScratchDir;

/// A process without requests for this long has nothing left to do.
const QUIET: Duration = Duration::from_millis(500);
const REQUESTS: &str = "rest_client_requests_total";
const POLL: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(300);

pub struct Running {
    portolan: Portolan,
    directory: ScratchDir,
}

impl Running {
    pub fn start(kubeconfig: &Path, flags: &[String]) -> Self {
        let directory = ScratchDir::new("bench");
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let flags = [&kubeconfig].into_iter().chain(flags);
        Self {
            portolan: super::start(&super::sqlite(&directory), flags.map(String::as_str)),
            directory,
        }
    }

    /// Waits until a metric has this value and the process has nothing left to do.
    pub async fn idle(&self, metric: &str, labels: &[(&str, &str)], value: usize) -> Sample {
        self.portolan.ready(PATIENCE).await;
        // On a busy machine, the first lists may arrive late.
        super::until(async || self.sum(metric, labels).await >= value).await;
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
        let (all, pid) = (self.sum(REQUESTS, &[]).await, self.portolan.id());
        // Requests to joined clusters that never answer do not end.
        let requests = all.saturating_sub(self.sum(REQUESTS, &[("code", "<error>")]).await);
        let processes = children(pid).into_iter().chain([pid]);
        Sample {
            requests: Some(requests),
            cpu: cpu_with_children(pid).expect("it runs"),
            peak: processes.map(|pid| memory(pid, PEAK)).sum(),
            ..Sample::default()
        }
    }

    /// Measures a minute without changes. A proxy counts the requests.
    pub async fn at_rest(&self, proxy: &FaultProxy, before: Sample) -> Sample {
        let seen = proxy.requests().len();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let sample = self.used().await.since(before);
        let seen = proxy.requests().split_off(seen);
        sample.requests(seen.iter().filter(|request| is_counted(request)).count())
    }

    pub async fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> usize {
        let sum = self.portolan.metrics().await.sum(metric, labels);
        sum.unwrap_or_default() as usize
    }

    /// Returns the URL of the database.
    pub fn database(&self) -> String {
        super::sqlite(&self.directory)
    }

    pub async fn end(self) {
        super::end(self.portolan).await;
    }
}

/// Returns a proxy that counts requests, and a kubeconfig that leads to it.
pub async fn proxied(control_plane: &ControlPlane) -> (FaultProxy, PathBuf) {
    let proxy = FaultProxy::in_front_of(control_plane).await;
    let kubeconfig = control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN);
    (proxy, kubeconfig)
}

/// Excludes watches and the Lease.
fn is_counted(request: &ApiRequest) -> bool {
    !request.is_watch() && !request.path.contains("/leases")
}
