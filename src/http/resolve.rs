//! Names to addresses that may be reached, with errors that can be told from others.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::address::Policy;

/// What a name's addresses are asked of.
pub(super) type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// The system's resolver.
pub(super) fn of_the_system() -> Lookup {
    Arc::new(|name| {
        // The client puts the port in itself.
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    })
}

/// Resolves names for the client and drops the addresses that may not be reached. The client connects to what is given
/// here and asks no second time, so that no name can turn into another address in between.
#[derive(Clone)]
pub(super) struct Resolver {
    pub(super) lookup: Lookup,
    pub(super) policy: Policy,
}

/// A name without an address.
#[derive(Debug, thiserror::Error)]
#[error("{name} could not be resolved")]
pub(super) struct Unresolved {
    pub(super) name: String,
    #[source]
    pub(super) source: io::Error,
}

/// A name without an address that may be reached.
#[derive(Debug, thiserror::Error)]
#[error("{name} has the address {address}: {why}")]
pub(super) struct Refused {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) why: &'static str,
}

impl Resolver {
    async fn addresses(&self, name: String) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found = match (self.lookup)(name.clone()).await {
            Ok(found) => found,
            Err(source) => return Err(Unresolved { name, source }.into()),
        };
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in found {
            match self.policy.refusal(address.ip()) {
                None => allowed.push(address),
                Some(why) => refused = Some((address.ip(), why)),
            }
        }
        match refused {
            Some((address, why)) if allowed.is_empty() => Err(Refused { name, address, why }.into()),
            _ => Ok(allowed),
        }
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, name) = (self.clone(), name.as_str().to_owned());
        Box::pin(async move {
            let addresses = resolver.addresses(name).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
