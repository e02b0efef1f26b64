//! The binary called by the name of Kubeapps' syncer, with its arguments and environment.

use std::process::Command;

use sqlx::PgPool;
use url::Url;

use super::{World, execute, link_binary};
use crate::cluster::index;
use crate::support::portolan::command_as;
use crate::support::postgres;

/// Returns Kubeapps' flags for a database. The password is in the environment.
pub fn database_flags(url: &str) -> [String; 3] {
    let url = Url::parse(url).unwrap();
    [
        format!("--database-url={}:{}", url.host_str().unwrap(), url.port().unwrap()),
        format!("--database-user={}", url.username()),
        format!("--database-name={}", url.path().trim_start_matches('/')),
    ]
}

impl World {
    fn asset_syncer(&self, arguments: &[&str], database_url: &str) -> Command {
        let mut command = command_as(&link_binary(&self.directory, "asset-syncer"), arguments);
        command
            .args(database_flags(database_url))
            .env("DB_PASSWORD", postgres::PASSWORD);
        command
    }
}

#[tokio::test]
async fn the_sync_and_cleanup_jobs_of_kubeapps_work() {
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
    // Other variables in the environment of the Job.
    job.env("OCI_CATALOG_URL", "kubeappsapis:50061")
        .env("POD_NAMESPACE", "kubeapps");
    execute(job).await.ok();
    let rows: Vec<(String, String, String)> = sqlx::query_as("SELECT repo_namespace, repo_name, chart_id FROM charts")
        .fetch_all(&pool)
        .await
        .unwrap();
    assert_eq!(rows, [("team".into(), "bitnami".into(), "bitnami/web".into())]);
    let agent = world.server.requests("/bitnami/index.yaml")[0].headers["user-agent"].clone();
    assert!(agent.to_str().unwrap().ends_with("(kubeapps/2.12.1)"), "{agent:?}");

    // Flags before the command, and a deprecated one.
    let flags_first = [
        &["--debug", "--namespace", "team", "-v", "4"],
        &["sync", "bitnami", url.as_str(), "helm"][..],
    ]
    .concat();
    let again = execute(world.asset_syncer(&flags_first, &database.url)).await;
    assert!(again.stderr.contains("ignoring deprecated flags"), "{again:#?}");
    again.ok();

    let delete = [
        "delete",
        "bitnami",
        "--namespace=team",
        "--user-agent-comment=x",
        "--pass-credentials",
    ];
    execute(world.asset_syncer(&delete, &database.url)).await.ok();
    let repos: i64 = sqlx::query_scalar("SELECT count(*) FROM repos")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(repos, 0);

    execute(world.asset_syncer(&sync, &database.url)).await.ok();
    execute(world.asset_syncer(&["--namespace=team", "invalidate-cache"], &database.url))
        .await
        .ok();
    let charts: i64 = sqlx::query_scalar("SELECT count(*) FROM charts")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(charts, 0);

    // Deleted charts are written again although the index is unchanged.
    execute(world.asset_syncer(&sync, &database.url)).await.ok();
    let charts: i64 = sqlx::query_scalar("SELECT count(*) FROM charts")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(charts, 1);

    // A wrong password is an error that does not contain it.
    let mut wrong = world.asset_syncer(&sync, &database.url);
    wrong.env("DB_PASSWORD", "hush-hush");
    let error = execute(wrong).await.failed(1);
    assert!(error.contains("password") && !error.contains("hush-hush"), "{error}");
}
