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

/// Host and port, by which limits are kept.
pub(super) fn host_and_port(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}:{port}", url.host_str().unwrap_or_default())
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
}
