//! The client of registries against a real one, and syncs against one that is made up.

mod auth;
mod failing;
mod listing;
mod lost;
mod parts;
mod pulling;
mod refused;
mod shrinking;
mod site;
mod syncing;

use portolan::http::secret::Secret;
use portolan::http::{Access, Fetcher, Settings};
use portolan::oci::{Limits, OciError, Registry as Client, Tags};

use crate::support::archives::{Archive, Chart};
use crate::support::registry::Registry;

fn chart(version: &str) -> Archive {
    Chart::new("harbour", version).file("values.yaml", "berths: 3\n").pack()
}

/// A client for what stands below `path`, without credentials.
fn client(registry: &Registry, path: &str) -> Client {
    client_with(registry, path, Access::default(), Limits::default())
}

fn client_with(registry: &Registry, path: &str, access: Access, limits: Limits) -> Client {
    let url = registry.url(&format!("/{path}")).parse().unwrap();
    let fetcher = Fetcher::new(Settings::default()).unwrap().with(access).unwrap();
    Client::new(fetcher, &url, limits).unwrap()
}

/// A client that has this header for the registry.
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
        Tags::NotModified => panic!("nothing was known"),
    }
}
