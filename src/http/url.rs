use url::Url;

use super::error::FetchError;
use crate::text::without_user_info;

/// Returns the URL of a repository's index: appends `index.yaml` to the path, drops empty segments, keeps the query.
pub fn index_url(repository_url: &str) -> Result<Url, FetchError> {
    let text = repository_url.trim();
    if text.is_empty() {
        return Err(FetchError::InvalidUrl("empty URL".to_owned()));
    }
    // The error does not quote the text, which may contain a password.
    let mut url = Url::parse(text).map_err(|error| FetchError::InvalidUrl(error.to_string()))?;
    check(&url)?;
    let segments = url.path().split('/').filter(|segment| !segment.is_empty());
    let path: String = segments.map(|segment| format!("/{segment}")).collect();
    url.set_path(&format!("{path}/index.yaml"));
    url.set_fragment(None);
    Ok(url)
}

pub(super) fn check(url: &Url) -> Result<(), FetchError> {
    if !matches!(url.scheme(), "http" | "https") {
        let problem = format!("unsupported scheme {}, expected http or https", url.scheme());
        return Err(FetchError::InvalidUrl(problem));
    }
    match url.host_str() {
        None | Some("") => Err(FetchError::InvalidUrl("missing host".to_owned())),
        Some(_) => Ok(()),
    }
}

/// Returns the key of host limits. A trailing dot does not make a different host.
pub(super) fn host_and_port(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    format!("{}:{port}", host.strip_suffix('.').unwrap_or(host))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UrlOrigin {
    scheme: String,
    host: String,
    port: u16,
}

impl UrlOrigin {
    /// Returns the origin of a URL, with `https` for `oci` URLs.
    pub(super) fn of(url: &Url) -> Option<Self> {
        if url.scheme() == "oci" {
            // Parsed again, because the host is normalized only for known schemes.
            let suffix = url.as_str().strip_prefix("oci:")?;
            return Self::of(&Url::parse(&format!("https:{suffix}")).ok()?);
        }
        Some(Self {
            scheme: url.scheme().to_owned(),
            host: url.host_str()?.to_owned(),
            port: url.port_or_known_default()?,
        })
    }

    pub(super) fn is_https(&self) -> bool {
        self.scheme == "https"
    }
}

pub(super) fn bare(url: &Url) -> Url {
    let mut url = without_user_info(url);
    url.set_fragment(None);
    url
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("https://charts.example.com", "https://charts.example.com/index.yaml")]
    #[case(" https://charts.example.com/ \n", "https://charts.example.com/index.yaml")]
    #[case("http://example.com:8080/a//b/", "http://example.com:8080/a/b/index.yaml")]
    #[case("https://example.com/a/../b/.", "https://example.com/b/index.yaml")]
    #[case("https://example.com/a?token=x#frag", "https://example.com/a/index.yaml?token=x")]
    #[case(
        "https://user:pass@example.com/a%2Fb",
        "https://user:pass@example.com/a%2Fb/index.yaml"
    )]
    fn the_index_is_directly_below_the_repository(#[case] repository: &str, #[case] index: &str) {
        assert_eq!(index_url(repository).unwrap().as_str(), index);
    }

    #[rstest]
    fn an_invalid_repository_url_is_rejected_without_being_printed(
        #[values(
            "",
            "  ",
            "secret",
            "//secret/a",
            "http://",
            "http://secret:x/",
            "oci://secret/a",
            "file:///secret",
            "http://[secret]/"
        )]
        text: &str,
    ) {
        let error = index_url(text).unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("InvalidURL", false));
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[rstest]
    #[case("oci://Registry.Example.com/charts", "https://registry.example.com:443/")]
    #[case("oci://registry.example.com:5000", "https://registry.example.com:5000")]
    #[case("http://127.1/", "http://127.0.0.1:80/")]
    fn equivalent_urls_have_the_same_origin(#[case] one: &str, #[case] other: &str) {
        let origin = |text: &str| UrlOrigin::of(&text.parse().unwrap()).unwrap();
        assert_eq!(origin(one), origin(other));
    }

    #[rstest]
    #[case("https://Example.com./a", "example.com:443")]
    #[case("http://example.com:8080", "example.com:8080")]
    #[case("http://127.0.0.1./", "127.0.0.1:80")]
    #[case("http://[::1]/", "[::1]:80")]
    fn host_keys_are_normalized(#[case] url: &str, #[case] name: &str) {
        assert_eq!(host_and_port(&url.parse().unwrap()), name);
    }

    #[rstest]
    #[case("http://example.com")]
    #[case("https://example.com:444")]
    #[case("https://www.example.com")]
    #[case("https://example.com.")]
    #[case("https://example.com@evil.example")]
    fn different_schemes_hosts_or_ports_are_different_origins(#[case] other: &str) {
        let origin = |text: &str| UrlOrigin::of(&text.parse().unwrap()).unwrap();
        assert_ne!(origin("https://example.com"), origin(other));
    }
}
