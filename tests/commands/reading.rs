//! Output of `status`, `history`, `search` and `show`.

use serde_json::{Value, json};
use sqlx::{Executor, PgPool};

use super::goldens::{Golden, create_kubeapps_database};
use super::{CommandOutput, World, execute};
use crate::support::portolan::command;
use crate::support::postgres;

/// Clears a terminal, sets its title, sets a color with 8-bit controls, and forges a line.
const HOSTILE: &str = "\\e[2J\\e]0;owned\\a\\x9b31m\\x7f\\nforged: all is well\\r";

fn hostile_index() -> String {
    format!(
        "apiVersion: v1
entries:
  web:
  - name: web
    version: 1.0.0
    appVersion: \"7{HOSTILE}\"
    description: \"A web server {HOSTILE}\"
    home: \"https://example.com/{HOSTILE}\"
    keywords: [\"sea{HOSTILE}\"]
    sources: [\"{HOSTILE}\"]
    maintainers: [{{name: \"Keeper{HOSTILE}\", email: \"{HOSTILE}\"}}]
    annotations: {{category: \"{HOSTILE}\"}}
    created: \"2026-01-02T03:04:05Z\"
    urls: [\"web-1.0.0.tgz{HOSTILE}\"]
  \"evil{HOSTILE}\":
  - {{name: \"evil{HOSTILE}\", version: 1.0.0}}
  half:
  - {{name: half, version: \"1.0.0{HOSTILE}\"}}
  - {{name: half, version: 0.9.0}}
"
    )
}

#[tokio::test]
async fn control_characters_of_hostile_charts_never_reach_the_terminal() {
    let world = World::new().await;
    let url = world.serve("stable", hostile_index());
    let broken = world.serve("broken", format!("<html>{}", "\u{1b}[2J\u{9b}31m"));
    let synced = world
        .execute(&["sync", "stable", &url, "helm", "--log-level=trace"])
        .await;
    assert_eq!(synced.code, Some(0), "{synced:#?}");
    let failed = world
        .execute(&["sync", "broken", &broken, "helm", "--log-format=json"])
        .await;
    let lines: Vec<serde_json::Value> = (failed.stderr.lines())
        .map(|line| serde_json::from_str(line).expect("the log is JSON, with the last error"))
        .collect();
    assert_eq!(lines.last().unwrap()["level"], "ERROR", "{lines:#?}");
    let mut all = vec![synced, failed];
    for form in ["table", "json"] {
        for reading in [
            &["status"][..],
            &["status", "stable"],
            &["history", "broken"],
            &["search"],
            &["search", "sea"],
            &["show", "stable/web"],
        ] {
            let shown = world.execute(&[reading, &["-o", form]].concat()).await;
            assert_eq!(shown.code, Some(0), "{shown:#?}");
            all.push(shown);
        }
    }
    let url = format!("{url}\u{1b}[2J");
    all.push(world.execute(&["sync", "bad\u{1b}[2J", &url, "helm"]).await);
    all.push(world.execute(&["show", "stable/\u{1b}[2J"]).await);
    for CommandOutput { stdout, stderr, .. } in all {
        for text in [stdout, stderr] {
            let control = text.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(control, None, "{text:?}");
            assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
        }
    }
    // JSON contains the original values.
    let shown = world.execute(&["show", "stable/web", "-o", "json"]).await.json();
    let description = shown["description"].as_str().unwrap();
    assert!(
        description.contains('\u{9b}') && description.contains('\u{7f}'),
        "{description:?}"
    );
}

#[tokio::test]
async fn commands_print_tables_and_json() {
    let world = World::new().await;
    let examples = crate::support::project("examples").display().to_string();
    world.execute(&["run", "--once", "--manifests", &examples]).await.ok();

    let table = world.execute(&["status"]).await.ok();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[0],
        [
            "NAMESPACE",
            "NAME",
            "READY",
            "REASON",
            "CHARTS",
            "VERSIONS",
            "FILES",
            "LAST",
            "SYNC",
            "NEXT",
            "SYNC"
        ]
    );
    assert_eq!(lines[1][..7], ["default", "harbour", "True", "Synced", "2", "4", "0/4"]);
    let json = world.execute(&["status", "-o", "json"]).await.json();
    let harbour = &json[0];
    assert_eq!(
        (
            &harbour["name"],
            &harbour["ready"],
            &harbour["charts"],
            &harbour["versions"],
            &harbour["url"]
        ),
        (
            &json!("harbour"),
            &json!(true),
            &json!(2),
            &json!(4),
            &json!("file:./harbour")
        )
    );
    for time in ["lastAttemptTime", "lastSuccessTime", "nextSyncTime"] {
        assert!(
            harbour[time].as_str().is_some_and(|time| time.ends_with('Z')),
            "{harbour}"
        );
    }
    assert_eq!(harbour["lastSync"]["charts"], 2);
    let one = world.execute(&["status", "shipping", "-n", "default"]).await.ok();
    assert!(
        one.contains("default/shipping: "),
        "one repository is shown with its message: {one}"
    );
    world
        .execute(&["status", "shipping", "-n", "elsewhere"])
        .await
        .failed(1);

    let found = world.execute(&["search", "tides"]).await.ok();
    assert!(
        found.starts_with("NAMESPACE") && found.contains("harbour/tide-table"),
        "{found}"
    );
    let found = world.execute(&["search", "TIDE", "-o", "json"]).await.json();
    assert_eq!(
        (&found[0]["repository"], &found[0]["chart"]),
        (&json!("harbour"), &json!("tide-table"))
    );
    assert_eq!(
        world.execute(&["search", "nothing of the kind"]).await.ok(),
        "no charts found\n"
    );
    assert_eq!(
        world.execute(&["search", "-n", "elsewhere", "-o", "json"]).await.json(),
        json!([])
    );
    let limited = world.execute(&["search", "--limit=1"]).await;
    assert!(limited.stderr.contains("raise --limit=1"), "{limited:#?}");
    assert_eq!(limited.ok().lines().count(), 2);

    let shown = world.execute(&["show", "harbour/beacon"]).await.ok();
    for line in [
        "Chart:       harbour/beacon",
        "Category:    Infrastructure",
        "Keywords:    web, health",
    ] {
        assert!(shown.contains(line), "{line}\n{shown}");
    }
    let shown = world.execute(&["show", "harbour/beacon", "-o", "json"]).await.json();
    assert_eq!(shown["chartVersions"][0]["version"], "1.2.0");
}

/// Searches a database for a chart as it is spelled, and with a typing error.
async fn typing_errors_are_forgiven(world: &World, database_url: &str) {
    let run = async |arguments: &[&str]| {
        let mut command = command(arguments);
        command.args(["--database-url", database_url]);
        execute(command).await
    };
    let charts: [(&str, &[&str]); 2] = [("wordpress", &["2.0.0-rc.1", "1.0.0"]), ("web", &["1.0.0"])];
    let url = world.serve("stable", crate::cluster::index(&charts));
    run(&["sync", "stable", &url, "helm"]).await.ok();
    for (word, is_similar) in [("wordpress", false), ("wrodpress", true), ("wordpres-", true)] {
        let found = run(&["search", word]).await;
        assert_eq!(found.stderr.contains("similar name: 1"), is_similar, "{found:#?}");
        assert!(found.ok().contains("stable/wordpress  1.0.0"), "{word}");
        let found = run(&["search", word, "-o", "json"]).await.json();
        let expected = json!([{
            "namespace": "default", "repository": "stable", "chart": "wordpress", "version": "1.0.0", "appVersion": "",
            "description": "A chart", "fuzzy": is_similar,
        }]);
        assert_eq!(found, expected, "{word}");
    }
    assert_eq!(run(&["search", "wep"]).await.ok(), "no charts found\n");
}

#[tokio::test]
async fn a_search_forgives_typing_errors_in_sqlite() {
    let world = World::new().await;
    typing_errors_are_forgiven(&world, &world.database_url()).await;
}

#[tokio::test]
async fn a_search_forgives_typing_errors_in_postgres() {
    let database = postgres::database().await;
    typing_errors_are_forgiven(&World::new().await, &database.url).await;
}

#[tokio::test]
async fn the_history_of_a_repository_is_shown_newest_first() {
    let world = World::new().await;
    let url = world.serve("stable", super::build_index(1));
    world.execute(&["sync", "stable", &url, "helm", "-n", "one"]).await.ok();
    world.serve("stable", super::build_index(3));
    world.execute(&["sync", "stable", &url, "helm", "-n", "one"]).await.ok();
    world.serve("stable", "<html>");
    world
        .execute(&["sync", "stable", &url, "helm", "-n", "one"])
        .await
        .failed(1);

    let shown = world.execute(&["history", "stable", "-o", "json"]).await.json();
    let results: Vec<&str> = shown
        .as_array()
        .unwrap()
        .iter()
        .map(|sync| sync["result"].as_str().unwrap())
        .collect();
    assert_eq!(results[1..], ["Succeeded", "Succeeded"], "{shown}");
    assert_ne!(results[0], "Succeeded", "{shown}");
    assert!(!shown[0]["message"].as_str().unwrap().is_empty(), "{shown}");
    assert_eq!((&shown[1]["charts"], &shown[1]["added"]), (&json!(3), &json!(2)));
    assert_eq!((&shown[2]["charts"], &shown[2]["added"]), (&json!(1), &json!(1)));
    assert!(
        shown[0]["startTime"].as_str() > shown[1]["startTime"].as_str(),
        "{shown}"
    );
    assert!(shown[1]["durationSeconds"].is_f64(), "{shown}");

    let table = world.execute(&["history", "stable", "--limit=2"]).await.ok();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 3, "{table}");
    let header = [
        "STARTED", "DURATION", "RESULT", "REASON", "CHARTS", "ADDED", "CHANGED", "REMOVED", "MESSAGE",
    ];
    assert_eq!(lines[0], header);
    assert_eq!(lines[1][4], "-", "a failed sync counts no charts: {table}");
    assert_eq!(lines[2][2..8], ["Succeeded", "Synced", "3", "2", "0", "0"], "{table}");

    let error = world.execute(&["history", "none"]).await.failed(1);
    assert!(error.contains("`portolan status` lists all repositories"), "{error}");
    world.execute(&["history", "stable", "-n", "elsewhere"]).await.failed(1);
    world.serve("stable", super::build_index(1));
    world.execute(&["sync", "stable", &url, "helm", "-n", "two"]).await.ok();
    let error = world.execute(&["history", "stable"]).await.failed(1);
    assert!(error.contains("(one, two)") && error.contains("-n"), "{error}");
    let two = world
        .execute(&["history", "stable", "-n", "two", "-o", "json"])
        .await
        .json();
    assert_eq!(two.as_array().map(Vec::len), Some(1), "{two}");
}

#[tokio::test]
async fn a_chart_in_several_namespaces_requires_a_namespace() {
    let world = World::new().await;
    let url = world.serve("stable", crate::cluster::index(&[("team/web", &["1.0.0"])]));
    for namespace in ["one", "two"] {
        world
            .execute(&["sync", "stable", &url, "helm", "-n", namespace])
            .await
            .ok();
    }
    let error = world.execute(&["show", "stable/team/web"]).await.failed(1);
    assert!(error.contains("(one, two)") && error.contains("-n"), "{error}");
    let shown = world.execute(&["show", "stable/team/web", "-n", "two"]).await.ok();
    assert!(shown.contains("Namespace:   two"), "{shown}");
}

#[tokio::test]
async fn a_database_of_kubeapps_can_be_read_and_is_not_changed() {
    let database = postgres::database().await;
    let pool = PgPool::connect(&database.url).await.unwrap();
    let Golden { rows, .. } = Golden::load();
    create_kubeapps_database(&pool, &rows).await;
    let run = async |arguments: &[&str]| {
        let mut command = command(arguments);
        command.args(["--database-url", &database.url]);
        execute(command).await
    };
    let status = run(&["status", "-o", "json"]).await.json();
    assert_eq!(
        (&status[0]["ready"], &status[0]["charts"]),
        (&Value::Null, &json!(rows.len()))
    );
    assert!(run(&["status"]).await.ok().contains("Unknown"));
    let first = rows[0]["info"]["name"].as_str().unwrap();
    let found = run(&["search", first, "-o", "json"]).await.json();
    assert_eq!(found[0]["chart"], first);
    let id = rows[0]["chart_id"].as_str().unwrap();
    let shown = run(&["show", id, "-o", "json"]).await.json();
    assert_eq!(shown, rows[0]["info"]);
    assert!(run(&["show", id]).await.ok().contains("VERSION"));

    let tables: Vec<String> =
        sqlx::query_scalar("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
            .fetch_all(&pool)
            .await
            .unwrap();
    assert_eq!(tables, ["charts", "files", "repos"], "queries create no tables");

    // An invalid row breaks neither the list nor the search.
    pool.execute(
        "INSERT INTO charts (repo_namespace, repo_name, chart_id, info) SELECT namespace, name, 'x/y', '[]' FROM repos",
    )
    .await
    .unwrap();
    run(&["status"]).await.ok();
    let found = run(&["search"]).await;
    assert!(found.stderr.contains("not readable: 1"), "{found:#?}");
    found.ok();
}
