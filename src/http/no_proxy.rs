//! The hosts that no proxy is asked for.

use std::net::IpAddr;

use ::url::{Host, Url};

/// A list as `NO_PROXY` holds it, read as Go's `golang.org/x/net/http/httpproxy` reads it: names with all that is below
/// them (with a leading dot, only what is below), addresses, networks, `*`; names and addresses with a port, if wanted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NoProxy(Vec<Entry>);

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    All,
    Network(IpAddr, u8),
    Name {
        /// Without the leading dot.
        name: String,
        is_itself_meant: bool,
        port: Option<u16>,
    },
    Address(IpAddr, Option<u16>),
}

impl NoProxy {
    /// Entries that can't be read are passed over.
    pub(super) fn parse(text: &str) -> Self {
        let entries = text.split(',').map(|entry| entry.trim().to_lowercase());
        Self(entries.filter_map(|entry| Entry::parse(&entry)).collect())
    }

    pub(super) fn contains(&self, url: &Url) -> bool {
        let port = url.port_or_known_default();
        let on_port = |wanted: &Option<u16>| wanted.is_none() || *wanted == port;
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address).to_canonical()),
            _ => None,
        };
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        self.0.iter().any(|entry| match entry {
            Entry::All => true,
            Entry::Network(network, bits) => address.is_some_and(|address| shares(address, *network, *bits)),
            Entry::Address(wanted, port) => address == Some(*wanted) && on_port(port),
            Entry::Name {
                name,
                is_itself_meant,
                port,
            } => {
                let is_below = || host.strip_suffix(name.as_str()).is_some_and(|rest| rest.ends_with('.'));
                address.is_none() && on_port(port) && ((*is_itself_meant && host == name) || is_below())
            }
        })
    }
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse().ok().filter(|bits| *bits <= most)?;
            return Some(Self::Network(address, bits));
        }
        // An IPv6 address has colons of its own.
        if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse() {
            return Some(Self::Address(address, None));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().ok()?)),
            None => (text, None),
        };
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse() {
            return Some(Self::Address(address, port));
        }
        let host = host
            .strip_prefix('*')
            .filter(|rest| rest.starts_with('.'))
            .unwrap_or(host);
        let name = host.strip_prefix('.').unwrap_or(host).trim_end_matches('.');
        (!name.is_empty()).then(|| Self::Name {
            name: name.to_owned(),
            is_itself_meant: !host.starts_with('.'),
            port,
        })
    }
}

/// Whether both agree in their first bits.
fn shares(one: IpAddr, other: IpAddr, bits: u8) -> bool {
    let differ = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => return false,
    };
    differ >= u32::from(bits)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("example.com", "http://example.com/", true)]
    #[case("Example.COM.", "http://charts.example.com./", true)]
    #[case("example.com", "http://badexample.com/", false)]
    #[case(".example.com", "http://example.com/", false)]
    #[case("*.example.com", "http://a.example.com/", true)]
    #[case("a, ,b ,.svc", "http://charts.default.svc:8080/", true)]
    #[case("example.com:8080", "http://example.com/", false)]
    #[case("example.com:443", "https://example.com/", true)]
    #[case("*", "http://anything/", true)]
    #[case("10.0.0.0/8", "http://10.1.2.3/", true)]
    #[case("10.0.0.0/8", "http://11.1.2.3/", false)]
    #[case("10.0.0.0/8", "http://[::ffff:10.1.2.3]/", true)]
    #[case("0.0.0.0/0", "http://[2001:db8::1]/", false)]
    #[case("fd00::/8", "http://[fd12::1]/", true)]
    #[case("10.1.2.3", "http://10.1.2.3:99/", true)]
    #[case("10.1.2.3:80", "http://10.1.2.3:99/", false)]
    #[case("[fd12::1]:80", "http://[fd12::1]/", true)]
    #[case("2.3", "http://10.1.2.3/", false)]
    #[case("10.0.0.0/33,a:b,:80,.,/", "http://10.1.2.3/", false)]
    #[case("", "http://example.com/", false)]
    fn hosts_are_left_to_themselves_as_go_has_it(#[case] list: &str, #[case] url: &str, #[case] expected: bool) {
        assert_eq!(NoProxy::parse(list).contains(&url.parse().unwrap()), expected);
    }
}
