//! Shutdown of `portolan run`: graceful at the first signal, immediate at the second.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use super::{assert_code, join_output};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command, run};
use crate::support::process::ScratchDir;

const SOON: Duration = Duration::from_secs(30);
const INDEX: &str = "/charts/index.yaml";

/// Portolan during the sync of one repository with a faulty server.
struct World {
    _directory: ScratchDir,
    _server: ChartServer,
    database: String,
    portolan: Portolan,
}

impl World {
    async fn start(fault: Fault, more: &[&str]) -> Self {
        let (directory, server) = (ScratchDir::new("shutdown"), ChartServer::start().await);
        server.serve(INDEX, Page::new(crate::cluster::index(&[("web", &["1.0.0"])])));
        server.break_path(INDEX, fault);
        let manifests = directory.join("manifests");
        std::fs::create_dir(&manifests).unwrap();
        let url = server.url("/charts");
        let manifest = format!(
            "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {{name: slow}}\nspec: {{type: helm, url: \"{url}\"}}\n"
        );
        std::fs::write(manifests.join("slow.yaml"), manifest).unwrap();
        let database = format!("sqlite://{}", directory.join("portolan.db").display());
        let mut service = command(["run", "--database-url", &database, "--manifests"]);
        service.arg(&manifests).args(more);
        let portolan = Portolan::start(service);
        eventually(SOON, "the request for the index", async || {
            (!server.requests(INDEX).is_empty()).then_some(())
        })
        .await;
        Self {
            _directory: directory,
            _server: server,
            database,
            portolan,
        }
    }

    async fn status(&self) -> String {
        let output = run(command(["status", "-o", "json", "--database-url", &self.database])).await;
        assert_code(&output, 0);
        join_output(&output)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_sync_is_completed_after_the_first_signal() {
    let mut world = World::start(Fault::Drip(4, Duration::from_millis(100)), &[]).await;
    world.portolan.signal("TERM");
    // While draining, the process is alive but not ready.
    eventually(SOON, "it to be not ready", async || {
        match world.portolan.get("/readyz").await {
            Ok((503, body)) if body.contains("[-]shutdown failed") => Ok(()),
            answer => Err(format!("{answer:?}")),
        }
    })
    .await;
    assert_eq!(world.portolan.get("/livez").await.unwrap().0, 200);
    let status = world.portolan.exit(SOON).await;
    assert_eq!(status.code(), Some(0), "{:?}", world.portolan.lines());
    assert!(world.status().await.contains("\"ready\": true"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_that_exceeds_the_drain_timeout_is_rolled_back() {
    let mut world = World::start(Fault::StallAfter(10), &["--drain-timeout=500ms"]).await;
    let signaled = Instant::now();
    world.portolan.signal("INT");
    let status = world.portolan.exit(SOON).await;
    assert!(signaled.elapsed() < Duration::from_secs(10));
    assert_eq!(status.code(), Some(1), "{:?}", world.portolan.lines());
    assert!(
        world
            .portolan
            .lines()
            .iter()
            .any(|line| line.contains("--drain-timeout")),
        "{:?}",
        world.portolan.lines()
    );
    assert!(!world.status().await.contains("\"name\": \"slow\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_exits_immediately() {
    let mut world = World::start(Fault::StallAfter(10), &[]).await;
    world.portolan.signal("TERM");
    world
        .portolan
        .line_with("a second signal exits immediately", SOON)
        .await;
    let signaled = Instant::now();
    world.portolan.signal("TERM");
    let status = world.portolan.exit(SOON).await;
    assert!(signaled.elapsed() < Duration::from_secs(10));
    assert_eq!(
        (status.code(), status.signal()),
        (Some(143), None),
        "{:?}",
        world.portolan.lines()
    );
}
