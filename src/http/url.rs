//! The URL of a repository's index.

use url::Url;

use super::error::FetchError;

/// The URL of the index of the repository at `repository_url`: its path with `/index.yaml` behind it, as Go's `path.Join`
/// would have it (empty segments go), its query kept.
///
/// # Errors
/// [`FetchError::InvalidUrl`] when it is no URL, has no host, or is neither `http` nor `https`.
pub fn index_url(repository_url: &str) -> Result<Url, FetchError> {
    let text = repository_url.trim();
    if text.is_empty() {
        return Err(FetchError::InvalidUrl("it is empty".to_owned()));
    }
    // The text itself is not shown: what can't be parsed can't be rid of a password either.
    let mut url = Url::parse(text).map_err(|error| FetchError::InvalidUrl(error.to_string()))?;
    check(&url)?;
    let segments: Vec<String> = url
        .path()
        .split('/')
        .filter(|segment| !segment.is_empty())
        .map(str::to_owned)
        .collect();
    url.set_path(&format!(
        "/{}",
        [segments, vec!["index.yaml".to_owned()]].concat().join("/")
    ));
    url.set_fragment(None);
    Ok(url)
}

/// Whether a URL may be fetched at all.
pub(super) fn check(url: &Url) -> Result<(), FetchError> {
    if !matches!(url.scheme(), "http" | "https") {
        let problem = format!("its scheme is {}, where http or https is wanted", url.scheme());
        return Err(FetchError::InvalidUrl(problem));
    }
    match url.host_str() {
        None | Some("") => Err(FetchError::InvalidUrl("it has no host".to_owned())),
        Some(_) => Ok(()),
    }
}

/// Host and port, by which limits are kept: the dot that a whole name may end in makes it no other host.
pub(super) fn host_and_port(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    format!("{}:{port}", host.strip_suffix('.').unwrap_or(host))
}

/// Where credentials may go: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    scheme: String,
    host: String,
    port: u16,
}

impl Origin {
    /// Of a URL; registries (`oci`) are asked over `https`.
    pub(super) fn of(url: &Url) -> Option<Self> {
        if url.scheme() == "oci" {
            // Parsed anew, since only then the host is brought into its one form.
            let rest = url.as_str().strip_prefix("oci:")?;
            return Self::of(&Url::parse(&format!("https:{rest}")).ok()?);
        }
        Some(Self {
            scheme: url.scheme().to_owned(),
            host: url.host_str()?.to_owned(),
            port: url.port_or_known_default()?,
        })
    }

    pub(super) fn is_secured(&self) -> bool {
        self.scheme == "https"
    }
}

/// A URL as it is asked for: user information is sent as a header or not at all, and a fragment never.
pub(super) fn bare(url: &Url) -> Url {
    let mut url = url.clone();
    // Both fail only for URLs that can't have user information at all, which then hold none.
    let _ = url.set_username("");
    let _ = url.set_password(None);
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
    fn the_index_stands_below_the_repository(#[case] repository: &str, #[case] index: &str) {
        assert_eq!(index_url(repository).unwrap().as_str(), index);
    }

    #[rstest]
    fn what_cannot_be_fetched_is_refused_without_being_shown(
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
    fn urls_of_one_origin_are_known_as_such(#[case] one: &str, #[case] other: &str) {
        let origin = |text: &str| Origin::of(&text.parse().unwrap()).unwrap();
        assert_eq!(origin(one), origin(other));
    }

    #[rstest]
    #[case("https://Example.com./a", "example.com:443")]
    #[case("http://example.com:8080", "example.com:8080")]
    #[case("http://127.0.0.1./", "127.0.0.1:80")]
    #[case("http://[::1]/", "[::1]:80")]
    fn limits_are_kept_by_one_name_of_a_host(#[case] url: &str, #[case] name: &str) {
        assert_eq!(host_and_port(&url.parse().unwrap()), name);
    }

    #[rstest]
    #[case("http://example.com")]
    #[case("https://example.com:444")]
    #[case("https://www.example.com")]
    #[case("https://example.com.")]
    #[case("https://example.com@evil.example")]
    fn urls_of_different_origins_are_told_apart(#[case] other: &str) {
        let origin = |text: &str| Origin::of(&text.parse().unwrap()).unwrap();
        assert_ne!(origin("https://example.com"), origin(other));
    }
}
