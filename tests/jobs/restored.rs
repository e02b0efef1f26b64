//! An API server that was restored to an earlier state, while the database was not.

use kube::ResourceExt;
use rstest::rstest;

use super::{Site, stays};
use crate::cluster::index;
use crate::support::portolan::{command, run};
use crate::support::postgres::PASSWORD;

#[rstest]
#[case::another_spec(", spec_hash = 'of a later spec'")]
#[case::the_same_spec("")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_of_an_earlier_generation_is_synced_at_once_and_by_its_schedule(#[case] more: &str) {
    let site = Site::new().await;
    let portolan = site.portolan(&[]).await;
    let (world, rows) = (&site.world, &site.postgres.rows);
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    drop(portolan);
    rows.execute(&format!(
        "UPDATE portolan_repositories SET generation = generation + 4 {more}"
    ))
    .await;
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    let _portolan = site.portolan(&[]).await;
    rows.until_charts(&["stable/web 2.0.0"]).await;
    let generation = world.repositories.get("stable").await.unwrap().metadata.generation;
    let query = "SELECT generation FROM portolan_repositories";
    assert_eq!(Some(rows.count(query).await), generation);

    world.serve("stable", index(&[("web", &["3.0.0"])]));
    site.tick("stable", "tick").await;
    rows.until_charts(&["stable/web 3.0.0"]).await;
    let count = site.jobs("stable").await.len();
    assert!(
        stays(async || site.jobs("stable").await.len() == count).await,
        "one Job replaces the later generation"
    );
}

#[rstest]
#[case::by_jobs(&["--executor=job"])]
#[case::in_process(&[])]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_was_deleted_after_the_backup_is_synced_again(#[case] executor: &[&str]) {
    let site = Site::new().await;
    let portolan = site.portolan_with(executor, &[]).await;
    let (world, rows) = (&site.world, &site.postgres.rows);
    site.synced("stable", &[("web", &["1.0.0"])]).await;
    drop(portolan);
    let uid = world.repositories.get("stable").await.unwrap().uid().unwrap();
    let mut delete = command(["delete", "stable"]);
    delete
        .args([
            format!("--namespace={}", world.namespace),
            format!("--uid={uid}"),
            format!("--database-url={}", site.database_url()),
        ])
        .env("DB_PASSWORD", PASSWORD);
    let output = run(delete).await;
    assert!(output.status.success(), "{output:?}");
    rows.assert_empty().await;

    let _portolan = site.portolan_with(executor, &[]).await;
    rows.until_charts(&["stable/web 1.0.0"]).await;
    world.serve("stable", index(&[("web", &["2.0.0"])]));
    world.resync_and_wait("stable", "again").await;
    rows.until_charts(&["stable/web 2.0.0"]).await;
}
