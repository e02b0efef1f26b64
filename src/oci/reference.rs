//! Where a chart stands in a registry: `oci://host/path/chart:tag`, as in the `urls` of a Helm index.

use url::Url;

use super::error::OciError;
use super::name;

/// The reference of one version of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartReference {
    /// The registry: scheme, host and port, nothing else.
    pub registry: Url,
    /// The repository: the whole path.
    pub repository: String,
    /// A tag, or a digest where the reference is pinned to one.
    pub reference: String,
}

impl ChartReference {
    /// Reads `oci://host/path/chart:tag`, `oci://host/path/chart@sha256:…` (the digest counts where there is a tag too), or
    /// `oci://host/path/chart`, whose tag is then that of `version`.
    ///
    /// # Errors
    /// [`OciError::InvalidReference`] when it is none of these.
    pub fn parse(text: &str, version: Option<&str>) -> Result<Self, OciError> {
        let invalid = |problem: &str| OciError::InvalidReference(problem.to_owned());
        let text = text.trim();
        let is_oci = text
            .get(..6)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("oci://"));
        let rest = text.get(6..).filter(|_| is_oci);
        let rest = rest.ok_or_else(|| invalid("it does not begin with oci://"))?;
        let (host, path) = rest.split_once('/').ok_or_else(|| invalid("it names no repository"))?;
        if host.contains('@') {
            return Err(invalid("it holds credentials; give them to the repository's spec.auth"));
        }
        // The text itself is not shown: what can't be parsed can't be rid of a password either.
        let registry = Url::parse(&format!("oci://{host}")).map_err(|error| invalid(&error.to_string()))?;
        if registry.host_str().is_none_or(str::is_empty)
            || !registry.path().is_empty()
            || registry.query().is_some()
            || registry.fragment().is_some()
        {
            return Err(invalid("it names no host"));
        }

        let (path, digest) = split_last(path, '@');
        // A colon before the last slash would be none of a tag.
        let (repository, tag) = split_last(path, ':');
        if !name::is_repository_name(repository) {
            return Err(invalid("its path is no repository's name"));
        }
        let reference = match (digest, tag, version) {
            (Some(digest), ..) if name::is_digest(digest) => digest.to_owned(),
            (Some(_), ..) => return Err(invalid("its digest is no SHA-256 digest, the only kind that is taken")),
            (None, Some(tag), _) => tag.to_owned(),
            (None, None, Some(version)) => name::tag_of(version),
            (None, None, None) => return Err(invalid("it has neither a tag nor a digest")),
        };
        if digest.is_none() && !name::is_tag(&reference) {
            return Err(invalid("its tag is none"));
        }
        Ok(Self {
            registry,
            repository: repository.to_owned(),
            reference,
        })
    }
}

fn split_last(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.rsplit_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[rstest]
    #[case("oci://r.example.com/a/chart:1.0.0", None, "oci://r.example.com", "a/chart", "1.0.0")]
    #[case(
        " OCI://r.example.com:5000/chart:v1_b ",
        Some("2.0.0"),
        "oci://r.example.com:5000",
        "chart",
        "v1_b"
    )]
    #[case("oci://r/a/chart", Some("1.0.0+b.1"), "oci://r", "a/chart", "1.0.0_b.1")]
    #[case("oci://[::1]:5000/chart:1.0.0", None, "oci://[::1]:5000", "chart", "1.0.0")]
    fn references_are_read_as_helm_reads_them(
        #[case] text: &str,
        #[case] version: Option<&str>,
        #[case] registry: &str,
        #[case] repository: &str,
        #[case] reference: &str,
    ) {
        let found = ChartReference::parse(text, version).unwrap();
        assert_eq!(found.registry.as_str(), registry);
        assert_eq!(
            (found.repository.as_str(), found.reference.as_str()),
            (repository, reference)
        );
    }

    #[rstest]
    fn a_digest_counts_more_than_a_tag(#[values("oci://r/a/chart", "oci://r/a/chart:1.0.0")] text: &str
    ) {
        let found = ChartReference::parse(&format!("{text}@{DIGEST}"), Some("2.0.0")).unwrap();
        assert_eq!(
            (found.repository.as_str(), found.reference.as_str()),
            ("a/chart", DIGEST)
        );
    }

    #[rstest]
    fn what_is_no_reference_is_refused_without_being_shown(
        #[values(
            "",
            "oci://",
            "oci://secret",
            "oci://secret/",
            "oci:///secret:1.0.0",
            "https://secret/chart:1.0.0",
            "oci://user:secret@r/chart:1.0.0",
            "oci://secret/chart",
            "oci://r/secret/../chart:1.0.0",
            "oci://r/secret:1.0.0/chart",
            "oci://r/secret:",
            "oci://r/secret@sha256:00",
            "oci://r/secret@sha512:00",
            "oci://r?secret/chart:1.0.0",
            "oci://r/chart:1.0.0?secret",
            "oci://r#secret/chart:1.0.0",
            "ocí://secret/"
        )]
        text: &str,
    ) {
        let error = ChartReference::parse(text, None).unwrap_err();
        assert_eq!((error.reason(), error.is_transient()), ("InvalidReference", false));
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn no_text_is_too_odd_and_what_is_taken_keeps_to_the_grammar(
            text in "(oci://)?[a-z:@/.\\[\\]%?#é0-9-]{0,24}|.*", version in proptest::option::of(".{0,8}"),
        ) {
            if let Ok(found) = ChartReference::parse(&text, version.as_deref()) {
                prop_assert!(name::is_repository_name(&found.repository));
                prop_assert!(name::is_tag(&found.reference) || name::is_digest(&found.reference));
                prop_assert!(found.registry.host_str().is_some_and(|host| !host.is_empty()));
            }
        }
    }
}
