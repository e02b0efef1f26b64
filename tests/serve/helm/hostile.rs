//! Archives of hostile servers: nothing of them reaches a client.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use serde_json::Value;

use super::{PROXY, get, serve};
use crate::serve::sync;
use crate::support::archives::{index, sha256};
use crate::support::chart_server::{Fault, Page};
use crate::support::world::World;

const METADATA: &str = "http://169.254.169.254/latest/web.tgz";
const SECRET: &str = "internal-response";

/// A version of the chart `web`, and the reason of the response to a request for its archive.
struct Case {
    version: &'static str,
    url: String,
    fault: Option<Fault>,
    reason: &'static str,
}

fn answer(status: u16, body: &'static str) -> Option<Fault> {
    let status = StatusCode::from_u16(status).unwrap();
    Some(Fault::Answer(status, Vec::new(), Bytes::from_static(body.as_bytes())))
}

fn cases() -> Vec<Case> {
    let case = |version, url: &str, fault, reason| Case {
        version,
        url: url.to_owned(),
        fault,
        reason,
    };
    vec![
        case("1.0.1", METADATA, None, "AddressRefused"),
        case(
            "1.0.2",
            "redirect.tgz",
            Some(Fault::redirect(METADATA)),
            "AddressRefused",
        ),
        case("1.0.3", "large.tgz", None, "TooLarge"),
        case(
            "1.0.4",
            "trickle.tgz",
            Some(Fault::Drip(1, Duration::from_millis(100))),
            "DownloadStalled",
        ),
        case("1.0.5", "other.tgz", None, "DigestMismatch"),
        case("1.0.6", "login.tgz", answer(401, SECRET), "Unauthorized"),
        case(
            "1.0.7",
            "page.tgz",
            answer(200, "<html>internal-response</html>"),
            "DigestMismatch",
        ),
        case("1.0.8", "missing.tgz", None, "NotFound"),
        case(
            "1.0.9",
            "undigested.tgz",
            answer(200, "<html>internal-response</html>"),
            "NotAnArchive",
        ),
        case("1.0.10", "ftp://files.example/web.tgz", None, "InvalidURL"),
    ]
}

#[tokio::test]
async fn no_byte_of_a_hostile_archive_is_served() {
    let world = World::new().await;
    let url = world.database_url();
    let cases = cases();
    let large = vec![0; 2 << 20];
    world.server.serve("/stable/large.tgz", Page::new(large));
    world
        .server
        .serve("/stable/trickle.tgz", Page::new(vec![b'x'; 1 << 20]));
    world.server.serve("/stable/other.tgz", Page::new(SECRET));
    for case in &cases {
        if let Some(fault) = &case.fault {
            world.server.break_path(&format!("/stable/{}", case.url), fault.clone());
        }
    }
    let entry = |case: &Case| -> Value {
        let digest = if case.url == "undigested.tgz" {
            String::new()
        } else {
            sha256(b"the archive of the index")
        };
        serde_json::json!({"apiVersion": "v2", "name": "web", "version": case.version, "digest": digest, "urls": [case.url]})
    };
    world
        .server
        .serve("/stable/index.yaml", Page::new(index(cases.iter().map(entry))));
    world.declare("stable", &world.server.url("/stable"), "");
    sync(&world, &url).await;
    let flags = [PROXY, "--archive-max-bytes=1Mi", "--stall-timeout=1s"];
    let serving = serve(&world, &url, &flags).await;
    for Case { version, reason, .. } in &cases {
        let path = format!("/helm/default/stable/archives/web/{version}/web-{version}.tgz");
        let answer = get(&serving, &path).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let detail = answer.problem(502);
        assert!(detail.ends_with(reason), "{version}: {detail}");
        for internal in [SECRET, "169.254", world.server.host(), "hush"] {
            assert!(!text.contains(internal), "{version}: {text}");
        }
    }
    assert_eq!(get(&serving, super::INDEX).await.status, 200);
}
