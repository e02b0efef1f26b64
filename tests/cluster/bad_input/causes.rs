//! Every way in which an index may not come, or may be none: a table of them.

use std::fmt::Write as _;

use futures::future::join_all;

use super::*;
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::ports::free_port;

/// Bytes that an index may have here.
const CAP: usize = 64 * 1024;

/// Short limits, so that running into them is quick. The pause between two pieces of a slow body stays well below the stall.
const LIMITS: [&str; 3] = ["--index-max-bytes=64Ki", "--fetch-timeout=6s", "--stall-timeout=3s"];

/// How a repository is broken.
enum How {
    /// Its server does this.
    Fault(Fault),
    /// Its index is this.
    Page(Page),
    /// Its URL is this.
    Url(String),
}

#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// It is tried again by itself.
    Retried,
    /// It waits for a change, the schedule or a request.
    Stalled,
}
use Then::{Retried, Stalled};

struct Case {
    name: &'static str,
    how: How,
    then: Then,
    reason: &'static str,
    /// What the condition and the event say: the cause, and what to do.
    says: &'static [&'static str],
}

fn fault(name: &'static str, fault: Fault, then: Then, reason: &'static str, says: &'static [&'static str]) -> Case {
    Case {
        name,
        how: How::Fault(fault),
        then,
        reason,
        says,
    }
}

fn page(name: &'static str, body: impl Into<String>, reason: &'static str, says: &'static [&'static str]) -> Case {
    let page = Page::new(body.into());
    Case {
        name,
        how: How::Page(page),
        then: Stalled,
        reason,
        says,
    }
}

fn url(name: &'static str, url: String, then: Then, reason: &'static str, says: &'static [&'static str]) -> Case {
    Case {
        name,
        how: How::Url(url),
        then,
        reason,
        says,
    }
}

fn good_index() -> String {
    index(&[("web", &["1.1.0", "1.0.0"]), ("worker", &["0.1.0"])])
}

/// An index of about so many bytes.
fn index_of(bytes: usize) -> String {
    let mut text = good_index();
    while text.len() < bytes {
        text.push_str("# to be sure\n");
    }
    text
}

fn bomb() -> String {
    let mut text = String::from("apiVersion: v1\na0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for level in 1..20 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        let _ = writeln!(text, "a{level}: &a{level} [{aliases}]"); // a string takes all that is written
    }
    text + "entries:\n  web:\n  - name: web\n    version: 1.0.0\n    keywords: *a19\n"
}

fn damaged_gzip() -> Fault {
    let headers = vec![(http::header::CONTENT_ENCODING, "gzip".to_owned())];
    Fault::Answer(http::StatusCode::OK, headers, "this is not gzip".into())
}

fn answers() -> Vec<Case> {
    let wait = |seconds| Duration::from_secs(seconds);
    vec![
        fault(
            "not-found",
            Fault::status(404),
            Stalled,
            "NotFound",
            &["404", "check the repository's URL"],
        ),
        fault(
            "gone",
            Fault::status(410),
            Stalled,
            "NotFound",
            &["410", "check the repository's URL"],
        ),
        fault(
            "unauthorized",
            Fault::status(401),
            Stalled,
            "Unauthorized",
            &["401", "wants credentials"],
        ),
        fault(
            "forbidden",
            Fault::status(403),
            Stalled,
            "Forbidden",
            &["403", "credentials", "check them"],
        ),
        fault(
            "teapot",
            Fault::status(418),
            Stalled,
            "UnexpectedStatus",
            &["418", "check the repository's URL"],
        ),
        fault(
            "limited",
            Fault::status(429),
            Retried,
            "TooManyRequests",
            &["429", "it is tried again later"],
        ),
        fault(
            "error",
            Fault::status(500),
            Retried,
            "ServerError",
            &["500", "it is tried again"],
        ),
        fault(
            "bad-gateway",
            Fault::status(502),
            Retried,
            "ServerError",
            &["502", "it is tried again"],
        ),
        fault(
            "silent",
            Fault::Delay(wait(60)),
            Retried,
            "Timeout",
            &["not complete after 6 s", "time limit"],
        ),
        fault(
            "slow",
            Fault::Drip(8, Duration::from_millis(500)),
            Retried,
            "Timeout",
            &["not complete after 6 s"],
        ),
        fault(
            "stalling",
            Fault::StallAfter(20),
            Retried,
            "DownloadStalled",
            &["nothing came for 3 s after 20 bytes"],
        ),
        fault(
            "cut",
            Fault::CutAfter(40),
            Retried,
            "BodyCutShort",
            &["cut short", "it is tried again"],
        ),
        fault(
            "damaged",
            damaged_gzip(),
            Retried,
            "BodyCutShort",
            &["damaged", "it is tried again"],
        ),
        fault(
            "hanging-up",
            Fault::NoAnswer,
            Retried,
            "ConnectionLost",
            &["without an answer", "it is tried again"],
        ),
        fault(
            "endless",
            Fault::EndlessGzip,
            Stalled,
            "TooLarge",
            &["the limit of 65536 bytes", "raise the limit"],
        ),
        fault(
            "circle",
            Fault::redirect("/circle/index.yaml"),
            Stalled,
            "TooManyRedirects",
            &["use the final URL"],
        ),
        fault(
            "astray",
            Fault::redirect("ftp://127.0.0.1/"),
            Stalled,
            "InvalidRedirect",
            &["use the final URL"],
        ),
        fault(
            "html",
            Fault::html(),
            Stalled,
            "NotAnIndex",
            &["HTML", "check that the repository's URL"],
        ),
    ]
}

fn bodies() -> Vec<Case> {
    let good = good_index();
    let truncated = &good[..good.find("2026-01").unwrap() + 4];
    let conflict = format!("<<<<<<< HEAD\n{good}=======\n{good}>>>>>>> release\n");
    const REPAIR: &str = "its publisher has to repair it";
    let compressed = Page::new(index_of(2 * CAP)).gzip();
    vec![
        page(
            "empty",
            "",
            "NotAnIndex",
            &["the answer is empty", "check that the repository's URL"],
        ),
        page(
            "no-index",
            "some: yaml\n",
            "NotAnIndex",
            &["it has no entries", "check that the repository's URL"],
        ),
        page(
            "words",
            "just some words\n",
            "NotAnIndex",
            &["check that the repository's URL"],
        ),
        Case {
            how: How::Page(Page::new(&[0x1f, 0x8b, 8, 0, 0xff, 0xfe, 0][..])),
            ..page("binary", "", "InvalidYAML", &["line", REPAIR])
        },
        page("truncated", truncated, "InvalidYAML", &["line", REPAIR]),
        page("conflict", conflict, "InvalidYAML", &["line", REPAIR]),
        page(
            "bad-json",
            "{\"entries\": {\"web\": [}}",
            "InvalidJSON",
            &["line 1", REPAIR],
        ),
        page("bomb", bomb(), "TooComplex", &["aliases", "its publisher has to"]),
        page(
            "large",
            index_of(2 * CAP),
            "TooLarge",
            &["the limit of 65536 bytes", "raise the limit"],
        ),
        Case {
            how: How::Page(compressed),
            ..page(
                "large-unpacked",
                "",
                "TooLarge",
                &["the limit of 65536 bytes", "raise the limit"],
            )
        },
    ]
}

fn urls(plain: &ChartServer, secure: &ChartServer) -> Vec<Case> {
    let plain_as_secure = plain.url("/").replace("http:", "https:");
    let closed = format!("http://127.0.0.1:{}/charts", free_port());
    let text = str::to_owned;
    vec![
        url(
            "untrusted",
            secure.url("/charts"),
            Stalled,
            "CertificateNotTrusted",
            &["certificate", "authority"],
        ),
        url(
            "no-tls",
            plain_as_secure,
            Retried,
            "TLSFailure",
            &["handshake", "check that the port speaks HTTPS"],
        ),
        url(
            "closed",
            closed,
            Retried,
            "ConnectFailed",
            &["could not be reached", "check that it is up"],
        ),
        url(
            "unknown",
            text("http://charts.invalid/"),
            Retried,
            "DNSFailure",
            &["charts.invalid", "check the URL"],
        ),
        url(
            "no-url",
            text("where the charts are"),
            Stalled,
            "InvalidURL",
            &["can't be used", "correct it"],
        ),
        url(
            "ftp",
            text("ftp://127.0.0.1/charts"),
            Stalled,
            "InvalidURL",
            &["its scheme is ftp", "correct it"],
        ),
        url(
            "file",
            text("file:///etc"),
            Stalled,
            "FileNotAllowed",
            &["serve the repository over http"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_input_is_told_by_its_cause_and_leaves_the_charts_and_the_other_repositories_as_they_were() {
    let harbour = Harbour::new(&LIMITS).await;
    let (world, secure) = (&harbour.world, ChartServer::start_tls().await);
    let cases: Vec<Case> = [answers(), bodies(), urls(&world.server, &secure)]
        .into_iter()
        .flatten()
        .collect();

    // All is well at first.
    let names = || cases.iter().map(|case| case.name).chain(["bystander"]);
    join_all(names().map(async |name| world.declare(name, &world.serve(name, good_index())).await)).await;
    join_all(names().map(|name| world.until_ready(name))).await;
    let before = join_all(names().map(|name| harbour.rows(name))).await;
    assert!(before.iter().all(|rows| rows.len() == 2));

    // Then all but one break.
    let requests = join_all(cases.iter().map(|case| break_it(&harbour, case))).await;
    world.serve("bystander", index(&[("web", &["2.0.0"])]));
    harbour.resync("bystander", "now").await;
    join_all(cases.iter().map(|case| check_report(&harbour, case))).await;

    // The others are served meanwhile.
    let object = harbour.resync_and_wait("bystander", "again").await;
    assert_eq!(condition(&object, "Ready"), Some(("True", "Synced")));
    assert_eq!(harbour.charts("bystander").await, ["web"]);
    for (case, before) in cases.iter().zip(&before) {
        assert_eq!(&harbour.rows(case.name).await, before, "{}", case.name);
    }

    // What may pass passes by itself, the rest when somebody asks.
    join_all(cases.iter().map(|case| mend(&harbour, case))).await;
    join_all(cases.iter().map(|case| world.until_ready(case.name))).await;
    for ((case, before), requests) in cases.iter().zip(&before).zip(requests) {
        assert_eq!(&harbour.rows(case.name).await, before, "{}", case.name);
        if case.then == Stalled && case.name != "circle" && !matches!(case.how, How::Url(_)) {
            let asked = harbour.requests(case.name) - requests;
            assert_eq!(
                asked, 2,
                "{} is asked once when it breaks and once when it is mended",
                case.name
            );
        }
    }
    let panics: Vec<String> = harbour
        .portolan
        .lines()
        .into_iter()
        .filter(|line| line.contains("panic"))
        .collect();
    assert!(panics.is_empty(), "{panics:?}");
}

/// Breaks a repository; gives how often its index had been asked for by then.
async fn break_it(harbour: &Harbour, case: &Case) -> usize {
    let (server, path) = (&harbour.world.server, index_path(case.name));
    let requests = harbour.requests(case.name);
    match &case.how {
        How::Fault(fault) => server.break_path(&path, fault.clone()),
        How::Page(page) => server.serve(&path, page.clone()),
        How::Url(url) => {
            harbour.world.edit(case.name, json!({ "spec": { "url": url } })).await;
            return requests;
        }
    }
    harbour.resync(case.name, "broken").await;
    requests
}

async fn check_report(harbour: &Harbour, case: &Case) {
    let Case {
        name,
        then,
        reason,
        says,
        ..
    } = case;
    let object = harbour.world.until_ready_is(name, "False", reason).await;
    let wanted = match then {
        Retried => (Some(("True", "Retrying")), None),
        Stalled => (None, Some(("True", *reason))),
    };
    assert_eq!(
        (condition(&object, "Reconciling"), condition(&object, "Stalled")),
        wanted,
        "{name}"
    );
    let message = message(&object);
    for text in [says, &["are still served"][..]].concat() {
        assert!(message.contains(text), "{name} does not say {text:?}: {message}");
    }
    let event = match then {
        Retried => "SyncFailed",
        Stalled => "SyncStalled",
    };
    harbour
        .event_that_says(name, event, &[&[*reason], *says].concat())
        .await;
}

async fn mend(harbour: &Harbour, case: &Case) {
    let path = index_path(case.name);
    harbour.world.server.repair(&path);
    let url = harbour.world.serve(case.name, good_index());
    match (&case.how, case.then) {
        (How::Url(_), _) => drop(harbour.world.edit(case.name, json!({ "spec": { "url": url } })).await),
        (_, Stalled) => harbour.resync(case.name, "mended").await,
        (_, Retried) => {}
    }
}
