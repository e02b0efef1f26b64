//! A database with 100,000 versions, an API server with callers, and `portolan serve`.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::process::Child;

use crate::rig::baseline::static_server;
use crate::rig::load::{Client, Requests};
use crate::rig::measure::{PEAK, RESIDENT, cpu, memory};
use crate::rig::{ChartServer, ControlPlane, Page, SQLITE, Sample, proxied, until};
use crate::support::fault_proxy::FaultProxy;
use crate::support::index_generator::generate;
use crate::support::portolan::{Portolan, command, run};
use crate::support::ports::free_port;
use crate::support::postgres::{self, TestDatabase};
use crate::support::process::ScratchDir;

const PATIENCE: Duration = Duration::from_secs(120);
const CALLERS: usize = 256;
/// Below the limit for tokens that are not known yet.
const PAUSE: Duration = Duration::from_millis(120);
const LARGE: &str = "large";

/// An API server, and the tokens of callers who may list repositories in all namespaces.
pub struct Callers {
    _control_plane: ControlPlane,
    pub proxy: FaultProxy,
    kubeconfig: PathBuf,
    tokens: Vec<String>,
}

impl Callers {
    pub async fn new() -> Self {
        let control_plane = ControlPlane::start().await;
        for crd in portolan::api::crds() {
            control_plane.install_crd(&crd).await;
        }
        let (role, binding) = (
            "clusterrole reader --verb=list --resource=apprepositories.kubeapps.com",
            "clusterrolebinding reader --clusterrole=reader --group=system:serviceaccounts",
        );
        for object in [role, binding] {
            let arguments: Vec<&str> = ["create"].into_iter().chain(object.split(' ')).collect();
            control_plane.kubectl(&arguments).await;
        }
        let (namespace, mut tokens) = (control_plane.namespace().await, Vec::new());
        for number in 0..CALLERS {
            let account = format!("reader-{number}");
            tokens.push(control_plane.token_for(&namespace, &account).await);
        }
        let (proxy, kubeconfig) = proxied(&control_plane).await;
        Self {
            _control_plane: control_plane,
            proxy,
            kubeconfig,
            tokens,
        }
    }

    /// Returns a request of each of these callers, for the paths in turn. A header ends with a line break.
    pub fn requests(&self, callers: Range<usize>, paths: &[String], header: &str) -> Requests {
        let request = |(token, path): (&String, &String)| {
            let headers = format!("host: 127.0.0.1\r\nauthorization: Bearer {token}\r\n{header}");
            format!("GET {path} HTTP/1.1\r\n{headers}\r\n").into_bytes()
        };
        let tokens = self.tokens[callers].iter();
        Arc::new(tokens.zip(paths.iter().cycle()).map(request).collect())
    }
}

impl Callers {
    pub fn token(&self) -> &str {
        &self.tokens[0]
    }
}

pub struct Site {
    url: String,
    _postgres: Option<TestDatabase>,
    _directory: ScratchDir,
    pub charts: ChartServer,
}

impl Site {
    /// Fills a database by `portolan sync`.
    pub async fn new(database: &str) -> Self {
        let (directory, mut postgres) = (ScratchDir::new("bench"), None);
        let url = if database == SQLITE {
            format!("sqlite://{}", directory.join("portolan.db").display())
        } else {
            postgres.insert(postgres::database().await).url.clone()
        };
        let site = Self {
            url,
            _postgres: postgres,
            _directory: directory,
            charts: ChartServer::start().await,
        };
        for number in 0..50 {
            site.sync_small(number, number).await;
        }
        site.sync_large(0).await;
        site.sync_pages().await;
        site
    }

    /// Syncs a repository of 2,500 versions, of which a fifth is deprecated and not stored. Another seed changes all.
    pub async fn sync_small(&self, number: u64, seed: u64) -> f64 {
        self.sync(&format!("repository-{number}"), generate(seed, 250, 10), "none")
            .await
    }

    /// Syncs the repository of 14,000 versions, and returns the duration in seconds.
    pub async fn sync_large(&self, seed: u64) -> f64 {
        self.sync(LARGE, generate(seed, 175, 100), "none").await
    }

    pub fn index() -> String {
        format!("/helm/{LARGE}/{LARGE}/index.yaml")
    }

    /// Each repository has a namespace of its own.
    pub async fn sync(&self, name: &str, index: String, files: &str) -> f64 {
        self.charts.serve(&format!("/{name}/index.yaml"), Page::new(index));
        let url = self.charts.url(&format!("/{name}"));
        let mut sync = command(["sync", name, &url, "helm", "--namespace", name]);
        sync.args(["--database-url", &self.url, "--chart-files", files]);
        let started = Instant::now();
        let output = run(sync).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        started.elapsed().as_secs_f64()
    }

    pub async fn serve(&self, callers: &Callers, flags: &[&str]) -> Serve {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = command(["serve", "--serve", &address, "--database-url", &self.url]);
        command.arg("--kubeconfig").arg(&callers.kubeconfig).args(flags);
        let portolan = Portolan::start(command);
        portolan.ready(PATIENCE).await;
        Serve {
            address,
            process: portolan.id(),
            portolan: Some(portolan),
            _child: None,
        }
    }
}

/// A server under load: `portolan serve`, or one of static bytes.
pub struct Serve {
    pub address: String,
    pub process: u32,
    portolan: Option<Portolan>,
    _child: Option<Child>,
}

impl Serve {
    /// Starts the listener of the catalog with one response of this size.
    pub async fn of_static_bytes(bytes: usize) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let child = static_server(&address, bytes);
        until(async || TcpStream::connect(&address).await.is_ok()).await;
        Self {
            address,
            process: child.id().expect("it runs"),
            portolan: None,
            _child: Some(child),
        }
    }

    /// Sends a first request of each caller, so that the API server has reviewed all.
    pub async fn introduce(&self, requests: &Requests) {
        let mut client = Client::connect(&self.address).await;
        for request in requests.iter() {
            assert_eq!(client.get(request).await.status, 200, "the caller is known");
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub async fn sum(&self, metric: &str) -> f64 {
        let portolan = self.portolan.as_ref().expect("Portolan has metrics");
        portolan.metrics().await.sum(metric, &[]).unwrap_or_default()
    }

    /// Returns CPU and memory. `idle` is what is resident.
    pub fn used(&self) -> Sample {
        Sample {
            cpu: cpu(self.process).expect("it runs"),
            peak: memory(self.process, PEAK),
            idle: memory(self.process, RESIDENT),
            ..Sample::default()
        }
    }
}
