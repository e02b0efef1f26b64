//! Portolan over a control plane, and what it has used.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::measure::{cpu, peak_memory};
use crate::rig;
use crate::support::fault_proxy::ApiRequest;
use crate::support::portolan::{Portolan, command};
use crate::support::process::ScratchFolder;

use super::fleet::Fleet;

/// Without a request for so long, what was to be done is done.
const QUIET: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(300);

/// What the next processes are started with.
pub struct Setting {
    folder: ScratchFolder,
    kubeconfig: PathBuf,
    namespace: Option<String>,
}

/// A running process.
pub struct Running {
    portolan: Portolan,
}

/// What it has used so far.
#[derive(Clone, Copy, Default)]
pub struct Used {
    /// Seconds.
    pub cpu: f64,
    /// Requests to the API server that read, watches among them.
    pub reads: usize,
    /// Those that write.
    pub writes: usize,
    /// The most memory so far, in bytes.
    pub peak: u64,
}

impl Used {
    /// What was used since; memory is the most of all times.
    pub fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            peak: self.peak,
        }
    }
}

impl Setting {
    /// Over the fleet's namespace, where it has but one, and over the cluster otherwise; with an empty database.
    pub fn new(fleet: &Fleet, kubeconfig: &Path) -> Self {
        Self {
            folder: ScratchFolder::new("bench"),
            kubeconfig: kubeconfig.to_owned(),
            namespace: match fleet.namespaces.as_slice() {
                [namespace] => Some(namespace.clone()),
                _ => None,
            },
        }
    }

    /// Starts a process.
    pub fn start(&self) -> Running {
        let database = format!("sqlite://{}", self.folder.join("portolan.db").display());
        let mut run = command(["run", "--database-url", &database]);
        run.arg("--kubeconfig").arg(&self.kubeconfig);
        if let Some(namespace) = &self.namespace {
            run.args(["--watch-namespace", namespace]);
        }
        Running {
            portolan: Portolan::start(run),
        }
    }
}

impl Running {
    /// Waits until it has looked at all of so many Applications whose components are ready, and has nothing left to do.
    pub async fn idle(&self, ready: usize) -> Used {
        self.portolan.ready(PATIENCE).await;
        let started = Instant::now();
        // On a busy machine there are long moments without a request before the first lists have come.
        while self.sum("portolan_applications", &[("ready", "True")]).await < ready {
            assert!(started.elapsed() < PATIENCE, "all Applications are looked at");
            tokio::time::sleep(QUIET / 5).await;
        }
        self.settled().await
    }

    /// What it has used, once it makes no more requests.
    pub async fn settled(&self) -> Used {
        let started = Instant::now();
        let mut last = self.used().await;
        let mut since = Instant::now();
        while since.elapsed() < QUIET {
            assert!(started.elapsed() < PATIENCE, "there is an end to its requests");
            tokio::time::sleep(QUIET / 5).await;
            let now = self.used().await;
            if (now.reads, now.writes) != (last.reads, last.writes) {
                since = Instant::now();
            }
            last = now;
        }
        last
    }

    /// What it has used so far.
    pub async fn used(&self) -> Used {
        let metrics = self.portolan.metrics().await;
        let requests = |methods: &[&str]| {
            let of = |method: &&str| metrics.sum("rest_client_requests_total", &[("method", method)]);
            methods.iter().filter_map(of).sum::<f64>() as usize
        };
        Used {
            cpu: cpu(self.portolan.id()).expect("it runs").as_secs_f64(),
            reads: requests(&["GET"]),
            writes: requests(&["POST", "PUT", "PATCH", "DELETE"]),
            peak: peak_memory(self.portolan.id()).expect("it runs"),
        }
    }

    /// Components whose owners it has written.
    pub async fn adopted(&self) -> usize {
        self.sum("portolan_application_owner_changes_total", &[]).await
    }

    async fn sum(&self, metric: &str, labels: &[(&str, &str)]) -> usize {
        let sum = self.portolan.metrics().await.sum(metric, labels);
        sum.unwrap_or_default() as usize
    }

    /// Ends it, which must go well.
    pub async fn end(self) {
        rig::end(self.portolan).await;
    }
}

/// Watches, other reads and writes among requests.
pub fn by_sort(requests: &[ApiRequest]) -> (usize, usize, usize) {
    let watches = requests.iter().filter(|request| request.is_watch()).count();
    let is_read = |request: &&ApiRequest| request.method == http::Method::GET;
    let reads = requests.iter().filter(is_read).count() - watches;
    (watches, reads, requests.len() - watches - reads)
}
