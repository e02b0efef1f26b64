//! All ways in which an index may fail, with the expected messages.

use std::fmt::Write as _;
use std::time::Duration;

use super::super::index;
use crate::support::chart_server::{ChartServer, Fault, Page};
use crate::support::ports::free_port;

/// Size limit of an index in these tests.
const CAP: usize = 64 * 1024;

/// Short limits keep the tests fast. A slow body pauses well below the stall timeout.
pub const LIMITS: [&str; 3] = ["--index-max-bytes=64Ki", "--fetch-timeout=6s", "--stall-timeout=3s"];

/// Ways to break a repository.
pub enum Breakage {
    Fault(Fault),
    Page(Page),
    Url(String),
}

/// Expected behavior after the failure.
#[derive(Clone, Copy, PartialEq)]
pub enum Then {
    /// Retried automatically.
    Retried,
    /// Waits for a change, the schedule or a request.
    Stalled,
}
use Then::{Retried, Stalled};

/// One failure and its expected result.
pub struct Case {
    pub name: &'static str,
    pub breakage: Breakage,
    pub then: Then,
    /// Reason of the condition, which the event's note contains too.
    pub reason: &'static str,
    /// Texts of the condition and the event: the cause and the next step.
    pub texts: &'static [&'static str],
}

fn fault(name: &'static str, fault: Fault, then: Then, reason: &'static str, texts: &'static [&'static str]) -> Case {
    Case {
        name,
        breakage: Breakage::Fault(fault),
        then,
        reason,
        texts,
    }
}

fn page(name: &'static str, body: impl Into<String>, reason: &'static str, texts: &'static [&'static str]) -> Case {
    let page = Page::new(body.into());
    Case {
        name,
        breakage: Breakage::Page(page),
        then: Stalled,
        reason,
        texts,
    }
}

fn url(name: &'static str, url: String, then: Then, reason: &'static str, texts: &'static [&'static str]) -> Case {
    Case {
        name,
        breakage: Breakage::Url(url),
        then,
        reason,
        texts,
    }
}

/// Index of the repositories before the failure and after the repair.
pub fn good_index() -> String {
    index(&[("web", &["1.1.0", "1.0.0"]), ("worker", &["0.1.0"])])
}

/// An index of about this size.
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
            &["401", "set valid credentials"],
        ),
        fault(
            "forbidden",
            Fault::status(403),
            Stalled,
            "Forbidden",
            &["403", "check the credentials and the URL"],
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
            &["429", "retrying later"],
        ),
        fault(
            "error",
            Fault::status(500),
            Retried,
            "ServerError",
            &["500", "server error, retrying"],
        ),
        fault(
            "bad-gateway",
            Fault::status(502),
            Retried,
            "ServerError",
            &["502", "server error, retrying"],
        ),
        fault(
            "silent",
            Fault::Delay(wait(60)),
            Retried,
            "Timeout",
            &["timed out after 6s", "--fetch-timeout"],
        ),
        fault(
            "slow",
            Fault::Drip(8, Duration::from_millis(500)),
            Retried,
            "DownloadStalled",
            &["less than 1 KiB/s for 3s"],
        ),
        fault(
            "stalling",
            Fault::StallAfter(20),
            Retried,
            "DownloadStalled",
            &["less than 1 KiB/s for 3s after 20 bytes"],
        ),
        fault(
            "cut",
            Fault::TruncateAfter(40),
            Retried,
            "ConnectionInterrupted",
            &["truncated or corrupt", "bytes: "],
        ),
        fault(
            "damaged",
            damaged_gzip(),
            Retried,
            "ConnectionInterrupted",
            &["truncated or corrupt", "bytes: "],
        ),
        fault(
            "hanging-up",
            Fault::NoResponse,
            Retried,
            "ConnectionLost",
            &["closed the connection", "without a response"],
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
            &["HTML", "check that the repository URL"],
        ),
    ]
}

fn bodies() -> Vec<Case> {
    let good = good_index();
    let truncated = &good[..good.find("2026-01").unwrap() + 4];
    let conflict = format!("<<<<<<< HEAD\n{good}=======\n{good}>>>>>>> release\n");
    const POSITION: &str = "in index at line";
    let compressed = Page::new(index_of(2 * CAP)).gzip();
    vec![
        page(
            "empty",
            "",
            "NotAnIndex",
            &["the response is empty", "check that the repository URL"],
        ),
        page(
            "no-index",
            "some: yaml\n",
            "NotAnIndex",
            &["it has no entries", "check that the repository URL"],
        ),
        page(
            "words",
            "just some words\n",
            "NotAnIndex",
            &["check that the repository URL"],
        ),
        Case {
            breakage: Breakage::Page(Page::new(&[0x1f, 0x8b, 8, 0, 0xff, 0xfe, 0][..])),
            ..page("binary", "", "InvalidYAML", &["line", POSITION])
        },
        page("truncated", truncated, "InvalidYAML", &["line", POSITION]),
        page("conflict", conflict, "InvalidYAML", &["line", POSITION]),
        page(
            "bad-json",
            "{\"entries\": {\"web\": [}}",
            "InvalidJSON",
            &["line 1", POSITION],
        ),
        page("bomb", bomb(), "TooComplex", &["aliases", "exceeds limit near"]),
        page(
            "large",
            index_of(2 * CAP),
            "TooLarge",
            &["the limit of 65536 bytes", "raise the limit"],
        ),
        Case {
            breakage: Breakage::Page(compressed),
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
            &["handshake", "check that the port serves HTTPS"],
        ),
        url(
            "closed",
            closed,
            Retried,
            "ConnectFailed",
            &["connect to 127.0.0.1", "check that it is up"],
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
            &["URL: relative URL without a base", "fix it in the repository"],
        ),
        url(
            "ftp",
            text("ftp://127.0.0.1/charts"),
            Stalled,
            "InvalidURL",
            &["unsupported scheme ftp", "fix it in the repository"],
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

pub fn cases(plain: &ChartServer, secure: &ChartServer) -> Vec<Case> {
    [answers(), bodies(), urls(plain, secure)]
        .into_iter()
        .flatten()
        .collect()
}
