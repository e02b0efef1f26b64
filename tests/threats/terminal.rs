//! Charts with terminal escape sequences.

use portolan::text::is_invisible;
use serde_json::json;

use super::{World, repository};
use crate::support::archives::{Chart, index};
use crate::support::chart_server::Fault;

/// Clears the screen, sets the title, forges a log line, uses control characters beyond ASCII, and reverses and hides text.
const CODES: &str =
    "\u{202e}\u{2066}\u{200b}\u{1b}[2J\u{1b}]0;owned\u{7}\r\n2026-01-01T00:00:00Z  INFO forged\u{9b}31m\u{7f}\u{8}";

fn assert_harmless(what: &str, text: &str) {
    for line in text.lines() {
        let is_harmful = |c: char| c.is_control() || is_invisible(c);
        assert!(!line.contains(is_harmful), "{what}: {line:?}");
        assert!(
            !line.trim_start().starts_with("2026-01-01T00:00:00Z  INFO forged"),
            "{what}: {line:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_text_of_a_chart_controls_the_terminal() {
    let world = World::new().await;
    let coded = |text: &str| format!("{text}{CODES}");
    let chart = Chart::new("boat", "1.0.0")
        .field("description", coded("a boat"))
        .field("home", coded("https://example.com/"))
        .field("appVersion", coded("1"))
        .field("keywords", json!([coded("boat")]))
        .field("sources", json!([coded("https://example.com/")]))
        .field(
            "maintainers",
            json!([{"name": coded("me"), "email": coded("me@example.com"), "url": coded("u")}]),
        )
        .field("annotations", json!({"category": coded("Boats")}))
        .field("icon", coded("https://example.com/icon"))
        .pack();
    let named = Chart::new(&coded("named"), "1.0.0").pack();
    let versioned = Chart::new("versioned", &coded("1.0.0")).pack();
    let entries = [
        chart.index_entry(&[&coded("boat.tgz")]),
        named.index_entry(&["n.tgz"]),
        versioned.index_entry(&["v.tgz"]),
    ];
    world.attack("codes", index(entries));
    // A YAML error, a redirect and a filter whose messages quote their input.
    world.attack("broken", format!("apiVersion: v1\nentries: *{CODES}\n"));
    world.attack("redirected", "");
    world
        .attacker
        .break_path("/redirected/index.yaml", Fault::redirect("ftp://example.com/%1b[2J"));
    world.declare(
        "filtered",
        &world.attacker.url("/codes"),
        &format!("  filterRule:\n    jq: {}\n", quoted(&coded(".name =="))),
    );
    let url = format!("http://127.0.0.1:1/{CODES}");
    let addressed = repository("default", "addressed", "helm", "URL", "").replace("\"URL\"", &quoted(&url));
    world.manifest("addressed", &addressed);

    let mut text = world.run(&["--chart-files=all", "--log-level=trace"]).await;
    world.until_ready("codes").await;
    for name in ["broken", "redirected", "filtered", "addressed"] {
        world
            .until_status(name, "to fail", |status| status["ready"] == false)
            .await;
    }
    world.until_files_failed("codes").await;
    world.until_honest_files_are_served().await;

    for arguments in [
        &["status"][..],
        &["status", "codes"],
        &["status", "-o", "json"],
        &["history", "broken"],
        &["history", "broken", "-o", "json"],
        &["search", "boat"],
        &["search", "boat", "-o", "json"],
        &["search", "-o", "json"],
        &["search"],
        &["show", "codes/boat"],
        &["show", "codes/boat", "-o", "json"],
    ] {
        let shown = world.output(arguments).await;
        assert!(!shown.is_empty());
        assert_harmless(&format!("{arguments:?}"), &shown);
    }
    text.signal("TERM");
    text.exit(super::SOON).await;
    for line in text.lines() {
        assert_harmless("the log", &line);
    }
    let json = world
        .run(&["--chart-files=all", "--log-level=trace", "--log-format=json"])
        .await;
    world.until_honest_files_are_served().await;
    json.line_with("codes", super::SOON).await;
    for line in json.lines() {
        assert_harmless("the log in JSON", &line);
        serde_json::from_str::<serde_json::Value>(&line).expect("the log is JSON");
    }
}

/// Quotes a text for YAML, which allows no raw control characters.
fn quoted(text: &str) -> String {
    let escaped = text.chars().map(|c| match c {
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}
