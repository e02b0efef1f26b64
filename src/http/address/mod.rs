//! Protection against server-side request forgery: address policy and resolver.
//!
//! Anyone who can create a repository, publish an index or redirect a request makes this process send requests. It never
//! connects to link-local addresses, cloud metadata services or its own API server. Settings allow private networks, where
//! in-cluster repositories are, and loopback.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ::url::{Host, Url};
use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::error::FetchError;

const METADATA: &str = "it is a cloud metadata service";
const LINK_LOCAL: &str = "it is link-local, the range of cloud metadata services";
const NOT_UNICAST: &str = "it is a multicast or broadcast address";
const LOOPBACK: &str = "it is this machine; see --allow-loopback";
/// The reason of a refusal of the API server of this process.
pub const API_SERVER: &str = "it is the API server";
const PRIVATE: &str = "it is not public, and private networks are disabled; see --allow-private-networks, --news-private-networks for sinks of news, or --allow-private-http for steps of workflows";

/// AWS, Google, Tencent. A proxy would resolve them itself. Other clouds have only addresses or [`is_metadata_name`]s.
const METADATA_NAMES: [&str; 5] = [
    "instance-data",
    "instance-data.ec2.internal",
    "metadata",
    "metadata.goog",
    "metadata.tencentyun.com",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) allow_private_networks: bool,
    pub(super) allow_loopback: bool,
    pub(super) api_server: Arc<ApiServer>,
}

/// The endpoints of the API server. Other ports of its addresses are allowed: there may be chart servers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ApiServer {
    pub(super) names: Vec<(String, u16)>,
    pub(super) addresses: Vec<SocketAddr>,
}

impl ApiServer {
    pub(super) fn has_port(&self, port: u16) -> bool {
        let names = self.names.iter().map(|(_, port)| *port);
        names
            .chain(self.addresses.iter().map(SocketAddr::port))
            .any(|other| other == port)
    }

    fn is_at(&self, address: IpAddr, port: u16) -> bool {
        let address = match address {
            IpAddr::V6(address) => embedded(address).map_or(IpAddr::V6(address), IpAddr::V4),
            address => address,
        };
        let mut addresses = self.addresses.iter();
        addresses.any(|server| server.port() == port && server.ip().to_canonical() == address)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            allow_private_networks: true,
            allow_loopback: true,
            api_server: Arc::default(),
        }
    }
}

impl Policy {
    /// Checks literal addresses and well-known names. The [`Resolver`] checks all other names, unless a proxy does.
    pub(super) fn check_url(&self, url: &Url) -> Result<(), FetchError> {
        let port = url.port_or_known_default().unwrap_or_default();
        let (address, refusal) = match url.host() {
            Some(Host::Ipv4(address)) => (address.to_string(), self.endpoint_refusal(address.into(), port)),
            Some(Host::Ipv6(address)) => (address.to_string(), self.endpoint_refusal(address.into(), port)),
            Some(Host::Domain(name)) => (name.to_owned(), self.name_refusal(name, port)),
            None => return Ok(()),
        };
        refusal.map_or(Ok(()), |why| {
            Err(FetchError::AddressRefused {
                host: url.host_str().unwrap_or_default().to_owned(),
                address,
                why,
            })
        })
    }

    /// Returns why connections to a port of an address are not allowed.
    fn endpoint_refusal(&self, address: IpAddr, port: u16) -> Option<&'static str> {
        let refusal = self.refusal(address);
        refusal.or_else(|| self.api_server.is_at(address, port).then_some(API_SERVER))
    }

    /// Returns why connections to an address are not allowed at any port.
    fn refusal(&self, address: IpAddr) -> Option<&'static str> {
        let private = |is_private: bool| (is_private && !self.allow_private_networks).then_some(PRIVATE);
        let loopback = |is_loopback: bool| (is_loopback && !self.allow_loopback).then_some(LOOPBACK);
        match address {
            // Linux connects to the unspecified address of this host.
            IpAddr::V4(address) => forbidden_v4(address)
                .or_else(|| loopback(matches!(address.octets(), [0 | 127, ..])))
                .or_else(|| private(is_private_v4(address))),
            IpAddr::V6(address) => forbidden_v6(address)
                .or_else(|| loopback(address.is_loopback() || address.is_unspecified()))
                .or_else(|| private(is_private_v6(address)))
                .or_else(|| embedded(address).and_then(|inner| self.refusal(inner.into())))
                .or_else(|| local_nat64(address).into_iter().find_map(forbidden_v4)),
        }
    }

    fn name_refusal(&self, name: &str, port: u16) -> Option<&'static str> {
        let name = name.trim_end_matches('.');
        let is_local = name == "localhost" || name.ends_with(".localhost");
        let mut api_server = self.api_server.names.iter();
        if is_metadata_name(name) {
            Some(METADATA)
        } else if is_local && !self.allow_loopback {
            Some(LOOPBACK)
        } else if is_local && !self.allow_private_networks {
            Some(PRIVATE)
        } else {
            let is_api_server = api_server.any(|server| (server.0.as_str(), server.1) == (name, port));
            is_api_server.then_some(API_SERVER)
        }
    }
}

/// Returns true for metadata services, including services of Google and Azure below `internal`.
fn is_metadata_name(name: &str) -> bool {
    METADATA_NAMES.contains(&name) || (name.starts_with("metadata.") && name.ends_with(".internal"))
}

/// Ranges of IANA's special-purpose registry and metadata services outside of 169.254.0.0/16.
fn forbidden_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [169, 254, ..] => Some(LINK_LOCAL),
        // Alibaba; Azure's host; Oracle's first generation. AWS, Google, Oracle, DigitalOcean, OpenStack and Tencent have
        // link-local addresses.
        [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, 192] => Some(METADATA),
        [224..=239, ..] | [255, 255, 255, 255] => Some(NOT_UNICAST),
        _ => None,
    }
}

fn forbidden_v6(address: Ipv6Addr) -> Option<&'static str> {
    match address.segments() {
        [0xfe80..=0xfebf, ..] => Some(LINK_LOCAL),
        // All services of Amazon: metadata, pod credentials.
        [0xfd00, 0xec2, ..] => Some(METADATA),
        // Google; Oracle; Scaleway.
        [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254]
        | [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]
        | [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42] => Some(METADATA),
        // Akamai, once Linode; Alibaba.
        [0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1] | [0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200] => Some(METADATA),
        [0xff00..=0xffff, ..] => Some(NOT_UNICAST),
        _ => None,
    }
}

/// Returns true if IANA's special-purpose registry does not list the address as globally reachable.
fn is_private_v4(address: Ipv4Addr) -> bool {
    matches!(
        address.octets(),
        // This host, private, loopback, carrier-grade NAT.
        [0 | 10 | 127, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..]
        // Protocol assignments, documentation, benchmarks, reserved.
        | [192, 0, 0 | 2, _] | [198, 51, 100, _] | [203, 0, 113, _] | [198, 18..=19, ..] | [240..=255, ..]
    )
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    matches!(
        address.segments(),
        // Unspecified, loopback, unique local, the old site-local.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] | [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..]
        // Local NAT64, discard, documentation, segment routing.
        | [0x64, 0xff9b, 1, ..] | [0x100, 0, 0, 0, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x5f00, ..]
    )
}

/// Returns the IPv4 address that an IPv6 address embeds.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let from_parts = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        // Unspecified and loopback match the pattern of compatible addresses.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        // Mapped, compatible, translated, NAT64.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => from_parts(high, low),
        // 6to4; Teredo, which inverts the client's address.
        [0x2002, high, low, ..] => from_parts(high, low),
        [0x2001, 0, _, _, _, _, high, low] => from_parts(!high, !low),
        _ => None,
    }
}

/// RFC 8215: the prefix has 48, 56, 64 or 96 bits; the octet after 64 bits is no part of the address (RFC 6052, 2.2).
fn local_nat64(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let o = address.octets();
    if !o.starts_with(&[0, 0x64, 0xff, 0x9b, 0, 1]) {
        return Vec::new();
    }
    let forms = [
        [o[6], o[7], o[9], o[10]],
        [o[7], o[9], o[10], o[11]],
        [o[9], o[10], o[11], o[12]],
        [o[12], o[13], o[14], o[15]],
    ];
    forms.map(Ipv4Addr::from).to_vec()
}

pub(super) type HostLookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

pub(super) fn system_lookup() -> HostLookup {
    Arc::new(|name| {
        // The client sets the port.
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    })
}

/// Drops forbidden addresses. The client connects without a second lookup, which prevents DNS rebinding.
#[derive(Clone)]
pub(super) struct Resolver {
    pub(super) lookup: HostLookup,
    pub(super) policy: Policy,
    /// Set in clients for a port of the API server, since a resolver does not know the port.
    pub(super) api_server_port: Option<u16>,
}

#[derive(Debug, thiserror::Error)]
#[error("failed to resolve {name}")]
pub(super) struct HostResolveError {
    pub(super) name: String,
    #[source]
    pub(super) source: io::Error,
}

/// A name that has only addresses that are not allowed.
#[derive(Debug, thiserror::Error)]
#[error("connections to {name} ({address}) are not allowed: {why}")]
pub(super) struct AddressNotAllowed {
    pub(super) name: String,
    pub(super) address: IpAddr,
    pub(super) why: &'static str,
}

impl Resolver {
    async fn addresses(&self, name: String) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let addresses = match (self.lookup)(name.clone()).await {
            Ok(addresses) => addresses,
            Err(source) => return Err(HostResolveError { name, source }.into()),
        };
        let mut refused = None;
        let mut allowed = Vec::new();
        for address in addresses {
            let refusal = match self.api_server_port {
                Some(port) => self.policy.endpoint_refusal(address.ip(), port),
                None => self.policy.refusal(address.ip()),
            };
            match refusal {
                None => allowed.push(address),
                Some(why) => refused = Some((address.ip(), why)),
            }
        }
        match refused {
            Some((address, why)) if allowed.is_empty() => Err(AddressNotAllowed { name, address, why }.into()),
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
