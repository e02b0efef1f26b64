use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ALL, SOON, World, chart, readme, readmes};
use crate::support::archives::Archive;
use crate::support::chart_server::{Fault, Page};
use crate::support::eventually::eventually;
use crate::support::signal::Signal;

/// Makes failed imports due.
async fn make_retries_due(world: &World) {
    assert_eq!(world.execute("UPDATE portolan_files SET next_try = 1").await, 1);
}

async fn tries(world: &World) -> Vec<String> {
    world
        .texts("SELECT chart_files_id || ' ' || tries FROM portolan_files")
        .await
}

/// Some registries pack archives again, so that no digest of the index is right.
#[tokio::test]
async fn an_archive_with_another_digest_is_imported_with_a_warning_that_names_both() {
    let world = World::new().await;
    let (good, bad) = (chart("good", "1.0.0"), chart("bad", "1.0.0"));
    world.declare("stable", &world.serve("stable", &[good, bad.clone()]), "");
    let other = chart("other", "1.0.0");
    world
        .server
        .serve("/stable/bad-1.0.0.tgz", Page::new(other.bytes.clone()));
    for _ in 0..2 {
        let output = crate::support::portolan::run(world.once_command(&[ALL])).await;
        assert!(output.status.success());
        let log = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let is_first = world.server.requests("/stable/bad-1.0.0.tgz").len() == 1 && log.contains("DigestMismatch");
        assert!(is_first || !log.contains("DigestMismatch"), "{log}");
    }
    // The row has the digest of the index, or the archive would be fetched at each sync.
    let files = world.files().await;
    assert_eq!(files["stable/bad-1.0.0"]["Digest"], bad.sha256());
    assert_eq!(readmes(&files)["stable/bad-1.0.0"], readme("other", "1.0.0"));
    assert_eq!(world.server.requests("/stable/bad-1.0.0.tgz").len(), 1);

    let reported = world.status("stable").await.unwrap()["files"].clone();
    let counts = [&reported["imported"], &reported["total"], &reported["failed"]];
    assert_eq!(counts, [&json!(2), &json!(2), &json!(0)]);
    assert_eq!(reported["problems"][0]["chart"], "stable/bad-1.0.0");
    let reason = reported["problems"][0]["reason"].as_str().unwrap();
    assert!(
        reason.contains(&bad.sha256()) && reason.contains(&other.sha256()),
        "{reason}"
    );
}

#[tokio::test]
async fn any_digest_that_the_index_lists_for_a_version_is_accepted() {
    let world = World::new().await;
    let served = chart("a", "1.0.0");
    let mut first = served.index_entry(&["a-1.0.0.tgz"]);
    first["digest"] = "ab".repeat(32).into();
    let second = served.index_entry(&["a-1.0.0.tgz"]);
    world
        .server
        .serve("/stable/a-1.0.0.tgz", Page::new(served.bytes.clone()));
    world.declare("stable", &world.serve_entries("stable", [first, second]), "");
    world.once(&[ALL]).await;
    assert_eq!(readmes(&world.files().await)["stable/a-1.0.0"], readme("a", "1.0.0"));
    assert_eq!(world.status("stable").await.unwrap()["files"]["problems"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_names_the_first_archive_with_another_digest() {
    let world = World::new().await;
    let archives = [chart("a", "1.0.0"), chart("b", "1.0.0")];
    world.declare("stable", &world.serve("stable", &archives), "");
    for archive in &archives {
        let other = chart("other", archive.name());
        let path = format!("/stable/{}", archive.file_name());
        world.server.serve(&path, Page::new(other.bytes));
    }
    let portolan = world.run(&[ALL]).await;
    let event = portolan.line_with("DigestMismatch", SOON).await;
    assert!(
        archives.iter().any(|archive| event.contains(&archive.sha256())),
        "{event}"
    );
    world
        .until_files("all files", |files| files.len() == archives.len())
        .await;
    world.resync("stable").await;
    let events = || {
        portolan
            .lines()
            .into_iter()
            .filter(|line| line.contains("DigestMismatch"))
    };
    assert_eq!(events().count(), 1);
}

#[tokio::test]
async fn a_missing_archive_is_named_as_such() {
    let world = World::new().await;
    let archives = [chart("web", "1.0.0")];
    world.declare("stable", &world.serve_index("stable", &archives), "");
    world.once(&[ALL]).await;
    let reported = world.status("stable").await.unwrap()["files"]["problems"][0].clone();
    assert_eq!(
        reported["reason"],
        format!(
            "{} returned 404 Not Found; the index names a file that is not there",
            world.server.url("/stable/web-1.0.0.tgz")
        )
    );
}

#[tokio::test]
async fn failed_imports_are_retried_later_and_block_nothing() {
    let world = World::new().await;
    let mut archives = vec![chart("web", "3.0.0"), chart("web", "2.0.0"), chart("web", "1.0.0")];
    world.declare("stable", &world.serve("stable", &archives), "");
    let broken = "/stable/web-3.0.0.tgz";
    world.server.break_path(broken, Fault::status(404));
    world.once(&[ALL]).await;
    assert_eq!(readmes(&world.files().await)["stable/web-3.0.0"], "");
    assert_eq!(
        readmes(&world.files().await)["stable/web-1.0.0"],
        readme("web", "1.0.0")
    );
    assert_eq!(tries(&world).await, ["stable/web-3.0.0 1"]);

    // It is not due: nothing is requested, although the index changed.
    archives.push(chart("another", "1.0.0"));
    world.serve("stable", &archives);
    world.once(&[ALL]).await;
    assert_eq!(world.server.requests(broken).len(), 1);
    assert_eq!(world.files().await.len(), 4);

    // It is due twice; each failure doubles the backoff.
    let wait = async || -> i64 {
        let next = world.texts("SELECT CAST(next_try AS TEXT) FROM portolan_files").await;
        (next[0].parse::<i64>().unwrap() - jiff::Timestamp::now().as_millisecond()) / 1000
    };
    make_retries_due(&world).await;
    world.once(&[ALL]).await;
    assert_eq!(tries(&world).await, ["stable/web-3.0.0 2"]);
    let second = wait().await;
    assert!((90..=120).contains(&second), "{second} s");
    make_retries_due(&world).await;
    world.once(&[ALL]).await;
    let third = wait().await;
    assert!((200..=240).contains(&third), "{third} s");
    assert_eq!(world.server.requests(broken).len(), 3);
    assert_eq!(world.status("stable").await.unwrap()["files"]["failed"], 1);

    world.server.clear_faults(broken);
    make_retries_due(&world).await;
    world.once(&[ALL]).await;
    assert_eq!(
        readmes(&world.files().await)["stable/web-3.0.0"],
        readme("web", "3.0.0")
    );
    assert!(tries(&world).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_requested_sync_retries_failed_imports_immediately() {
    let world = World::new().await;
    let archives = [chart("web", "1.0.0")];
    world.declare("stable", &world.serve("stable", &archives), "");
    let path = "/stable/web-1.0.0.tgz";
    world.server.break_path(path, Fault::html());
    let _portolan = world.run(&[ALL]).await;
    world.until_files("the placeholder", |files| files.len() == 1).await;
    world.server.clear_faults(path);
    world.resync("stable").await;
    world
        .until_files("the files", |files| {
            readmes(files)["stable/web-1.0.0"] == readme("web", "1.0.0")
        })
        .await;
}

/// The failure is recorded after the sync has made all others due.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_that_fails_after_a_requested_sync_is_repeated_immediately() {
    let world = World::new().await;
    world.declare("stable", &world.serve_index("stable", &[chart("web", "1.0.0")]), "");
    let path = "/stable/web-1.0.0.tgz";
    let (reached, released) = (Arc::<Signal>::default(), Arc::<Signal>::default());
    let hold = Fault::Hold(Arc::clone(&reached), Arc::clone(&released));
    world.server.break_times(path, hold, 1);
    let _portolan = world.run(&[ALL]).await;
    timeout(SOON, reached.given()).await.unwrap();
    world.resync("stable").await;
    eventually(SOON, "the request to be handled", async || {
        let details = world.texts("SELECT details FROM portolan_repositories").await;
        let details: Value = serde_json::from_str(&details[0]).unwrap();
        let is_handled = details["handled"]["requestedAt"].is_string();
        is_handled.then_some(()).ok_or(details)
    })
    .await;
    assert!(tries(&world).await.is_empty(), "the first try has not ended");
    released.give();
    // Its backoff would be a minute.
    let soon = Duration::from_secs(40);
    eventually(soon, "the second failure", async || match tries(&world).await {
        tries if tries == ["stable/web-1.0.0 2"] => Ok(()),
        tries => Err(format!("{tries:?}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_pauses_a_host_and_delays_only_the_requested_version() {
    for status in [429, 503] {
        let world = World::new().await;
        let archives: Vec<Archive> = (0..40).map(|minor| chart("web", &format!("1.{minor}.0"))).collect();
        world.declare("stable", &world.serve("stable", &archives), "");
        let busy = "/stable/web-1.39.0.tgz"; // the newest, so among the first
        world.server.break_times(busy, Fault::retry_after(status, "6"), 1);
        let _portolan = world.run(&[ALL]).await;
        let files = world
            .until_files("all files", |files| files.len() == archives.len())
            .await;
        let held_at = world.server.requests(busy)[0].at;
        let during: Vec<String> = archives
            .iter()
            .flat_map(|archive| world.archive_requests("stable", archive))
            .filter(|seen| {
                let after = seen.at.saturating_duration_since(held_at);
                // Requests in flight had started before.
                after > Duration::from_millis(500) && after < Duration::from_millis(5900)
            })
            .map(|seen| seen.path)
            .collect();
        assert!(during.is_empty(), "{during:?}");
        // The others are not counted as failed, and were not requested.
        assert_eq!(tries(&world).await, ["stable/web-1.39.0 1"]);
        let empty: Vec<&String> = files
            .iter()
            .filter(|(_, info)| info["Digest"] == "")
            .map(|(id, _)| id)
            .collect();
        assert_eq!(empty, ["stable/web-1.39.0"]);
        assert_eq!(world.requested_paths("stable", &archives).len(), archives.len());
    }
}

/// A version without an archive stays listed; the reader gets an empty row.
#[tokio::test]
async fn a_version_without_urls_gets_an_empty_row() {
    let world = World::new().await;
    let mut without = chart("without", "1.0.0").index_entry(&[]);
    let mut missing = chart("missing", "1.0.0").index_entry(&[]);
    missing.as_object_mut().unwrap().remove("urls");
    without["digest"] = Value::Null;
    let good = chart("good", "1.0.0");
    world
        .server
        .serve("/stable/good-1.0.0.tgz", Page::new(good.bytes.clone()));
    let url = world.serve_entries("stable", [without, missing, good.index_entry(&["good-1.0.0.tgz"])]);
    world.declare("stable", &url, "");
    world.once(&[ALL]).await;
    let files = world.files().await;
    let empty: Vec<&String> = files
        .iter()
        .filter(|(_, info)| info["Readme"] == "")
        .map(|(id, _)| id)
        .collect();
    assert_eq!(empty, ["stable/missing-1.0.0", "stable/without-1.0.0"]);
    assert_eq!(files["stable/good-1.0.0"]["Readme"], readme("good", "1.0.0"));
    assert_eq!(
        world.chart("stable/without").await.unwrap()["chartVersions"][0]["urls"],
        Value::Null
    );
}

/// A truncated download is neither stored nor verified.
#[tokio::test]
async fn a_truncated_download_is_retried() {
    let world = World::new().await;
    let archives = [chart("cut", "1.0.0"), chart("gone", "1.0.0"), chart("good", "1.0.0")];
    world.declare("stable", &world.serve("stable", &archives), "");
    world
        .server
        .break_path("/stable/cut-1.0.0.tgz", Fault::TruncateAfter(64));
    world.server.break_path("/stable/gone-1.0.0.tgz", Fault::NoResponse);
    world.once(&[ALL]).await;
    let files = world.files().await;
    assert_eq!(readmes(&files)["stable/cut-1.0.0"], "");
    assert_eq!(readmes(&files)["stable/good-1.0.0"], readme("good", "1.0.0"));
    for path in ["/stable/cut-1.0.0.tgz", "/stable/gone-1.0.0.tgz"] {
        world.server.clear_faults(path);
    }
    world.execute("UPDATE portolan_files SET next_try = 1").await;
    world.once(&[ALL]).await;
    assert!(readmes(&world.files().await).values().all(|readme| !readme.is_empty()));
}

/// The database fails during an import; nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_resumes_after_a_database_failure() {
    let world = World::new().await;
    let archives: Vec<Archive> = (0..60).map(|minor| chart("web", &format!("1.{minor}.0"))).collect();
    world.declare("stable", &world.serve("stable", &archives), "");
    let database = crate::support::postgres::database().await;
    let (gate, url) = database.behind_gate().await;
    let portolan = world
        .run_on(&url, &[ALL, "--host-requests-per-second=20", "--host-burst=1"])
        .await;
    let pool = sqlx::PgPool::connect(&database.url).await.unwrap();
    let count = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM files WHERE info ->> 'Digest' <> ''")
            .fetch_one(&pool)
            .await
            .unwrap_or_default()
    };
    eventually(SOON, "the first files", async || (count().await > 0).then_some(())).await;
    gate.close().await;
    portolan.line_with("the database failed", SOON).await;
    let requests = world.requested_paths("stable", &archives).len();
    assert!(requests < archives.len(), "{requests}");
    gate.open().await;
    eventually(2 * SOON, "all files", async || match count().await {
        60 => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
}
