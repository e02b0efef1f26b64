//! SIGTERM while a phase of the work hangs: the process exits within its grace, releases the Lease, and leaves the database
//! as it was before the phase. The next process finishes the work.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::Method;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::coordination::v1::Lease;
use rstest::rstest;

use super::rows::Postgres;
use super::{SOON, World, garbage, index};
use crate::support::archives::{Archive, Chart};
use crate::support::chart_server::Fault;
use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::eventually;
use crate::support::fault_proxy::{ApiFault, ApiRequest, FaultProxy};
use crate::support::portolan::Portolan;
use crate::support::postgres_proxy::{Moment, PostgresProxy};
use crate::support::signal::Signal;

/// A pod of the chart is killed after 45 s.
const GRACE: Duration = Duration::from_secs(20);

/// A repository namespace and a database, each behind a proxy.
struct Stage {
    world: World,
    postgres: Postgres,
    commits: PostgresProxy,
    api: FaultProxy,
    kubeconfig: PathBuf,
}

impl Stage {
    async fn new() -> Self {
        let (control_plane, postgres) = (control_plane().await, Postgres::new().await);
        let api = FaultProxy::in_front_of(control_plane).await;
        Self {
            world: World::new().await,
            commits: PostgresProxy::in_front_of(&postgres.database).await,
            kubeconfig: control_plane.kubeconfig_for(&api.url(), ADMIN_TOKEN),
            postgres,
            api,
        }
    }

    fn start(&self, chart_files: &str) -> Portolan {
        let namespace = format!("--namespace={}", self.world.namespace);
        let chart_files = format!("--chart-files={chart_files}");
        let flags = [
            "--enable-leader-election",
            "--drain-timeout=1s",
            &namespace,
            &chart_files,
        ];
        Portolan::start(self.world.command(&self.kubeconfig, &self.commits.url, &flags))
    }

    /// Holds the next commit whose first write is this one.
    fn hold(&self, write: &str) -> Arc<Signal> {
        let signal = Arc::<Signal>::default();
        self.commits.hold(write, 0, Moment::Before, Arc::clone(&signal));
        signal
    }

    async fn until_given(&self, held: &Signal) {
        eventually(SOON, "the commit", async || {
            if held.is_given() {
                Ok(())
            } else {
                Err(format!("{:?}", self.commits.commits()))
            }
        })
        .await;
    }

    /// Signals the process, and waits for its exit and the release of the Lease.
    async fn end(&self, portolan: &mut Portolan) {
        let signaled = Instant::now();
        portolan.signal("TERM");
        portolan.exit(GRACE).await;
        assert!(signaled.elapsed() < GRACE, "{:?}", signaled.elapsed());
        let lease = self.world.api::<Lease>().get("portolan").await.unwrap();
        let holder = lease.spec.unwrap().holder_identity.unwrap_or_default();
        assert_eq!(holder, "", "{:?}", portolan.lines());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_transaction_is_rolled_back() {
    let stage = Stage::new().await;
    let (world, rows) = (&stage.world, &stage.postgres.rows);
    let mut portolan = stage.start("none");
    let url = world.serve("stable", index(&[("web", &["1.0.0"])]));
    world.declare("stable", &url).await;
    world.until_ready("stable").await;
    world.serve("stable", index(&[("job", &["2.0.0"]), ("web", &["2.0.0"])]));
    let held = stage.hold("UPDATE portolan_files");
    world.resync("stable", "now").await;
    stage.until_given(&held).await;
    assert_eq!(
        world.server.requests("/stable/index.yaml").len(),
        2,
        "the second sync commits"
    );
    stage.end(&mut portolan).await;
    assert_eq!(rows.charts().await.unwrap(), ["stable/web 1.0.0"]);

    let _portolan = stage.start("none");
    rows.until_charts(&["stable/job 2.0.0", "stable/web 2.0.0"]).await;
    world.until_ready("stable").await;
}

enum Hang {
    Request,
    Commit,
}

#[rstest]
#[case::in_a_download(Hang::Request)]
#[case::in_a_commit(Hang::Commit)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_of_chart_files_leaves_whole_rows(#[case] hang: Hang) {
    let stage = Stage::new().await;
    let (world, rows) = (&stage.world, &stage.postgres.rows);
    let archives = ["1.0.0", "2.0.0"].map(|version| Chart::new("web", version).file("README.md", version).pack());
    world.server.serve_archives("stable", &archives);
    let entries = archives
        .iter()
        .map(|archive| archive.index_entry(&[&archive.file_name()]));
    let url = world.serve("stable", crate::support::archives::index(entries));
    let path = |archive: &Archive| format!("/stable/{}", archive.file_name());
    let held = match hang {
        Hang::Request => {
            world.server.break_path(&path(&archives[0]), Fault::StallAfter(50));
            None
        }
        Hang::Commit => Some(stage.hold("INSERT INTO files")),
    };
    let mut portolan = stage.start("all");
    world.declare("stable", &url).await;
    let whole = match held {
        Some(held) => {
            stage.until_given(&held).await;
            0
        }
        None => {
            // The newest version is imported first.
            eventually(SOON, "the first file, and the download of the second", async || {
                let is_requested = !world.server.requests(&path(&archives[0])).is_empty();
                (is_requested && rows.files().await.len() == 1).then_some(())
            })
            .await;
            1
        }
    };
    stage.end(&mut portolan).await;
    let files = rows.files().await;
    assert_eq!(files.len(), whole);
    for (id, file) in files {
        assert_eq!(file["Readme"], "2.0.0", "{id}: {file:#}");
    }

    world.server.clear_faults(&path(&archives[0]));
    let _portolan = stage.start("all");
    world.until_files("stable", 2).await;
    assert_eq!(rows.files().await.len(), 2);
}

#[rstest]
#[case::in_a_request(Hang::Request)]
#[case::in_a_commit(Hang::Commit)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_collection_is_repeated(#[case] hang: Hang) {
    let stage = Stage::new().await;
    let (world, rows) = (&stage.world, &stage.postgres.rows);
    garbage::orphaned(world, &stage.postgres, &["kept"], &["gone"]).await;
    world.leave_objects("gone", "an-old-uid").await;
    let is_deletion = |request: &ApiRequest| request.method == Method::DELETE && request.path.contains("/cronjobs/");
    let held = match hang {
        Hang::Request => {
            stage.api.inject(1, ApiFault::Stalled, is_deletion);
            None
        }
        Hang::Commit => Some(stage.hold("DELETE FROM charts")),
    };
    let mut portolan = stage.start("none");
    match held {
        Some(held) => stage.until_given(&held).await,
        None => {
            eventually(SOON, "the deletion", async || {
                stage.api.requests().iter().any(is_deletion).then_some(())
            })
            .await;
        }
    }
    stage.end(&mut portolan).await;

    let _portolan = stage.start("none");
    rows.until_charts(&["kept/web 1.0.0"]).await;
    eventually(SOON, "the CronJob to be removed", async || {
        let names = garbage::names::<CronJob>(world).await;
        if names.is_empty() {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
}
