//! In the place of Kubeapps' syncer: called by its name, with its arguments and environment.

use std::process::Command;

use sqlx::PgPool;
use url::Url;

use super::{World, named, ran};
use crate::cluster::index;
use crate::support::portolan::command_as;
use crate::support::postgres;

/// The flags by which Kubeapps' programs are told of a database; its password they find in the environment.
pub fn login(url: &str) -> [String; 3] {
    let url = Url::parse(url).unwrap();
    [
        format!("--database-url={}:{}", url.host_str().unwrap(), url.port().unwrap()),
        format!("--database-user={}", url.username()),
        format!("--database-name={}", url.path().trim_start_matches('/')),
    ]
}

impl World {
    fn asset_syncer(&self, arguments: &[&str], database_url: &str) -> Command {
        let mut command = command_as(&named(&self.directory, "asset-syncer"), arguments);
        command.args(login(database_url)).env("DB_PASSWORD", postgres::PASSWORD);
        command
    }
}

#[tokio::test]
async fn the_sync_and_cleanup_jobs_of_kubeapps_do_what_they_did() {
    let world = World::new().await;
    let database = postgres::database().await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let url = world.serve("bitnami", index(&[("web", &["1.0.0"])]));
    let sync = [
        "sync",
        "--user-agent-comment=kubeapps/2.12.1",
        "--global-repos-namespace=kubeapps-repos-global",
        "--namespace=team",
        "bitnami",
        &url,
        "helm",
    ];
    let mut job = world.asset_syncer(&sync, &database.url);
    // What else the Job's environment holds.
    job.env("OCI_CATALOG_URL", "kubeappsapis:50061")
        .env("POD_NAMESPACE", "kubeapps");
    ran(job).await.ok();
    let rows: Vec<(String, String, String)> = sqlx::query_as("SELECT repo_namespace, repo_name, chart_id FROM charts")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(rows, [("team".into(), "bitnami".into(), "bitnami/web".into())]);
    let agent = world.server.requests("/bitnami/index.yaml")[0].headers["user-agent"].clone();
    assert!(agent.to_str().unwrap().ends_with("(kubeapps/2.12.1)"), "{agent:?}");

    // Flags before the command, and a flag of the log that has lost its meaning.
    let flags_first = [
        &["--debug", "--namespace", "team", "-v", "4"],
        &["sync", "bitnami", url.as_str(), "helm"][..],
    ]
    .concat();
    let again = ran(world.asset_syncer(&flags_first, &database.url)).await;
    assert!(again.err.contains("these flags have no effect any more"), "{again:#?}");
    again.ok();

    let delete = [
        "delete",
        "bitnami",
        "--namespace=team",
        "--user-agent-comment=x",
        "--pass-credentials",
    ];
    ran(world.asset_syncer(&delete, &database.url)).await.ok();
    let repos: i64 = sqlx::query_scalar("SELECT count(*) FROM repos")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(repos, 0);

    ran(world.asset_syncer(&sync, &database.url)).await.ok();
    ran(world.asset_syncer(&["--namespace=team", "invalidate-cache"], &database.url))
        .await
        .ok();
    let charts: i64 = sqlx::query_scalar("SELECT count(*) FROM charts")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(charts, 0);

    // What was dropped is written again, although the server says that nothing has changed.
    ran(world.asset_syncer(&sync, &database.url)).await.ok();
    let charts: i64 = sqlx::query_scalar("SELECT count(*) FROM charts")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(charts, 1);

    // A password that is wrong is named, and not shown.
    let mut wrong = world.asset_syncer(&sync, &database.url);
    wrong.env("DB_PASSWORD", "hush-hush");
    let said = ran(wrong).await.failed(1);
    assert!(said.contains("password") && !said.contains("hush-hush"), "{said}");
}
