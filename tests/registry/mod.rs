//! The registry client with a real registry, and syncs with a fake one.

mod auth;
mod failing;
mod filtering;
mod listing;
mod lost;
mod news;
mod parts;
mod pulling;
mod refused;
mod shrinking;
mod site;
mod slow;
mod syncing;
mod tag_memory;

use portolan::http::secret::Secret;
use portolan::http::{Access, Fetcher, Settings};
use portolan::oci::{Limits, OciError, Registry as Client, Tags};

use crate::support::archives::{Archive, Chart};
use crate::support::registry::Registry;

fn chart(version: &str) -> Archive {
    Chart::new("harbour", version).file("values.yaml", "berths: 3\n").pack()
}

/// Returns an anonymous client for the path prefix.
fn client(registry: &Registry, path: &str) -> Client {
    client_with(registry, path, Access::default(), Limits::default())
}

fn client_with(registry: &Registry, path: &str, access: Access, limits: Limits) -> Client {
    let url = registry.url(&format!("/{path}")).parse().unwrap();
    let fetcher = Fetcher::new(Settings::default()).unwrap().with(access).unwrap();
    Client::new(fetcher, &url, limits).unwrap()
}

/// Returns a client with this `Authorization` header.
fn client_as(registry: &Registry, header: String) -> Client {
    client_with(registry, "", access(registry, header), Limits::default())
}

fn access(registry: &Registry, header: String) -> Access {
    Access {
        authorization: Some(Secret::new(header)),
        scope: Some(registry.url("/").parse().unwrap()),
        ..Access::default()
    }
}

async fn tags(client: &Client, repository: &str) -> Result<Vec<String>, OciError> {
    match client.tags(repository, None).await? {
        Tags::Listed { tags, .. } => Ok(tags),
        Tags::NotModified => panic!("unexpected NotModified"),
    }
}
