use serde_json::{Value, json};

use super::{ALL, World, chart, readmes};
use crate::support::archives::{Archive, Chart};

async fn stored(world: &World, chart_files_id: &str) -> Vec<String> {
    let statement = format!(
        "SELECT coalesce(metadata, 'none') FROM portolan_chart_metadata WHERE chart_files_id = '{chart_files_id}'"
    );
    world.texts(&statement).await
}

#[tokio::test]
async fn chart_yaml_is_imported_and_a_faulty_one_is_a_problem_of_its_version_only() {
    let world = World::new().await;
    let dependencies =
        json!([{"name": "db", "version": "1.x", "repository": "https://charts.example", "enabled": false}]);
    let archives = [
        Chart::new("full", "1.0.0")
            .field("kubeVersion", ">=1.25.0-0")
            .field("type", "library")
            .field("dependencies", dependencies.clone())
            .pack(),
        Chart::new("fat", "1.0.0")
            .field("annotations", json!({"notes": "x".repeat(70_000)}))
            .file("README.md", "fat")
            .pack(),
    ];
    world.declare("stable", &world.serve("stable", &archives), "");
    world.once(&[ALL]).await;
    let full: Value = serde_json::from_str(&stored(&world, "stable/full-1.0.0").await[0]).unwrap();
    assert_eq!(
        full,
        json!({
            "apiVersion": "v2", "name": "full", "version": "1.0.0", "description": "A full", "kubeVersion": ">=1.25.0-0",
            "type": "library", "dependencies": dependencies,
        })
    );
    assert_eq!(stored(&world, "stable/fat-1.0.0").await, ["none"]);
    assert_eq!(readmes(&world.files().await)["stable/fat-1.0.0"], "fat");
    let status = world.status("stable").await.unwrap();
    let files = &status["files"];
    assert_eq!((&files["imported"], &files["failed"]), (&json!(2), &json!(0)));
    let problem = files["problems"][0]["reason"].as_str().unwrap();
    assert!(problem.contains("Chart.yaml was not imported"), "{problem}");

    world.once(&[ALL]).await;
    for archive in &archives {
        assert_eq!(world.archive_requests("stable", archive).len(), 1, "{}", archive.name());
    }
}

#[tokio::test]
async fn after_an_upgrade_only_the_newest_version_of_each_chart_is_fetched_once_more() {
    let world = World::new().await;
    let archives = [chart("a", "2.0.0"), chart("a", "1.0.0"), chart("b", "1.0.0")];
    world.declare("stable", &world.serve("stable", &archives), "");
    world.once(&[ALL]).await;
    // As an earlier release left it.
    assert_eq!(world.execute("DELETE FROM portolan_chart_metadata").await, 3);
    for _ in 0..2 {
        world.once(&[ALL]).await;
        let requests = |archive: &Archive| world.archive_requests("stable", archive).len();
        assert_eq!(archives.each_ref().map(requests), [2, 1, 2]);
    }
    assert_eq!(stored(&world, "stable/a-2.0.0").await.len(), 1);
    assert!(stored(&world, "stable/a-1.0.0").await.is_empty());
}
