//! SQL injection by names, on both databases.

use serde_json::Value;
use sqlx::{Connection, PgConnection};

use super::{SOON, World};
use crate::support::archives::{Chart, index};
use crate::support::chart_server::Page;
use crate::support::eventually::eventually;
use crate::support::portolan::{Portolan, command, run};
use crate::support::postgres;

const HOSTILE: [&str; 6] = [
    "x') OR true OR (info->>'name' = 'y",
    "x' OR 1=1--",
    "'; DROP TABLE charts; --",
    "x\"; DELETE FROM charts; --",
    "$1",
    "100%_\\",
];

fn attack(charts: &[&str]) -> String {
    index(charts.iter().map(|name| {
        let archive = Chart::new(name, "1.0.0")
            .field("description", format!("boat {name}"))
            .pack();
        archive.index_entry(&[])
    }))
}

/// Deletes the hostile charts one by one, and searches for them.
async fn names_are_not_executed(database_url: &str) -> World {
    let world = World::new().await;
    let all: Vec<&str> = HOSTILE.into_iter().chain(["boat", "raft"]).collect();
    world.attack("sql", attack(&all));
    // An invalid name for a repository.
    world.manifest("named", "apiVersion: kubeapps.com/v1alpha1\nkind: AppRepository\nmetadata: {name: \"x' OR 1=1--\"}\nspec: {type: helm}\n");
    let with_database = |arguments: &[&str]| {
        let mut command = command(arguments);
        command.env("PORTOLAN_DATABASE_URL", database_url);
        command
    };
    let manifests = world.directory.join("manifests").display().to_string();
    let start = || {
        let mut command = with_database(&[
            "run",
            "--manifests",
            &manifests,
            "--min-interval=1s",
            "--crontab=* * * * * *",
        ]);
        command.env("PORTOLAN_CHART_FILES", "all").env("PORTOLAN_ICONS", "true");
        Portolan::start(command)
    };
    let portolan = start();
    portolan.ready(SOON).await;
    let counts = async || {
        let output = run(with_database(&["status", "-o", "json"])).await;
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        let of = |name: &str| {
            let found = all.iter().find(|status| status["name"] == name);
            found.map_or(Value::Null, |status| status["charts"].clone())
        };
        Ok::<_, String>((of("sql"), of("honest")))
    };
    let until_counts = async |charts: usize| {
        eventually(SOON, &format!("{charts} charts"), async || {
            let found = counts().await?;
            if found == (charts.into(), 1.into()) {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    };
    until_counts(all.len()).await;
    // Kubeapps' DELETE would delete all charts with the first of these.
    for (gone, _) in HOSTILE.iter().enumerate() {
        world
            .attacker
            .serve("/sql/index.yaml", Page::new(attack(&all[gone + 1..])));
        until_counts(all.len() - gone - 1).await;
    }
    for word in ["' OR 1=1--", "%", "_", "\\", "x') OR true OR (info->>'name' = 'y"] {
        let output = run(with_database(&["search", "-o", "json", "--", word])).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found = String::from_utf8(output.stdout).unwrap();
        assert!(
            !found.contains("harbour") && !found.contains("raft"),
            "{word} finds {found}"
        );
    }
    let output = run(with_database(&["show", "sql/x' OR 1=1--"])).await;
    assert!(!output.status.success());
    let shown = run(with_database(&["show", "honest/harbour"])).await;
    assert!(shown.status.success());
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_named_like_a_statement_affects_no_other_row_in_sqlite() {
    let directory = crate::support::process::ScratchDir::new("sql");
    names_are_not_executed(&format!("sqlite://{}", directory.join("portolan.db").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chart_named_like_a_statement_affects_no_other_row_in_postgres() {
    let database = postgres::database().await;
    names_are_not_executed(&database.url).await;
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let left: Vec<String> = sqlx::query_scalar("SELECT chart_id FROM charts ORDER BY 1")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(left, ["honest/harbour", "sql/boat", "sql/raft"]);
}
