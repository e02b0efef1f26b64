//! Protection against server-side request forgery: address policy and resolver.
//!
//! Anyone who can create a repository, publish an index or redirect a request makes this process send requests. It never
//! connects to link-local addresses, cloud metadata services or its own API server. Settings allow private networks, where
//! in-cluster repositories are, and loopback.

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
const API_SERVER: &str = "it is the API server";
const PRIVATE: &str = "it is not public, and private networks are disabled; see --allow-private-networks";

/// Names of metadata services: AWS, Google, Tencent. A proxy would resolve them itself. The other clouds have addresses
/// only, or names as in [`is_metadata_name`].
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
    /// Checks the literal address or well-known name of a URL. The [`Resolver`] checks all other names, unless a proxy
    /// resolves them.
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
        match () {
            () if is_metadata_name(name) => Some(METADATA),
            () if is_local && !self.allow_loopback => Some(LOOPBACK),
            () if is_local && !self.allow_private_networks => Some(PRIVATE),
            () if api_server.any(|server| (server.0.as_str(), server.1) == (name, port)) => Some(API_SERVER),
            () => None,
        }
    }
}

/// Returns true for metadata services, also for those of Google and Azure below `internal`.
fn is_metadata_name(name: &str) -> bool {
    METADATA_NAMES.contains(&name) || (name.starts_with("metadata.") && name.ends_with(".internal"))
}

/// Ranges of IANA's special-purpose registry and metadata services outside of 169.254.0.0/16.
fn forbidden_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [169, 254, ..] => Some(LINK_LOCAL),
        // Alibaba; Azure's host; Oracle's first generation. AWS, Google, Oracle, DigitalOcean, OpenStack and Tencent have
        // link-local ones.
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

/// Returns the IPv4 addresses that a local NAT64 address (RFC 8215) may embed. The prefix has 48, 56, 64 or 96 bits; the octet
/// after 64 bits is never part of the address (RFC 6052, section 2.2).
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

pub(super) type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

pub(super) fn system_lookup() -> Lookup {
    Arc::new(|name| {
        // The client sets the port.
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    })
}

/// Resolves names for the client and drops addresses that are not allowed. The client connects to the addresses it gets
/// here without a second lookup, which prevents DNS rebinding.
#[derive(Clone)]
pub(super) struct Resolver {
    pub(super) lookup: Lookup,
    pub(super) policy: Policy,
    /// Set in clients for a port of the API server, since a resolver does not know the port.
    pub(super) api_server_port: Option<u16>,
}

#[derive(Debug, thiserror::Error)]
#[error("failed to resolve {name}")]
pub(super) struct ResolveError {
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
            Err(source) => return Err(ResolveError { name, source }.into()),
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn public_only() -> Policy {
        Policy {
            allow_private_networks: false,
            ..Policy::default()
        }
    }

    fn without_loopback() -> Policy {
        Policy {
            allow_loopback: false,
            ..Policy::default()
        }
    }

    fn is_refused(policy: &Policy, host: &str) -> bool {
        let url = format!("http://{host}/").parse().unwrap();
        let refused = policy.check_url(&url);
        if let Err(error) = &refused {
            assert_eq!((error.reason(), error.is_transient()), ("AddressRefused", false));
        }
        refused.is_err()
    }

    #[rstest]
    #[case::link_local("169.254.169.254")]
    #[case::end_of_the_range("169.254.255.255")]
    #[case::as_a_number("2852039166")]
    #[case::in_hexadecimal("0xA9FEA9FE")]
    #[case::in_octal("0251.0376.0251.0376")]
    #[case::with_three_parts("169.254.43518")]
    #[case::mixed("0xa9.254.0251.0xfe")]
    #[case::with_a_dot("169.254.169.254.")]
    #[case::percent_encoded("%31%36%39.254.169.254")]
    #[case::full_width("１６９。２５４。１６９。２５４")]
    #[case::mapped("[::ffff:169.254.169.254]")]
    #[case::mapped_in_hexadecimal("[::ffff:a9fe:a9fe]")]
    #[case::compatible("[::169.254.169.254]")]
    #[case::translated("[::ffff:0:a9fe:a9fe]")]
    #[case::nat64("[64:ff9b::169.254.169.254]")]
    #[case::own_nat64("[64:ff9b:1::a9fe:a9fe]")]
    #[case::own_nat64_of_48_bits("[64:ff9b:1:a9fe:a9:fe00::]")]
    #[case::own_nat64_of_56_bits("[64:ff9b:1:a9:fe:a9fe::]")]
    #[case::own_nat64_of_64_bits("[64:ff9b:1:1:a9:fea9:fe00:0]")]
    #[case::six_to_four("[2002:a9fe:a9fe::1]")]
    #[case::teredo("[2001:0:1:2:3:4:5601:5601]")]
    #[case::link_local_v6("[fe80::1]")]
    #[case::end_of_link_local_v6("[febf::1]")]
    #[case::amazon("[fd00:ec2::254]")]
    #[case::pods_of_amazon("[fd00:ec2::23]")]
    #[case::google("[fd20:ce::254]")]
    #[case::oracle_v6("[fd00:c1::a9fe:a9fe]")]
    #[case::scaleway("[fd00:42::42]")]
    #[case::akamai("[fd00:a9fe:a9fe::1]")]
    #[case::alibaba_v6("[fd00:100::100:200]")]
    #[case::alibaba("100.100.100.200")]
    #[case::azure("168.63.129.16")]
    #[case::oracle("192.0.0.192")]
    #[case::multicast("224.0.0.1")]
    #[case::multicast_v6("[ff02::1]")]
    #[case::broadcast("255.255.255.255")]
    #[case::tencent("169.254.0.23")]
    #[case::by_name("metadata.google.internal")]
    #[case::azure_by_name("metadata.azure.internal")]
    #[case::amazon_by_name("instance-data")]
    #[case::tencent_by_name("metadata.tencentyun.com")]
    #[case::by_name_with_a_dot("METADATA.google.internal.")]
    fn metadata_and_link_local_addresses_are_refused_in_every_notation(#[case] host: &str) {
        assert!(is_refused(&Policy::default(), host) && is_refused(&public_only(), host));
    }

    #[rstest]
    fn private_addresses_are_refused_only_if_private_networks_are_disabled(
        #[values(
            "127.0.0.1",
            "127.1",
            "0x7f.1",
            "0",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "198.18.0.1",
            "240.0.0.1",
            "[::]",
            "[::1]",
            "[fc00::1]",
            "[fd12::1]",
            "[fec0::1]",
            "[::ffff:10.0.0.1]",
            "[::127.0.0.1]",
            "[64:ff9b::10.0.0.1]",
            "[64:ff9b:1::1]",
            "[2002:0a00:0001::]",
            "localhost",
            "a.localhost."
        )]
        host: &str,
    ) {
        assert!(!is_refused(&Policy::default(), host) && is_refused(&public_only(), host));
    }

    #[rstest]
    fn loopback_and_unspecified_addresses_are_refused_by_their_own_setting(
        #[values(
            "127.0.0.1",
            "127.1",
            "0x7f.1",
            "0",
            "0.0.0.0",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:0.0.0.0]",
            "[::127.0.0.1]",
            "[64:ff9b::127.0.0.1]",
            "localhost",
            "LOCALHOST.",
            "a.localhost"
        )]
        host: &str,
    ) {
        assert!(!is_refused(&Policy::default(), host) && is_refused(&without_loopback(), host));
    }

    #[test]
    fn other_private_addresses_do_not_count_as_loopback() {
        for host in ["10.0.0.1", "192.168.1.1", "[fd12::1]"] {
            assert!(!is_refused(&without_loopback(), host), "{host}");
        }
    }

    #[test]
    fn only_the_port_of_the_api_server_is_refused() {
        let policy = Policy {
            api_server: Arc::new(ApiServer {
                names: vec![("api.example.com".to_owned(), 6443)],
                addresses: vec![
                    "10.96.0.1:443".parse().unwrap(),
                    "[::ffff:10.0.0.9]:6443".parse().unwrap(),
                ],
            }),
            ..Policy::default()
        };
        let is_refused = |url: &str| policy.check_url(&url.parse().unwrap()).is_err();
        for url in [
            "https://10.96.0.1/",
            "http://10.96.0.1:443/",
            "https://[::ffff:10.96.0.1]/",
            "https://[64:ff9b::10.96.0.1]/",
            "https://10.0.0.9:6443/",
            "https://API.example.com.:6443/",
        ] {
            assert!(is_refused(url), "{url}");
        }
        for url in [
            "http://10.96.0.1/",
            "https://10.96.0.2/",
            "https://10.0.0.9/",
            "https://api.example.com/",
        ] {
            assert!(!is_refused(url), "{url}");
        }
    }

    #[rstest]
    fn public_addresses_are_allowed(
        #[values(
            "8.8.8.8",
            "1.1.1.1",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "169.253.0.1",
            "223.0.0.1",
            "[2606:4700::1]",
            "[64:ff9b::8.8.8.8]",
            "[2002:0808:0808::1]",
            "[::ffff:8.8.8.8]",
            "charts.example.com",
            "metadata.example.com",
            "localhost.example.com"
        )]
        host: &str,
    ) {
        assert!(!is_refused(&Policy::default(), host) && !is_refused(&public_only(), host));
    }
}
