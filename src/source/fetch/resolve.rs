//! Names to addresses, with an error that can be told from others.

use std::io;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The system's resolver.
#[derive(Debug)]
pub(super) struct Resolver;

/// A name without an address.
#[derive(Debug, thiserror::Error)]
#[error("{name} could not be resolved")]
pub(super) struct Unresolved {
    pub(super) name: String,
    #[source]
    pub(super) source: io::Error,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The client puts the port in itself.
            match tokio::net::lookup_host((name.as_str().to_owned(), 0)).await {
                Ok(addresses) => Ok(Box::new(addresses) as Addrs),
                Err(source) => Err(Unresolved {
                    name: name.as_str().to_owned(),
                    source,
                }
                .into()),
            }
        })
    }
}
