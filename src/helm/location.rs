//! The location of an archive, by its URL in an index.

use url::Url;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveLocation {
    Web(Url),
    /// `oci://host/path/chart:tag`.
    Registry(String),
    /// Path relative to the directory of a `file:` index, percent-encoded.
    File(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the URL of the archive {0}")]
pub struct InvalidLocation(&'static str);

/// Resolves `text` as Helm does: a relative URL inherits the query of the repository's URL, where some servers expect a
/// token, unless it points to another server.
pub fn locate_archive(text: &str, repository: &str) -> Result<ArchiveLocation, InvalidLocation> {
    let text = text.trim();
    if text.is_empty() {
        return Err(InvalidLocation("is empty"));
    }
    if is_reference(text) {
        return Ok(ArchiveLocation::Registry(text.to_owned()));
    }
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(ArchiveLocation::Web(url)),
        Ok(_) => Err(InvalidLocation("has an unsupported scheme; use http, https or oci")),
        Err(url::ParseError::RelativeUrlWithoutBase) if repository.starts_with("file:") => {
            Ok(ArchiveLocation::File(text.to_owned()))
        }
        Err(url::ParseError::RelativeUrlWithoutBase) => resolve(text, repository)
            .ok_or(InvalidLocation("can't be resolved"))
            .map(ArchiveLocation::Web),
        Err(_) => Err(InvalidLocation("is not valid")),
    }
}

/// Returns true for a chart in a registry.
#[must_use]
pub fn is_reference(url: &str) -> bool {
    let scheme = url.trim_start().get(..6);
    scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("oci://"))
}

fn resolve(text: &str, repository: &str) -> Option<Url> {
    let repository = Url::parse(repository).ok()?;
    let mut base = repository.clone();
    if !base.path().ends_with('/') {
        base.set_path(&format!("{}/", base.path()));
    }
    let mut url = base.join(text).ok()?;
    // `//elsewhere/a.tgz` is relative too, and must not get the token.
    if url.query().is_none() && url.origin() == repository.origin() {
        url.set_query(repository.query());
    }
    matches!(url.scheme(), "http" | "https").then_some(url)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::absolute("https://elsewhere.example/a-1.tgz", "https://elsewhere.example/a-1.tgz")]
    #[case::relative("a-1.tgz", "https://charts.example/stable/a-1.tgz")]
    #[case::in_a_folder("charts/a-1.tgz", "https://charts.example/stable/charts/a-1.tgz")]
    #[case::from_the_root("/archives/a-1.tgz", "https://charts.example/archives/a-1.tgz")]
    #[case::another_host("//elsewhere.example/a-1.tgz", "https://elsewhere.example/a-1.tgz")]
    #[case::escaped(
        "charts/my%20chart-1.0.0+build.tgz",
        "https://charts.example/stable/charts/my%20chart-1.0.0+build.tgz"
    )]
    #[case::a_blank("my chart-1.tgz", "https://charts.example/stable/my%20chart-1.tgz")]
    #[case::with_a_query("a-1.tgz?x=y", "https://charts.example/stable/a-1.tgz?x=y")]
    fn an_archive_url_is_resolved_against_the_repository(#[case] text: &str, #[case] url: &str) {
        for repository in ["https://charts.example/stable", "https://charts.example/stable/"] {
            assert_eq!(
                locate_archive(text, repository).unwrap(),
                ArchiveLocation::Web(Url::parse(url).unwrap())
            );
        }
    }

    #[test]
    fn a_relative_archive_keeps_the_query_of_its_repository() {
        let url = Url::parse("https://charts.example/stable/a-1.tgz?token=x").unwrap();
        assert_eq!(
            locate_archive("a-1.tgz", "https://charts.example/stable?token=x").unwrap(),
            ArchiveLocation::Web(url)
        );
    }

    #[rstest]
    fn an_archive_on_another_host_does_not_inherit_the_query(
        #[values(
            "//elsewhere.example/a-1.tgz",
            "\\\\elsewhere.example\\a-1.tgz",
            "//charts.example:8443/a-1.tgz"
        )]
        text: &str,
    ) {
        let ArchiveLocation::Web(url) = locate_archive(text, "https://charts.example/stable?token=x").unwrap() else {
            panic!("{text}")
        };
        assert_eq!(url.query(), None, "{url}");
    }

    #[test]
    fn an_archive_may_be_in_a_registry_or_next_to_a_file() {
        let reference = "oci://registry.example/charts/a:1";
        assert_eq!(
            locate_archive(reference, "https://charts.example").unwrap(),
            ArchiveLocation::Registry(reference.to_owned())
        );
        assert_eq!(
            locate_archive("charts/a-1.tgz", "file:./repo").unwrap(),
            ArchiveLocation::File("charts/a-1.tgz".to_owned())
        );
        assert_eq!(
            locate_archive("my%20chart-1.0.0+b%2b.tgz", "file:./repo").unwrap(),
            ArchiveLocation::File("my%20chart-1.0.0+b%2b.tgz".to_owned())
        );
    }

    #[rstest]
    fn unsupported_urls_are_refused(
        #[values(
            "",
            " ",
            "file:///etc/passwd",
            "ftp://a/b",
            "javascript:alert(1)",
            "https://[",
            "data:,x"
        )]
        text: &str,
    ) {
        for repository in ["https://charts.example", "file:./repo"] {
            assert!(locate_archive(text, repository).is_err(), "{text}");
        }
    }
}
