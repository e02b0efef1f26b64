//! Which proxy a request takes.

use std::fmt;

use ::url::{Host, Url};

use super::address::Policy;
use super::error::FetchError;
use super::no_proxy::NoProxy;
use super::secret::Secret;
use crate::text::public_url;

/// The proxies of one repository, as the variables `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` name them. They replace the
/// environment's as a whole.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// For `http` URLs: a URL, or a host and port.
    pub http: Option<String>,
    /// For `https` URLs.
    pub https: Option<String>,
    /// Hosts that are reached without one, separated by commas.
    pub none: Option<String>,
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // They may hold a password, and what can't be parsed can't be rid of it.
        let redacted = |text: &Option<String>| text.clone().map(Secret::new);
        f.debug_struct("Proxies")
            .field("http", &redacted(&self.http))
            .field("https", &redacted(&self.https))
            .field("none", &self.none)
            .finish()
    }
}

/// What a proxy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// The proxies that are in force.
#[derive(Default)]
pub(super) struct Routes {
    http: Option<Url>,
    https: Option<Url>,
    none: NoProxy,
}

impl Routes {
    /// Those of the environment, as Go's `http.ProxyFromEnvironment` reads them: upper case first, empty is unset.
    /// `variable` gives a variable's value.
    pub(super) fn of_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, FetchError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let either = |name: &str| set(name).or_else(|| set(&name.to_lowercase()));
        let proxies = Proxies {
            http: either("HTTP_PROXY"),
            https: either("HTTPS_PROXY"),
            none: either("NO_PROXY"),
        };
        Self::parse(&proxies, "of the environment")
    }

    /// Those of a repository. Anybody who may declare one chooses them, so that their addresses obey `policy`.
    pub(super) fn of_repository(proxies: &Proxies, policy: Policy) -> Result<Self, FetchError> {
        let routes = Self::parse(proxies, "of the repository")?;
        for url in [&routes.http, &routes.https].into_iter().flatten() {
            policy.check_url(url)?;
        }
        Ok(routes)
    }

    fn parse(proxies: &Proxies, whose: &str) -> Result<Self, FetchError> {
        let parsed = |text: &Option<String>, scheme: &str| {
            let Some(text) = text.as_deref().map(str::trim).filter(|text| !text.is_empty()) else {
                return Ok(None);
            };
            let invalid = |problem| FetchError::InvalidProxy {
                proxy: format!("the {scheme} proxy {whose}"),
                problem,
            };
            parse(text).map(Some).map_err(invalid)
        };
        Ok(Self {
            http: parsed(&proxies.http, "HTTP")?,
            https: parsed(&proxies.https, "HTTPS")?,
            none: NoProxy::parse(proxies.none.as_deref().unwrap_or_default()),
        })
    }

    /// The proxy for a URL. This machine itself is never asked of a proxy, as Go's client has it: there it would be the
    /// proxy's own.
    pub(super) fn of(&self, url: &Url) -> Option<(Scheme, &Url)> {
        let (scheme, proxy) = match url.scheme() {
            "http" => (Scheme::Http, self.http.as_ref()?),
            "https" => (Scheme::Https, self.https.as_ref()?),
            _ => return None,
        };
        (!is_this_machine(url) && !self.none.contains(url)).then_some((scheme, proxy))
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes")
            .field("http", &self.http.as_ref().map(public_url))
            .field("https", &self.https.as_ref().map(public_url))
            .field("none", &self.none)
            .finish()
    }
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name.trim_end_matches('.') == "localhost",
        None => false,
    }
}

/// The URL of a proxy. The problem with one that is none does not show it, since it may hold a password.
fn parse(text: &str) -> Result<Url, String> {
    let with_scheme = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url = Url::parse(&with_scheme).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("its scheme is {}, where http or https is wanted", url.scheme()));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rstest::rstest;

    use super::*;

    fn proxy_of(environment: &[(&str, &str)], url: &str) -> Option<String> {
        let environment: HashMap<_, _> = environment.iter().copied().collect();
        let routes = Routes::of_environment(|name| environment.get(name).map(|&value| value.to_owned())).unwrap();
        routes.of(&url.parse().unwrap()).map(|(_, proxy)| proxy.to_string())
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
    fn the_environment_is_read_as_go_reads_it(
        #[case] environment: &[(&str, &str)],
        #[case] url: &str,
        #[case] proxy: Option<&str>,
    ) {
        assert_eq!(proxy_of(environment, url).as_deref(), proxy);
    }

    #[rstest]
    fn a_proxy_that_is_none_is_refused_without_being_shown(
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
        let error = Routes::of_repository(&proxies, Policy::default()).unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("InvalidProxy", false));
        let shown = format!("{error} {error:?} {proxies:?}");
        assert!(
            shown.contains("the HTTPS proxy of the repository") && !shown.contains("secret"),
            "{shown}"
        );
    }

    #[test]
    fn proxies_show_no_password() {
        let proxies = Proxies {
            http: Some("http://user:secret@proxy.example.com".to_owned()),
            ..Proxies::default()
        };
        let routes = Routes::of_repository(&proxies, Policy::default()).unwrap();
        let shown = format!("{proxies:?} {routes:?}");
        assert!(
            shown.contains("proxy.example.com") && !shown.contains("secret"),
            "{shown}"
        );
    }
}
