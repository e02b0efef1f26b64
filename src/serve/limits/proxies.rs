//! Proxies whose `X-Forwarded-For` is trusted.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use axum::http::HeaderMap;
use ipnet::{IpNet, Ipv4Net};

const FORWARDED_FOR: &str = "x-forwarded-for";
/// Proxies in a row. A client may send any number of addresses.
const MAX_HOPS: usize = 16;

/// An address or a network of `--trusted-proxies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustedProxy(IpNet);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an IP address nor a network: use 10.0.0.1, 10.0.0.0/8 or fd00::/8")]
pub struct TrustedProxyError(String);

impl FromStr for TrustedProxy {
    type Err = TrustedProxyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
        let network = text.parse::<IpNet>().ok().or_else(address);
        network
            .map(|network| Self(canonical(network)))
            .ok_or_else(|| TrustedProxyError(text.to_owned()))
    }
}

/// Returns the network of IPv4 for one that is mapped to IPv6.
fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(mapped) = network else { return network };
    let address = mapped.addr().to_ipv4_mapped();
    let length = mapped.prefix_len().checked_sub(96);
    let network_v4 = address
        .zip(length)
        .map(|(address, length)| Ipv4Net::new(address, length));
    network_v4.and_then(Result::ok).map_or(network, IpNet::V4)
}

/// The proxies of `--trusted-proxies`; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<TrustedProxy>);

impl FromIterator<TrustedProxy> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = TrustedProxy>>(proxies: I) -> Self {
        Self(proxies.into_iter().collect())
    }
}

impl TrustedProxies {
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the address of the client behind the trusted proxies. Each of them adds its peer at the right of the header;
    /// anyone may have sent what precedes the first other address from there.
    pub(in crate::serve) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let values = headers.get_all(FORWARDED_FOR).iter().rev();
        let hops = values.flat_map(|value| value.as_bytes().rsplit(|byte| *byte == b','));
        let mut client = peer.to_canonical();
        for hop in hops.take(MAX_HOPS) {
            if !self.trust(client) {
                break;
            }
            let Some(address) = parse_hop(hop) else { break };
            client = address;
        }
        client
    }

    fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|proxy| proxy.0.contains(&address))
    }
}

/// Some proxies add the port.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let hop = std::str::from_utf8(hop).ok()?.trim();
    let without_port = || hop.parse::<SocketAddr>().ok().map(|address| address.ip());
    let bare = hop.strip_prefix('[').and_then(|hop| hop.strip_suffix(']'));
    let address = bare.unwrap_or(hop).parse::<IpAddr>().ok().or_else(without_port)?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn proxies(list: &[&str]) -> TrustedProxies {
        list.iter()
            .map(|proxy| proxy.parse::<TrustedProxy>().unwrap())
            .collect()
    }

    fn client(trusted: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(FORWARDED_FOR, HeaderValue::from_str(value).unwrap());
        }
        proxies(trusted).client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn a_proxy_is_an_address_or_a_network() {
        let parse = |text: &str| text.parse::<TrustedProxy>();
        assert_eq!(parse("10.0.0.1"), parse("10.0.0.1/32"));
        assert_eq!(parse(" ::1 "), parse("::1/128"));
        assert_eq!(parse("::ffff:10.0.0.0/104"), parse("10.0.0.0/8"));
        for invalid in ["", "ingress", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "10.0.0.1:80"] {
            let error = parse(invalid).unwrap_err();
            assert!(error.to_string().contains("10.0.0.0/8"), "{invalid}: {error}");
        }
    }

    #[test]
    fn the_header_of_other_peers_is_ignored() {
        assert_eq!(client(&[], "10.0.0.1", &["192.0.2.7"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], "192.0.2.1", &["192.0.2.7"]), "192.0.2.1");
        assert_eq!(client(&["fd00::/8"], "10.0.0.1", &["192.0.2.7"]), "10.0.0.1");
    }

    #[test]
    fn the_client_is_the_first_address_from_the_right_that_is_not_trusted() {
        let trusted = ["10.0.0.0/8", "fd00::/8"];
        let cases: [(&[&str], &str); 9] = [
            (&[], "10.0.0.1"),
            (&["192.0.2.7"], "192.0.2.7"),
            // The client has sent the first one.
            (&["192.0.2.9, 192.0.2.7, 10.0.0.2"], "192.0.2.7"),
            (&["192.0.2.9,192.0.2.7", "10.0.0.2"], "192.0.2.7"),
            (&["192.0.2.7:4711"], "192.0.2.7"),
            (&["[2001:db8::1]:4711, [fd00::1]"], "2001:db8::1"),
            (&["::ffff:192.0.2.7, ::ffff:10.0.0.2"], "192.0.2.7"),
            (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            // Past an invalid address nothing is known.
            (&["192.0.2.7, unknown, 10.0.0.2"], "10.0.0.2"),
        ];
        for (forwarded, expected) in cases {
            assert_eq!(client(&trusted, "10.0.0.1", forwarded), expected, "{forwarded:?}");
        }
        assert_eq!(client(&trusted, "::ffff:10.0.0.1", &["192.0.2.7"]), "192.0.2.7");
        let long = format!("192.0.2.7{}", ", 10.0.0.9".repeat(MAX_HOPS));
        assert_eq!(client(&trusted, "10.0.0.1", &[&long]), "10.0.0.9");
    }
}
