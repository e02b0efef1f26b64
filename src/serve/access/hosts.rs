//! The hosts that requests may name. A page of another site, whose name was rebound to our address, still sends that name.

use std::collections::BTreeSet;
use std::net::IpAddr;

use axum::http::{HeaderMap, header};

use super::AccessError;

/// Allows its names, `localhost`, and IP literals: rebinding needs a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hosts {
    names: BTreeSet<String>,
    /// IP literals must be loopback addresses.
    is_loopback: bool,
}

impl Hosts {
    pub(super) fn loopback() -> Self {
        Self {
            names: BTreeSet::new(),
            is_loopback: true,
        }
    }

    pub(super) fn named<'a>(names: impl Iterator<Item = &'a String>) -> Self {
        Self {
            names: names
                .map(|name| normalize(name))
                .filter(|name| !name.is_empty())
                .collect(),
            is_loopback: false,
        }
    }

    /// Returns the error of a request that is refused.
    pub(super) const fn error(&self) -> AccessError {
        if self.is_loopback {
            AccessError::ForeignHost
        } else {
            AccessError::Misdirected
        }
    }

    /// Refuses requests without a host, or with several.
    pub(super) fn allow(&self, headers: &HeaderMap) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().is_ok_and(|host| self.allow_host(&normalize(host))),
            _ => false,
        }
    }

    fn allow_host(&self, host: &str) -> bool {
        match host.parse::<IpAddr>() {
            Ok(address) => !self.is_loopback || address.to_canonical().is_loopback(),
            Err(_) => host == "localhost" || self.names.contains(host),
        }
    }
}

/// Returns a host in lower case, without port, brackets and the dot of an absolute name.
fn normalize(host: &str) -> String {
    let host = host.trim();
    let name = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        Some((address, _port)) => address,
        // An IPv6 address without brackets has more colons.
        None => match host.split_once(':') {
            Some((name, port)) if !port.contains(':') => name,
            _ => host,
        },
    };
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(hosts: &[&str]) -> HeaderMap {
        let value = |host: &&str| (header::HOST, HeaderValue::from_str(host).unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in hosts.iter().map(value) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn declared_names_localhost_and_ip_literals_are_allowed() {
        let hosts = Hosts::named(["Charts.example.com".to_owned(), "portolan-serve.ns.svc:80".to_owned()].iter());
        for host in [
            "charts.example.com",
            "CHARTS.example.com.:443",
            "portolan-serve.ns.svc:8090",
            "localhost:8090",
            "10.0.0.1:8090",
            "[fd00::1]:8090",
            "[::1]",
        ] {
            assert!(hosts.allow(&headers(&[host])), "{host}");
        }
        for host in [
            "evil.example",
            "charts.example.com.evil.example",
            "",
            "evil.example:80:80",
            "[",
        ] {
            assert!(!hosts.allow(&headers(&[host])), "{host}");
        }
    }

    #[test]
    fn a_loopback_listener_has_no_other_names() {
        let hosts = Hosts::loopback();
        for host in [
            "localhost",
            "127.0.0.1:8090",
            "127.1.2.3",
            "[::1]:8090",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(hosts.allow(&headers(&[host])), "{host}");
        }
        for host in ["10.0.0.1", "[fd00::1]", "localhost.evil.example"] {
            assert!(!hosts.allow(&headers(&[host])), "{host}");
        }
    }

    #[test]
    fn a_request_without_one_host_is_refused() {
        let hosts = Hosts::loopback();
        assert!(!hosts.allow(&headers(&[])));
        assert!(!hosts.allow(&headers(&["localhost", "localhost"])));
    }
}
