//! Values as large as an archive may have them: each answer comes in time, and pages show a part of them.

use std::time::Duration;

use rstest::rstest;
use tokio::time::timeout;

use super::charts::{assert_has, page};
use super::{Serving, database, fill_archives};
use crate::catalog::On;
use crate::support::archives::{Archive, Chart};
use crate::support::world::World;

/// The server gives up after it.
const DEADLINE: Duration = Duration::from_secs(10);
const MAX_PAGE_BYTES: usize = 2 * 1024 * 1024;
/// The limits of a file in an archive, of a file whose keys are read, and of the lines of a diff.
const MAX_FILE_BYTES: usize = 5 * 1024 * 1024;
const MAX_READABLE_BYTES: usize = 1024 * 1024;
const MAX_DIFF_LINES: usize = 20_000;
const MANY_LINES: usize = 1_000_000;

fn chart(name: &str, version: &str, values: &str) -> Archive {
    Chart::new(name, version).file("values.yaml", values).pack()
}

/// Returns a page after asserting its time and its size.
async fn small_page(serving: &Serving, path: &str) -> String {
    let answer = timeout(DEADLINE, page(serving, path)).await.expect(path);
    let bytes = answer.body.len();
    assert_eq!(answer.status, 200, "{path}");
    assert!(bytes <= MAX_PAGE_BYTES, "{path}: {bytes} bytes");
    answer.text()
}

/// Asserts that the file is served as it is.
async fn assert_served(serving: &Serving, path: &str, text: &str) {
    let answer = timeout(DEADLINE, serving.get(path)).await.expect(path);
    assert_eq!((answer.status, answer.body.len()), (200, text.len()), "{path}");
    assert!(answer.body == text.as_bytes(), "{path} has another text");
}

#[rstest]
#[tokio::test]
async fn a_million_lines_of_values_are_shown_as_a_part_with_a_link_to_all(#[values(On::Sqlite, On::Postgres)] on: On) {
    let world = World::new().await;
    let url = database(&world, on).await;
    let keys: String = (1_000..7_000).map(|number| format!("k{number}: 1\n")).collect();
    let readable = format!("{keys}{}", "\n".repeat(MANY_LINES - 6_000));
    assert!(readable.len() <= MAX_READABLE_BYTES, "{}", readable.len());
    let unreadable = "- 1\n".repeat(MANY_LINES);
    assert!(unreadable.len() <= MAX_FILE_BYTES, "{}", unreadable.len());
    let archives = [
        chart("readable", "1.0.0", &readable),
        chart("unreadable", "1.0.0", &unreadable),
    ];
    fill_archives(&world, &url, "stable", &archives).await;
    let serving = Serving::of(&world, &url).await;

    let pages = "/charts/default/stable/readable/1.0.0?tab=values";
    let keys = small_page(&serving, pages).await;
    assert_has(
        &keys,
        &[
            "<span role=\"status\">5,000 keys</span>",
            "The file has more keys than are listed here.",
            ">k1000</code>",
            ">k5999</code>",
        ],
    );
    assert!(!keys.contains("k6000"));
    let found = small_page(&serving, &format!("{pages}&q=k1234")).await;
    assert_has(&found, &["<span role=\"status\">1 key with all words</span>"]);
    let file = small_page(&serving, &format!("{pages}&view=file")).await;
    assert_has(
        &file,
        &["The file is long, and is cut here.", "id=\"L1\"", "id=\"L10000\""],
    );
    assert!(!file.contains("id=\"L10001\""));

    let file = small_page(&serving, "/charts/default/stable/unreadable/1.0.0?tab=values").await;
    assert_has(
        &file,
        &[
            "its keys can't be read: it has more than 1048576 bytes",
            "The file is long, and is cut here.",
            "id=\"L10000\"",
            "/versions/1.0.0/values\">The whole file</a>",
        ],
    );
    assert!(!file.contains("id=\"L10001\""));
    for (name, text) in [("readable", &readable), ("unreadable", &unreadable)] {
        let path = format!("/charts/default/stable/{name}/versions/1.0.0/values");
        assert_served(&serving, &path, text).await;
    }
}

#[rstest]
#[tokio::test]
async fn large_files_are_compared_by_links_to_both(#[values(On::Sqlite, On::Postgres)] on: On) {
    const LINE: usize = 64;
    let world = World::new().await;
    let url = database(&world, on).await;
    let text = |version: &str| -> String {
        let lines = 0..MAX_FILE_BYTES / LINE;
        lines.map(|number| format!("{version}{number:>58}\n")).collect()
    };
    let [old, new] = ["1.0.0", "1.1.0"].map(text);
    assert_eq!((old.len(), new.len()), (MAX_FILE_BYTES, MAX_FILE_BYTES));
    let archives = [chart("web", "1.0.0", &old), chart("web", "1.1.0", &new)];
    fill_archives(&world, &url, "stable", &archives).await;
    let serving = Serving::of(&world, &url).await;

    let query = "diff?from=1.0.0&to=1.1.0";
    let diff = small_page(&serving, &format!("/charts/default/stable/web/{query}")).await;
    assert_has(
        &diff,
        &[
            "too long for a diff",
            "/versions/1.0.0/values\">1.0.0</a>",
            "/versions/1.1.0/values\">1.1.0</a>",
        ],
    );
    for media_type in ["application/json", "text/x-diff"] {
        let path = format!("/charts/default/stable/web/{query}");
        let answer = timeout(DEADLINE, serving.accept(media_type, &path)).await.unwrap();
        let detail = answer.problem(422);
        assert!(detail.contains("too long for a diff"), "{detail}");
    }
    for (version, text) in [("1.0.0", &old), ("1.1.0", &new)] {
        let path = format!("/charts/default/stable/web/versions/{version}/values");
        assert_served(&serving, &path, text).await;
    }
}

#[tokio::test]
async fn files_without_a_common_line_are_compared_in_part() {
    let world = World::new().await;
    let url = world.database_url();
    let text = |name: &str| -> String {
        let lines = 0..MAX_DIFF_LINES;
        lines.map(|number| format!("{name}{number}: 1\n")).collect()
    };
    let archives = [chart("web", "1.0.0", &text("old")), chart("web", "1.1.0", &text("new"))];
    fill_archives(&world, &url, "stable", &archives).await;
    let serving = Serving::of(&world, &url).await;
    let diff = small_page(&serving, "/charts/default/stable/web/diff?from=1.0.0&to=1.1.0").await;
    assert_has(
        &diff,
        &[
            "5,000 keys added, 5,000 keys removed",
            "The difference is long, and is cut here.",
            "/versions/1.0.0/values\">1.0.0</a>",
            "/versions/1.1.0/values\">1.1.0</a>",
        ],
    );
}
