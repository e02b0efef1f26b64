//! Tests of the decoders, and of the client with scripted registries.

mod auth;
mod decoders;
mod list;
mod pull;
mod tags;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::*;
use crate::http::secret::Secret;
use crate::http::tests::server::{Parts, Server, response};
use crate::http::{Access, Settings};
use crate::text::hex;

fn sha256(bytes: impl AsRef<[u8]>) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes.as_ref())))
}

fn registry(server: &Server) -> Registry {
    registry_of(server, "", Limits::default())
}

fn registry_of(server: &Server, path: &str, limits: Limits) -> Registry {
    Registry::new(Fetcher::new(Settings::default()).unwrap(), &server.at(path), limits).unwrap()
}

/// Returns a client with this `Authorization` header.
fn registry_with(server: &Server, header: &str) -> Registry {
    registry_with_scope(server, &server.url, header)
}

/// Returns a client whose `Authorization` header has another scope.
fn registry_with_scope(server: &Server, scope: &Url, header: &str) -> Registry {
    let access = Access {
        authorization: Some(Secret::new(header.to_owned())),
        scope: Some(scope.clone()),
        ..Access::default()
    };
    let fetcher = Fetcher::new(Settings::default()).unwrap().with(access).unwrap();
    Registry::new(fetcher, &server.url, Limits::default()).unwrap()
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
}

/// Returns the target of a GET request, or method and target of others.
fn target(head: &str) -> String {
    let line = head.lines().next().unwrap();
    line.trim_end_matches(" HTTP/1.1").trim_start_matches("GET ").to_owned()
}

fn targets(server: &Server) -> Vec<String> {
    server.requests().iter().map(|head| target(head)).collect()
}

/// Returns a header of a request, or an empty string.
fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .next()
        .unwrap_or_default()
}

fn ok(body: impl AsRef<[u8]>) -> Parts {
    response("200 OK", "", body.as_ref())
}

fn not_found() -> Parts {
    response("404 Not Found", "", b"")
}

fn unauthorized(challenge: &str) -> Parts {
    response("401 Unauthorized", &format!("WWW-Authenticate: {challenge}"), b"{}")
}

fn listed(tags: Tags) -> Vec<String> {
    match tags {
        Tags::Listed { tags, .. } => tags,
        Tags::NotModified => panic!("unexpected NotModified"),
    }
}

#[test]
fn a_registry_can_be_shared_by_threads() {
    fn is_send<T: Send>(_: &T) {}
    let url = "oci://r.example.com/p".parse().unwrap();
    let registry = Registry::new(Fetcher::new(Settings::default()).unwrap(), &url, Limits::default()).unwrap();
    is_send(&registry.list());
    is_send(&registry.tags("p/a", None));
    is_send(&registry.manifest("p/a", "1.0.0"));
    is_send(&std::sync::Arc::new(registry));
}

#[test]
fn credentials_are_not_printed() {
    let url: Url = "oci://user:hunter2@r.example.com/p".parse().unwrap();
    let access = Access {
        authorization: Some(Secret::new(basic("user", "hunter2"))),
        scope: Some(url.clone()),
        ..Access::default()
    };
    let fetcher = Fetcher::new(Settings::default()).unwrap().with(access).unwrap();
    let printed = format!("{:?}", Registry::new(fetcher, &url, Limits::default()).unwrap());
    assert!(
        !printed.contains("hunter2") && !printed.contains(&basic("user", "hunter2")[6..]),
        "{printed}"
    );
}
