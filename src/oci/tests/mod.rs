//! The decoders, and the client against registries that answer as they are told.

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
use crate::http::tests::server::{Answer, Server, answer};
use crate::http::{Access, Settings};
use crate::text::hex;

fn sha256(bytes: impl AsRef<[u8]>) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes.as_ref())))
}

/// The registry of a server, without credentials.
fn registry(server: &Server) -> Registry {
    registry_of(server, "", Limits::default())
}

fn registry_of(server: &Server, path: &str, limits: Limits) -> Registry {
    Registry::new(Fetcher::new(Settings::default()).unwrap(), &server.at(path), limits).unwrap()
}

/// The registry of a server, for which the user gave this header.
fn registry_with(server: &Server, header: &str) -> Registry {
    registry_within(server, &server.url, header)
}

/// The registry of a server, with a header that the user gave for `scope`.
fn registry_within(server: &Server, scope: &Url, header: &str) -> Registry {
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

/// Method and target of a request.
fn target(head: &str) -> String {
    let line = head.lines().next().unwrap();
    line.trim_end_matches(" HTTP/1.1").trim_start_matches("GET ").to_owned()
}

/// The targets of all requests that a server has seen.
fn targets(server: &Server) -> Vec<String> {
    server.requests().iter().map(|head| target(head)).collect()
}

/// A header of a request, empty where there is none.
fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .next()
        .unwrap_or_default()
}

fn ok(body: impl AsRef<[u8]>) -> Answer {
    answer("200 OK", "", body.as_ref())
}

fn not_found() -> Answer {
    answer("404 Not Found", "", b"")
}

fn unauthorized(challenge: &str) -> Answer {
    answer("401 Unauthorized", &format!("WWW-Authenticate: {challenge}"), b"{}")
}

fn listed(tags: Tags) -> Vec<String> {
    match tags {
        Tags::Listed { tags, .. } => tags,
        Tags::NotModified => panic!("nothing was known"),
    }
}

#[test]
fn a_registry_may_be_asked_on_any_thread() {
    fn is_send<T: Send>(_: &T) {}
    let url = "oci://r.example.com/p".parse().unwrap();
    let registry = Registry::new(Fetcher::new(Settings::default()).unwrap(), &url, Limits::default()).unwrap();
    is_send(&registry.list());
    is_send(&registry.tags("p/a", None));
    is_send(&registry.manifest("p/a", "1.0.0"));
    is_send(&std::sync::Arc::new(registry));
}

#[test]
fn a_registry_prints_none_of_what_it_was_given() {
    let url: Url = "oci://user:hunter2@r.example.com/p".parse().unwrap();
    let access = Access {
        authorization: Some(Secret::new(basic("user", "hunter2"))),
        scope: Some(url.clone()),
        ..Access::default()
    };
    let fetcher = Fetcher::new(Settings::default()).unwrap().with(access).unwrap();
    let shown = format!("{:?}", Registry::new(fetcher, &url, Limits::default()).unwrap());
    assert!(
        !shown.contains("hunter2") && !shown.contains(&basic("user", "hunter2")[6..]),
        "{shown}"
    );
}
