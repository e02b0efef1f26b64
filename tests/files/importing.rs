use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{ALL, SOON, World, chart, readme, readmes};
use crate::support::archives::{Archive, Chart, Entry};
use crate::support::chart_server::Page;
use crate::support::eventually::eventually;
use crate::support::portolan;

#[tokio::test]
async fn files_of_all_versions_are_imported_newest_of_each_chart_first() {
    let world = World::new().await;
    let mut archives = Vec::new();
    for name in ["a", "b", "c"] {
        archives.extend(["3.0.0", "2.0.0", "1.0.0"].map(|version| chart(name, version)));
    }
    let url = world.serve("stable", &archives);
    world.declare("stable", &url, "");
    // One request at a time, so that the order of requests is the order of work.
    world.once(&[ALL, "--host-requests-at-once=1"]).await;

    let files = world.files().await;
    assert_eq!(files.len(), archives.len());
    for archive in &archives {
        let (name, version) = (archive.name(), archive.version());
        let id = format!("stable/{name}-{version}");
        let expected = json!({
            "ID": id, "Readme": readme(name, version), "DefaultValues": "replicas: 1\n", "AdditionalDefaultValues": {}, "Schema": "",
            "Repo": {"namespace": "default", "name": "stable", "url": url, "type": ""}, "Digest": archive.sha256(),
        });
        assert_eq!(files[&id], expected);
    }
    let order = world.requested_paths("stable", &archives);
    let (newest, others) = order.split_at(3);
    assert!(newest.iter().all(|path| path.contains("-3.0.0")), "{order:?}");
    // Then chart by chart, since writing them reads the chart.
    assert!(others.is_sorted_by_key(|path| path.chars().next()), "{order:?}");
}

#[tokio::test]
async fn files_of_any_encoding_are_stored_as_text() {
    let world = World::new().await;
    let archives = [
        Chart::new("full", "1.0.0")
            .file("readme.MD", "read me")
            .file("values.yaml", "a: 1\n")
            .file("values-production.yaml", "a: 2\n")
            .file("values.schema.json", "{}")
            .file("charts/sub/README.md", "of a part")
            .pack(),
        Chart::new("at-the-root", "1.0.0")
            .directory("")
            .file("README.md", "at the root")
            .pack(),
        Chart::new("dotted", "1.0.0")
            .directory("./dotted/")
            .file("README.md", "behind a dot")
            .file("values.yaml", "b: 1\n")
            .pack(),
        Chart::new("nul", "1.0.0").file("README.md", "a\0b").pack(),
        Chart::new("bare", "1.0.0").pack(),
    ];
    world.declare("odd", &world.serve("odd", &archives), "");
    world.once(&[ALL]).await;
    let files = world.files().await;
    let parts = |chart: &str| {
        let info = &files[&format!("odd/{chart}-1.0.0")];
        ["Readme", "DefaultValues", "Schema"].map(|part| info[part].as_str().unwrap())
    };
    assert_eq!(parts("full"), ["read me", "a: 1\n", "{}"]);
    let additional = &files["odd/full-1.0.0"]["AdditionalDefaultValues"];
    assert_eq!(additional, &json!({"values-production": "a: 2\n"}));
    assert_eq!(parts("at-the-root")[0], "at the root");
    assert_eq!(parts("dotted")[..2], ["behind a dot", "b: 1\n"]);
    assert_eq!(parts("nul")[0], "ab");
    // A chart without files is not a failure: its row has the digest.
    assert_eq!(parts("bare"), ["", "", ""]);
    assert_eq!(files["odd/bare-1.0.0"]["Digest"], archives[4].sha256());
    assert_eq!(
        world.status("odd").await.unwrap()["files"],
        json!({"imported": 5, "total": 5, "failed": 0, "problems": []})
    );
}

#[tokio::test]
async fn an_archive_over_the_limit_is_refused_and_others_are_imported() {
    let world = World::new().await;
    let bomb = Chart::new("bomb", "1.0.0")
        .file("README.md", "boom")
        .entry(Entry::zeros("bomb/filler", 300 << 20))
        .pack();
    let fat = Archive::of_bytes("fat", "1.0.0", vec![0x1f; 3 << 20]);
    let archives = [bomb, fat, chart("good", "1.0.0")];
    world.declare("stable", &world.serve("stable", &archives), "");
    world.once(&[ALL, "--archive-max-bytes=2Mi"]).await;
    let files = world.files().await;
    let expected = [
        ("stable/bomb-1.0.0", ""),
        ("stable/fat-1.0.0", ""),
        ("stable/good-1.0.0", "# good 1.0.0\n"),
    ];
    assert_eq!(readmes(&files), BTreeMap::from(expected));
    let reasons = world
        .texts("SELECT message FROM portolan_files ORDER BY chart_files_id")
        .await;
    assert_eq!(reasons.len(), 2);
    assert!(reasons[0].contains(&(20 << 20).to_string()), "{reasons:?}");
    assert!(reasons[1].contains(&(2 << 20).to_string()), "{reasons:?}");
}

/// Without an import, Kubeapps' package pages need an empty row of each version. Kubeapps reads only Postgres.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_without_imported_files_get_empty_rows_on_postgres() {
    let world = World::new().await;
    let mut archives = vec![chart("a", "2.0.0"), chart("a", "1.0.0"), chart("b", "1.0.0")];
    world.declare("stable", &world.serve("stable", &archives), "");
    let database = crate::support::postgres::database().await;
    let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
    let until_rows = async |count: usize| {
        eventually(SOON, "an empty row of each version", async || {
            let rows: Vec<Value> = sqlx::query_scalar("SELECT info FROM files ORDER BY chart_files_id")
                .fetch_all(&pool)
                .await
                .unwrap_or_default();
            (rows.len() == count).then_some(rows)
        })
        .await
    };
    let _portolan = world.run_on(&database.url, &["--chart-files=none"]).await;
    let rows = until_rows(3).await;
    assert_eq!(rows[0]["ID"], "stable/a-1.0.0");
    for row in &rows {
        for member in ["Readme", "DefaultValues", "Schema", "Digest"] {
            assert_eq!(row[member], "", "{row}");
        }
        assert_eq!(row["Repo"]["name"], "stable");
    }
    archives.push(chart("b", "2.0.0"));
    world.serve("stable", &archives);
    world.resync("stable").await;
    until_rows(4).await;
    assert!(world.requested_paths("stable", &archives).is_empty());
}

/// Files of the newest versions only, or of none. Placeholder rows for other versions keep Kubeapps' package pages
/// working.
#[tokio::test]
async fn the_flag_selects_the_versions_whose_files_are_imported() {
    let world = World::new().await;
    let archives = [chart("a", "2.0.0"), chart("a", "1.0.0"), chart("b", "1.0.0")];
    world.declare("stable", &world.serve("stable", &archives), "");

    world.once(&["--chart-files=none"]).await;
    assert!(world.requested_paths("stable", &archives).is_empty());
    assert!(world.files().await.is_empty());

    world.once(&["--chart-files=latest"]).await;
    let mut requests = world.requested_paths("stable", &archives);
    requests.sort();
    assert_eq!(requests, ["a-2.0.0.tgz", "b-1.0.0.tgz"]);
    let files = world.files().await;
    assert_eq!(files.len(), 3);
    let placeholder = &files["stable/a-1.0.0"];
    assert_eq!(
        (&placeholder["Readme"], &placeholder["Digest"]),
        (&json!(""), &json!(""))
    );
    assert_eq!(files["stable/a-2.0.0"]["Readme"], readme("a", "2.0.0"));

    // Skipped files are imported once all are requested; existing ones are not fetched again.
    world.once(&[ALL]).await;
    let mut requests = world.requested_paths("stable", &archives);
    requests.sort();
    assert_eq!(requests, ["a-1.0.0.tgz", "a-2.0.0.tgz", "b-1.0.0.tgz"]);
    assert_eq!(world.files().await["stable/a-1.0.0"]["Readme"], readme("a", "1.0.0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_imported_by_a_killed_process_are_not_fetched_again() {
    let world = World::new().await;
    let archives: Vec<Archive> = (0..40).map(|minor| chart("web", &format!("1.{minor}.0"))).collect();
    world.declare("stable", &world.serve("stable", &archives), "");
    let mut portolan = world
        .run(&[ALL, "--host-requests-per-second=20", "--host-burst=1"])
        .await;
    eventually(SOON, "some files", async || {
        (world.files().await.len() >= 8).then_some(())
    })
    .await;
    portolan.signal("KILL");
    portolan.exit(SOON).await;
    let before: BTreeSet<String> = world.files().await.into_keys().collect();
    assert!(before.len() < archives.len(), "killed too late");

    let _portolan = world.run(&[ALL]).await;
    world
        .until_files("the rest", |files| files.len() == archives.len())
        .await;
    for archive in &archives {
        let requests = world.archive_requests("stable", archive).len();
        let id = format!("stable/web-{}", archive.version());
        let most = if before.contains(&id) { 1 } else { 2 }; // some of the others were in flight
        assert!((1..=most).contains(&requests), "{id}: {requests}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_repository_does_not_block_others() {
    let world = World::new().await;
    let many: Vec<Archive> = (0..60).map(|minor| chart("many", &format!("1.{minor}.0"))).collect();
    let few = [chart("few", "1.0.0")];
    world.declare("many", &world.serve("many", &many), "");
    let _portolan = world
        .run(&[
            ALL,
            "--host-requests-per-second=20",
            "--host-burst=1",
            "--files-workers=1",
        ])
        .await;
    world.until_files("the first of many", |files| !files.is_empty()).await;
    // Even with one worker for files, batches alternate between repositories.
    world.declare("few", &world.serve("few", &few), "");
    let files = world
        .until_files("the few", |files| files.contains_key("few/few-1.0.0"))
        .await;
    assert!(files.len() < many.len(), "{}", files.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_repository_imports_nothing_until_it_is_resumed() {
    let world = World::new().await;
    let (held, other) = ([chart("held", "1.0.0")], [chart("other", "1.0.0")]);
    world.declare("held", &world.serve("held", &held), "");
    world.once(&["--chart-files=none"]).await;
    world.declare("held", &world.server.url("/held"), "  suspend: true\n");
    world.declare("other", &world.serve("other", &other), "");
    world.once(&[ALL]).await;
    assert_eq!(world.archive_requests("other", &other[0]).len(), 1);
    assert!(world.archive_requests("held", &held[0]).is_empty());
    let _portolan = world.run(&[ALL]).await;
    world.declare("held", &world.server.url("/held"), "");
    world
        .until_files("the files of the resumed repository", |files| {
            files.contains_key("held/held-1.0.0")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_import_ends_when_the_repository_is_deleted() {
    let world = World::new().await;
    let many: Vec<Archive> = (0..200).map(|minor| chart("many", &format!("1.{minor}.0"))).collect();
    world.declare("many", &world.serve("many", &many), "");
    // Without any manifest, removals would have to be confirmed.
    world.declare("kept", &world.serve("kept", &[]), "");
    let _portolan = world
        .run(&[ALL, "--host-requests-per-second=20", "--host-burst=1"])
        .await;
    world.until_files("the first of many", |files| !files.is_empty()).await;
    std::fs::remove_file(world.manifest("many")).unwrap();
    eventually(SOON, "the rows to be deleted", async || {
        (world.texts("SELECT chart_id FROM charts").await.is_empty()).then_some(())
    })
    .await;
    // A running batch ends while another repository is imported, and no new one starts.
    for round in ["first", "second"] {
        let few: Vec<Archive> = (0..20).map(|minor| chart("few", &format!("1.{minor}.0"))).collect();
        world.declare(round, &world.serve(round, &few), "");
        world
            .until_files("another's", |files| {
                files.keys().filter(|id| id.starts_with(round)).count() == few.len()
            })
            .await;
        let requests = world.requested_paths("many", &many).len();
        if round == "first" {
            assert!(requests < many.len(), "{requests}");
            continue;
        }
        let late = many
            .iter()
            .flat_map(|archive| world.archive_requests("many", archive))
            .map(|seen| seen.at);
        let second_began = world.server.requests("/second/index.yaml")[0].at;
        assert!(
            late.max().unwrap() < second_began,
            "an archive of a deleted repository was fetched"
        );
    }
    assert!(world.files().await.keys().all(|id| !id.starts_with("many")));
}

/// The status of an object shows the progress of the import.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_an_object_counts_the_files() {
    let world = crate::cluster::World::new().await;
    let good = chart("good", "1.0.0");
    let bad = chart("bad", "1.0.0");
    world
        .server
        .serve("/stable/good-1.0.0.tgz", Page::new(good.bytes.clone()));
    let entries = [&good, &bad].map(|archive| archive.index_entry(&[&archive.file_name()]));
    let url = world.serve("stable", crate::support::archives::index(entries));
    world.declare("stable", &url).await;
    let database = crate::support::postgres::database().await;
    let _portolan: portolan::Portolan = world.portolan(&database.url, &[ALL]).await;
    let files = async || {
        let object = world.repositories.get("stable").await.unwrap();
        let files: Value = serde_json::to_value(object.status.and_then(|status| status.files)).unwrap();
        files
    };
    eventually(SOON, "the stored files to be counted", async || {
        let files = files().await;
        // The other one is listed immediately, and counts as failed after its second failure.
        let counted = files["imported"] == 1 && files["total"] == 2 && files["failed"] == 0;
        if counted && files["problems"][0]["chart"] == "stable/bad-1.0.0" {
            Ok(())
        } else {
            Err(files.to_string())
        }
    })
    .await;
    // Each requested sync retries it; the third failure is reported.
    for request in ["one", "two"] {
        let requests = world.server.requests("/stable/bad-1.0.0.tgz").len();
        world.resync("stable", request).await;
        eventually(SOON, "another try", async || {
            (world.server.requests("/stable/bad-1.0.0.tgz").len() > requests).then_some(())
        })
        .await;
    }
    let reported = eventually(SOON, "the failure to be reported", async || {
        let files = files().await;
        if files["failed"] == 1 {
            Ok(files)
        } else {
            Err(files.to_string())
        }
    })
    .await;
    assert_eq!(reported["problems"][0]["chart"], "stable/bad-1.0.0");
    assert!(
        reported["problems"][0]["reason"].as_str().unwrap().contains("404"),
        "{reported}"
    );
}
