use std::fmt;
use std::net::IpAddr;

use ::url::{Host, Url};

use super::address::Policy;
use super::error::FetchError;
use super::secret::Secret;
use crate::text::public_url;

/// The proxies of one repository. They replace all proxies of the environment.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// Value of `HTTP_PROXY`: a URL, or host and port.
    pub http: Option<String>,
    pub https: Option<String>,
    /// Value of `NO_PROXY`: hosts to connect to directly, separated by commas.
    pub no_proxy: Option<String>,
}

impl Proxies {
    /// Reads environment variables as Go's `http.ProxyFromEnvironment` does: upper case first, empty means unset.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let either = |name: &str| set(name).or_else(|| set(&name.to_lowercase()));
        Self {
            http: either("HTTP_PROXY"),
            https: either("HTTPS_PROXY"),
            no_proxy: either("NO_PROXY"),
        }
    }

    pub fn has_credentials(&self) -> bool {
        let proxies = [&self.http, &self.https].into_iter().flatten();
        let mut urls = proxies.filter_map(|text| parse_proxy_url(text.trim()).ok());
        urls.any(|url| !url.username().is_empty() || url.password().is_some())
    }
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A value may contain a password, which cannot be removed unless it parses as a URL.
        let redacted = |text: &Option<String>| text.clone().map(Secret::new);
        f.debug_struct("Proxies")
            .field("http", &redacted(&self.http))
            .field("https", &redacted(&self.https))
            .field("no_proxy", &self.no_proxy)
            .finish()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scheme {
    Http,
    Https,
}

#[derive(Default)]
pub(super) struct ProxyConfig {
    http: Option<Url>,
    https: Option<Url>,
    no_proxy: NoProxy,
}

impl ProxyConfig {
    /// Parses the proxies of the environment, which the operator chooses.
    pub(super) fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, FetchError> {
        Self::parse(&Proxies::from_environment(variable), "of the environment")
    }

    /// Parses the proxies of a repository. Their addresses obey `policy`, because any tenant may choose them.
    pub(super) fn from_repository(proxies: &Proxies, policy: &Policy) -> Result<Self, FetchError> {
        let config = Self::parse(proxies, "of the repository")?;
        for url in [&config.http, &config.https].into_iter().flatten() {
            policy.check_url(url)?;
        }
        Ok(config)
    }

    fn parse(proxies: &Proxies, origin: &str) -> Result<Self, FetchError> {
        let parse = |text: &Option<String>, scheme: &str| {
            let Some(text) = text.as_deref().map(str::trim).filter(|text| !text.is_empty()) else {
                return Ok(None);
            };
            let invalid = |problem| FetchError::InvalidProxy {
                proxy: format!("the {scheme} proxy {origin}"),
                problem,
            };
            parse_proxy_url(text).map(Some).map_err(invalid)
        };
        Ok(Self {
            http: parse(&proxies.http, "HTTP")?,
            https: parse(&proxies.https, "HTTPS")?,
            no_proxy: NoProxy::parse(proxies.no_proxy.as_deref().unwrap_or_default()),
        })
    }

    /// Returns the proxy of a URL. Loopback addresses bypass it, as in Go: at the proxy they are the proxy itself.
    pub(super) fn proxy_for(&self, url: &Url) -> Option<(Scheme, &Url)> {
        let (scheme, proxy) = match url.scheme() {
            "http" => (Scheme::Http, self.http.as_ref()?),
            "https" => (Scheme::Https, self.https.as_ref()?),
            _ => return None,
        };
        (!is_loopback(url) && !self.no_proxy.contains(url)).then_some((scheme, proxy))
    }
}

impl fmt::Debug for ProxyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyConfig")
            .field("http", &self.http.as_ref().map(public_url))
            .field("https", &self.https.as_ref().map(public_url))
            .field("no_proxy", &self.no_proxy)
            .finish()
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name.trim_end_matches('.') == "localhost",
        None => false,
    }
}

/// Parses the URL of a proxy. Errors do not quote it, because it may contain a password.
fn parse_proxy_url(text: &str) -> Result<Url, String> {
    let with_scheme = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url = Url::parse(&with_scheme).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("unsupported scheme {}, expected http or https", url.scheme()));
    }
    Ok(url)
}

/// A `NO_PROXY` list with the semantics of Go's `golang.org/x/net/http/httpproxy`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NoProxy(Vec<NoProxyEntry>);

#[derive(Debug, PartialEq, Eq)]
enum NoProxyEntry {
    All,
    Network(IpAddr, u8),
    Name {
        name: String,
        /// False for names with a leading dot, which match subdomains only.
        matches_itself: bool,
        port: Option<u16>,
    },
    Address(IpAddr, Option<u16>),
}

impl NoProxy {
    pub(super) fn parse(text: &str) -> Self {
        let entries = text.split(',').map(|entry| entry.trim().to_lowercase());
        Self(entries.filter_map(|entry| NoProxyEntry::parse(&entry)).collect())
    }

    pub(super) fn contains(&self, url: &Url) -> bool {
        let port = url.port_or_known_default();
        let matches_port = |expected: &Option<u16>| expected.is_none() || *expected == port;
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(IpAddr::V4(address)),
            Some(Host::Ipv6(address)) => Some(IpAddr::V6(address).to_canonical()),
            _ => None,
        };
        let host = url.host_str().unwrap_or_default().trim_end_matches('.');
        self.0.iter().any(|entry| match entry {
            NoProxyEntry::All => true,
            NoProxyEntry::Network(network, bits) => address.is_some_and(|address| has_prefix(address, *network, *bits)),
            NoProxyEntry::Address(expected, port) => address == Some(*expected) && matches_port(port),
            NoProxyEntry::Name {
                name,
                matches_itself,
                port,
            } => {
                let matches_name = match host.strip_suffix(name.as_str()) {
                    Some("") => *matches_itself,
                    prefix => prefix.is_some_and(|prefix| prefix.ends_with('.')),
                };
                address.is_none() && matches_port(port) && matches_name
            }
        })
    }
}

impl NoProxyEntry {
    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let max_bits = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse().ok().filter(|bits| *bits <= max_bits)?;
            return Some(Self::Network(address, bits));
        }
        // Before splitting off a port, because an IPv6 address contains colons.
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
            matches_itself: !host.starts_with('.'),
            port,
        })
    }
}

fn has_prefix(address: IpAddr, network: IpAddr, bits: u8) -> bool {
    let common_bits = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => (address.to_bits() ^ network.to_bits()).leading_zeros(),
        (IpAddr::V6(address), IpAddr::V6(network)) => (address.to_bits() ^ network.to_bits()).leading_zeros(),
        _ => return false,
    };
    common_bits >= u32::from(bits)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rstest::rstest;

    use super::*;

    fn proxy_of(environment: &[(&str, &str)], url: &str) -> Option<String> {
        let environment: HashMap<_, _> = environment.iter().copied().collect();
        let config =
            ProxyConfig::from_environment(|name| environment.get(name).map(|&value| value.to_owned())).unwrap();
        config
            .proxy_for(&url.parse().unwrap())
            .map(|(_, proxy)| proxy.to_string())
    }

    #[rstest]
    #[case(&[("HTTP_PROXY", "http://a:1"), ("http_proxy", "http://b:1")], "http://example.com/", Some("http://a:1/"))]
    #[case(&[("HTTP_PROXY", ""), ("http_proxy", "b:1")], "http://example.com/", Some("http://b:1/"))]
    #[case(&[("HTTP_PROXY", "http://a:1")], "https://example.com/", None)]
    #[case(&[("https_proxy", " https://u:p@a ")], "https://example.com/", Some("https://u:p@a/"))]
    #[case(&[("HTTP_PROXY", "a:1"), ("no_proxy", "example.com")], "http://charts.example.com/", None)]
    #[case(&[("HTTP_PROXY", "a:1")], "http://localhost:8080/", None)]
    #[case(&[("HTTP_PROXY", "a:1")], "http://127.1/", None)]
    #[case(&[("HTTP_PROXY", "a:1")], "http://[::1]/", None)]
    #[case(&[("HTTP_PROXY", "a:1")], "http://[::ffff:127.0.0.1]/", None)]
    #[case(&[("HTTP_PROXY", "a:1")], "http://10.0.0.1/", Some("http://a:1/"))]
    fn environment_variables_are_read_as_in_go(
        #[case] environment: &[(&str, &str)],
        #[case] url: &str,
        #[case] proxy: Option<&str>,
    ) {
        assert_eq!(proxy_of(environment, url).as_deref(), proxy);
    }

    #[rstest]
    fn an_invalid_proxy_is_rejected_without_being_printed(
        #[values(
            "http://user:secret@:80",
            "socks5://user:secret@host",
            "http://secret:x",
            "http://[secret]",
            "secret secret"
        )]
        text: &str,
    ) {
        let proxies = Proxies {
            https: Some(text.to_owned()),
            ..Proxies::default()
        };
        let error = ProxyConfig::from_repository(&proxies, &Policy::default()).unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("InvalidProxy", false));
        let printed = format!("{error} {error:?} {proxies:?}");
        assert!(
            printed.contains("the HTTPS proxy of the repository") && !printed.contains("secret"),
            "{printed}"
        );
    }

    #[test]
    fn passwords_of_proxies_are_not_printed() {
        let proxies = Proxies {
            http: Some("http://user:secret@proxy.example.com".to_owned()),
            ..Proxies::default()
        };
        let config = ProxyConfig::from_repository(&proxies, &Policy::default()).unwrap();
        let printed = format!("{proxies:?} {config:?}");
        assert!(
            printed.contains("proxy.example.com") && !printed.contains("secret"),
            "{printed}"
        );
    }

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
    fn no_proxy_matches_hosts_as_in_go(#[case] list: &str, #[case] url: &str, #[case] expected: bool) {
        assert_eq!(NoProxy::parse(list).contains(&url.parse().unwrap()), expected);
    }
}
