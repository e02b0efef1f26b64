//! Lists of charts and repositories: order, filters and pages.

use rstest::rstest;
use serde_json::json;

use super::{SOON, Serving, database, declare, fill, names, sync};
use crate::catalog::On;
use crate::support::eventually::eventually;
use crate::support::portolan::{command, run};
use crate::support::world::World;

const CHARTS: [(&str, &[&str]); 5] = [
    ("web", &["2.0.0-rc.1", "1.1.0", "1.0.0"]),
    ("my-web", &["1.0.0"]),
    ("webdav", &["1.0.0"]),
    ("redis", &["1.0.0"]),
    ("tide", &["1.0.0"]),
];

/// Follows a list to its end, with pages of two.
async fn pages(serving: &Serving, path: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut next = String::new();
    loop {
        let list = serving.json(&format!("{path}&limit=2{next}")).await;
        pages.push(names(&list));
        match list["next"].as_str() {
            Some(cursor) => next = format!("&cursor={cursor}"),
            None => return pages,
        }
    }
}

#[rstest]
#[tokio::test]
async fn charts_are_found_by_words_and_listed_in_pages(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    fill(&world, &url, "stable", &CHARTS).await;
    let serving = Serving::of(&world, &url).await;

    assert_eq!(serving.names("/charts?q=WEB").await, ["web", "webdav", "my-web"]);
    let found = serving.json("/charts?q=redsi").await;
    assert_eq!(
        (&found["items"][0]["name"], &found["items"][0]["fuzzy"]),
        (&json!("redis"), &json!(true))
    );
    let web = &serving.json("/charts?q=web&limit=1").await["items"][0];
    assert_eq!(
        *web,
        json!({
            "namespace": "default", "repository": "stable", "name": "web", "version": "1.1.0", "appVersion": "",
            "description": "A chart", "category": "", "keywords": [], "created": "2026-01-01T00:00:00Z", "versions": 3,
            "hasIcon": false, "fuzzy": false,
        })
    );

    let by_name = [vec!["my-web", "redis"], vec!["tide", "web"], vec!["webdav"]];
    for sort in ["relevance", "name", "updated"] {
        assert_eq!(
            pages(&serving, &format!("/charts?sort={sort}")).await,
            by_name,
            "{sort}"
        );
    }
    assert_eq!(
        pages(&serving, "/charts?q=web").await,
        [vec!["web", "webdav"], vec!["my-web"]]
    );
    assert_eq!(serving.names("/charts?repository=other").await, [""; 0]);
    assert_eq!(serving.names("/charts?keyword=nowhere").await, [""; 0]);
}

#[tokio::test]
async fn a_page_continues_at_its_place_when_charts_are_added_before_it() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &CHARTS).await;
    let serving = Serving::of(&world, &url).await;
    let first = serving.json("/charts?sort=name&limit=2").await;
    let cursor = first["next"].as_str().unwrap();
    let added: [(&str, &[&str]); 2] = [("aaa", &["1.0.0"]), ("sea", &["1.0.0"])];
    let more = [&CHARTS[..], &added[..]].concat();
    fill(&world, &url, "stable", &more).await;
    eventually(SOON, "the new charts", async || {
        let names = serving.names("/charts").await;
        if names.len() == 7 {
            Ok(())
        } else {
            Err(format!("{names:?}"))
        }
    })
    .await;
    let rest = serving.names(&format!("/charts?sort=name&cursor={cursor}")).await;
    assert_eq!(rest, ["sea", "tide", "web", "webdav"]);
}

#[tokio::test]
async fn filters_select_charts_of_a_repository_a_category_or_a_keyword() {
    let world = World::new().await;
    let url = world.database_url();
    let entry = "apiVersion: v1\nentries:\n  sea:\n  - name: sea\n    version: 1.0.0\n    keywords: [Water, blue]\n    \
                 annotations: {category: Infrastructure}\n    urls: [sea-1.0.0.tgz]\n";
    declare(&world, "ocean", entry.to_owned());
    fill(&world, &url, "stable", &CHARTS).await;
    let serving = Serving::of(&world, &url).await;
    for filter in ["repository=ocean", "category=infrastructure", "keyword=water", "q=blue"] {
        assert_eq!(serving.names(&format!("/charts?{filter}")).await, ["sea"], "{filter}");
    }
    assert_eq!(serving.names("/charts?namespace=default").await.len(), 6);
    assert_eq!(serving.names("/charts?namespace=other").await, [""; 0]);
}

#[rstest]
#[case::order("/charts?sort=stars", "sort")]
#[case::limit("/charts?limit=201", "limit")]
#[case::foreign_cursor("/charts?cursor=e30", "cursor")]
#[case::unknown("/charts?page=2", "cursor")]
#[case::twice("/charts?q=a&q=b", "q")]
#[case::state("/repositories?ready=maybe", "ready")]
#[tokio::test]
async fn an_invalid_parameter_is_named(#[case] path: &str, #[case] name: &str) {
    let world = World::new().await;
    fill(&world, &world.database_url(), "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &world.database_url()).await;
    let detail = serving.get(path).await.problem(400);
    assert!(detail.contains(name), "{detail}");
}

#[rstest]
#[tokio::test]
async fn repositories_show_their_health(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    declare(&world, "stable", crate::cluster::index(&CHARTS));
    sync(&world, &url).await;
    // It was never synced, so it has a record and no charts.
    let missing = world.server.url("/missing").replace("http://", "http://me:hush@") + "?token=hush";
    world.declare("broken", &missing, "");
    let manifests = world.manifests();
    let arguments = ["run", "--once", "--manifests", &manifests, "--database-url", &url];
    let output = run(command(arguments)).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let serving = Serving::of(&world, &url).await;

    let all = serving.get("/repositories").await;
    assert!(!String::from_utf8_lossy(&all.body).contains("hush"), "{all:?}");
    assert_eq!(names(&all.json()), ["broken", "stable"]);
    let stable = serving.json("/repositories/default/stable").await;
    assert_eq!(
        [
            &stable["ready"],
            &stable["reason"],
            &stable["charts"],
            &stable["versions"],
            &stable["managedBy"]
        ],
        [&json!(true), &json!("Synced"), &json!(5), &json!(7), &json!("portolan")]
    );
    assert!(
        stable["lastSuccessTime"]
            .as_str()
            .is_some_and(|time| time.ends_with('Z')),
        "{stable}"
    );
    assert_eq!(serving.names("/repositories?ready=true").await, ["stable"]);
    assert_eq!(serving.names("/repositories?ready=false").await, ["broken"]);
    assert_eq!(pages(&serving, "/repositories?").await, [vec!["broken", "stable"]]);
}
