//! Limits of the stored bytes, as users see them.

use serde_json::Value;

use super::{ALL, SOON, World};
use crate::support::archives::{Archive, Chart};
use crate::support::eventually::eventually;

fn archives() -> Vec<Archive> {
    let chart = |at: usize| {
        let chart = Chart::new(&format!("c{at}"), "1.0.0");
        chart.file("README.md", "readme ".repeat(3000)).pack()
    };
    (0..6).map(chart).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_beyond_the_limit_stops_with_one_event_and_the_repository_stays_ready() {
    let world = World::new().await;
    let archives = archives();
    let url = world.serve("stable", &archives);
    world.declare("stable", &url, "");
    // Enough for all charts, and the files of about three.
    let portolan = world.run(&[ALL, "--max-repository-bytes=80k"]).await;
    let event = portolan.line_with("QuotaExceeded", SOON).await;
    assert!(event.contains("--max-repository-bytes"), "{event}");
    let status = world
        .until_status("stable", "a ready repository", |status| {
            status["ready"] == Value::Bool(true)
        })
        .await;
    let imported = world.files().await.len();
    assert!((1..archives.len()).contains(&imported), "{imported} {status}");

    let before = world.requested_paths("stable", &archives).len();
    world.resync("stable").await;
    eventually(SOON, "the import to try again", async || {
        (world.requested_paths("stable", &archives).len() > before).then_some(())
    })
    .await;
    world
        .until_status("stable", "a ready repository", |status| {
            status["ready"] == Value::Bool(true)
        })
        .await;
    let events = portolan
        .lines()
        .into_iter()
        .filter(|line| line.contains("QuotaExceeded"));
    assert_eq!(events.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_beyond_the_limit_stall_the_repository() {
    let world = World::new().await;
    let url = world.serve("stable", &archives());
    world.declare("stable", &url, "");
    let _portolan = world.run(&["--max-repository-bytes=100"]).await;
    let status = world
        .until_status("stable", "the refusal", |status| status["ready"] == Value::Bool(false))
        .await;
    let text = status.to_string();
    assert!(
        text.contains("QuotaExceeded") && text.contains("--max-repository-bytes"),
        "{text}"
    );
    assert!(world.texts("SELECT chart_id FROM charts").await.is_empty());
}
