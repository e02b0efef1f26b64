//! References to charts in registries, as in the `urls` of a Helm index.

use url::Url;

use super::error::OciError;
use super::name;

/// Reference to a chart version: `oci://host/path/chart:tag`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChartReference {
    pub registry: Url,
    pub repository: String,
    pub reference: String,
}

impl ChartReference {
    /// Parses a reference. A digest has precedence over a tag; without both, the tag is derived from `version`.
    pub fn parse(text: &str, version: Option<&str>) -> Result<Self, OciError> {
        let invalid = |problem: &str| OciError::InvalidReference(problem.to_owned());
        let text = text.trim();
        let is_oci = text
            .get(..6)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("oci://"));
        let location = text.get(6..).filter(|_| is_oci);
        let location = location.ok_or_else(|| invalid("it does not start with oci://"))?;
        let (host, path) = location.split_once('/').ok_or_else(|| invalid("missing repository"))?;
        if host.contains('@') {
            return Err(invalid("it contains credentials; set them in spec.auth"));
        }
        // The error does not quote the text, which may contain a password.
        let registry = Url::parse(&format!("oci://{host}")).map_err(|error| invalid(&error.to_string()))?;
        if registry.host_str().is_none_or(str::is_empty)
            || !registry.path().is_empty()
            || registry.query().is_some()
            || registry.fragment().is_some()
        {
            return Err(invalid("missing or invalid host"));
        }

        let (path, digest) = split_last(path, '@');
        // A colon before the last slash makes the repository name invalid.
        let (repository, tag) = split_last(path, ':');
        if !name::is_repository_name(repository) {
            return Err(invalid("the path is not a valid repository name"));
        }
        let reference = match (digest, tag, version) {
            (Some(digest), ..) if name::is_digest(digest) => digest.to_owned(),
            (Some(_), ..) => return Err(invalid("unsupported digest, expected SHA-256")),
            (None, Some(tag), _) => tag.to_owned(),
            (None, None, Some(version)) => name::tag_of(version),
            (None, None, None) => return Err(invalid("missing tag or digest")),
        };
        if digest.is_none() && !name::is_tag(&reference) {
            return Err(invalid("invalid tag"));
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
    fn references_are_parsed_as_in_helm(
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
    fn a_digest_has_precedence_over_a_tag(#[values("oci://r/a/chart", "oci://r/a/chart:1.0.0")] text: &str
    ) {
        let found = ChartReference::parse(&format!("{text}@{DIGEST}"), Some("2.0.0")).unwrap();
        assert_eq!(
            (found.repository.as_str(), found.reference.as_str()),
            ("a/chart", DIGEST)
        );
    }

    #[rstest]
    fn an_invalid_reference_is_rejected_without_being_printed(
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
        fn any_text_is_rejected_or_yields_valid_names(
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
