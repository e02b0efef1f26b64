//! The end of `portolan run`: orderly at the first signal, at once at the second.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use super::{assert_code, text};
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command, run};
use crate::support::process::ScratchDir;

const SOON: Duration = Duration::from_secs(30);
const INDEX: &str = "/charts/index.yaml";

/// Portolan over a folder with one repository, whose server does this to it; the sync is under way.
struct World {
    _directory: ScratchDir,
    _server: ChartServer,
    database: String,
    portolan: Portolan,
}

impl World {
    async fn with(fault: Fault, more: &[&str]) -> Self {
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
        text(&output)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sync_under_way_is_finished_at_the_first_signal() {
    let mut world = World::with(Fault::Drip(4, Duration::from_millis(100)), &[]).await;
    world.portolan.signal("TERM");
    // Whoever watches it sees it drain: alive, but not ready.
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
async fn what_is_not_done_when_the_time_is_over_is_given_up_and_nothing_of_it_written() {
    let mut world = World::with(Fault::StallAfter(10), &["--drain-timeout=500ms"]).await;
    let asked = Instant::now();
    world.portolan.signal("INT");
    let status = world.portolan.exit(SOON).await;
    assert!(asked.elapsed() < Duration::from_secs(10));
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
async fn a_second_signal_ends_at_once() {
    let mut world = World::with(Fault::StallAfter(10), &[]).await;
    world.portolan.signal("TERM");
    world
        .portolan
        .line_with("a second signal exits immediately", SOON)
        .await;
    let asked = Instant::now();
    world.portolan.signal("TERM");
    let status = world.portolan.exit(SOON).await;
    assert!(asked.elapsed() < Duration::from_secs(10));
    assert_eq!(
        (status.code(), status.signal()),
        (Some(143), None),
        "{:?}",
        world.portolan.lines()
    );
}
