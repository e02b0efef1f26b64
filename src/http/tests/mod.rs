//! Tests of the client with servers on loopback.

mod addresses;
mod bodies;
mod connections;
mod credentials;
mod encodings;
mod files;
mod proxies;
pub(crate) mod server;
mod tls;
mod transport;

use std::io::Read as _;

use server::{Part, Server, response};

use super::*;

fn fetcher() -> Fetcher {
    Fetcher::new(Settings::default()).unwrap()
}

fn limits() -> FetchLimits {
    FetchLimits::default()
}

async fn get(url: &Url) -> Result<Fetched, FetchError> {
    fetcher().get(url, None, &limits()).await
}

async fn body(url: &Url) -> Body {
    match get(url).await.unwrap() {
        Fetched::Body(body) => body,
        Fetched::NotModified => panic!("no validators were sent"),
    }
}

fn bytes(body: Body) -> Vec<u8> {
    let mut bytes = Vec::new();
    body.into_reader().read_to_end(&mut bytes).unwrap();
    bytes
}

fn redirect(to: &str) -> server::Parts {
    response("302 Found", &format!("Location: {to}"), b"")
}
