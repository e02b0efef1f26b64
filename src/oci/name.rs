//! The grammars of what stands in a registry's paths: repositories, tags, digests.

/// Bytes that the name of a repository may have. The specification has no bound of its own and says that many clients
/// keep to 255.
const NAME_BYTES: usize = 255;

/// Bytes that a tag may have.
const TAG_BYTES: usize = 128;

/// Whether a text is a repository's name: path segments of letters, digits, and `.`, `_`, `-` within them.
///
/// A little wider than the OCI distribution specification, section "Pulling manifests": capitals are let in, since
/// Artifactory's repositories have them. Nothing that is let in means anything else than itself in a URL.
#[must_use]
pub fn is_repository_name(text: &str) -> bool {
    let is_segment = |segment: &str| {
        let ends = [segment.bytes().next(), segment.bytes().next_back()];
        ends.iter()
            .all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
            && segment
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    text.len() <= NAME_BYTES && text.split('/').all(is_segment)
}

/// Whether a text is a tag: `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`, as the OCI distribution specification has it in section
/// "Pulling manifests".
#[must_use]
pub fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= TAG_BYTES
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || b".-".contains(&byte))
}

/// Whether a text is a SHA-256 digest, `sha256:` and 64 small hexadecimal digits. The OCI image specification, section
/// "Digests", knows other algorithms too; nobody's charts use them, and we refuse what we can't check.
#[must_use]
pub fn is_digest(text: &str) -> bool {
    let is_small_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_small_hex))
}

/// The tag under which Helm publishes a version: a tag can't hold the `+` of build metadata, so `_` stands for it.
#[must_use]
pub fn tag_of(version: &str) -> String {
    version.replace('+', "_")
}

/// The version that Helm means by a tag: the opposite of [`tag_of`].
#[must_use]
pub fn version_of(tag: &str) -> String {
    tag.replace('_', "+")
}

/// Whether a tag means a version, read as leniently as Helm reads one: with a leading `v`, or without minor and patch
/// numbers. `latest` and `sha256-….sig`, the tags of signatures, are none.
#[must_use]
pub fn is_version(tag: &str) -> bool {
    crate::helm::index::is_version(&version_of(tag))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    fn names_that_registries_have_are_taken(
        #[values(
            "a",
            "nginx",
            "bitnamicharts/nginx",
            "a/b/c",
            "a.b_c--d/e__f",
            "Helm-Local/Chart",
            "0"
        )]
        name: &str,
    ) {
        assert!(is_repository_name(name));
    }

    #[rstest]
    fn names_that_would_lead_elsewhere_in_a_url_are_refused(
        #[values(
            "", "/", "a/", "/a", "a//b", ".", "..", "a/../b", "a/./b", "a?b", "a#b", "a%2Fb", "a b", "a:b", "a@b", "é",
            "-a", "a-", "a\nb", "a\\b", "a\0"
        )]
        name: &str,
    ) {
        assert!(!is_repository_name(name));
        assert!(!is_repository_name(&"a".repeat(256)));
    }

    #[rstest]
    #[case("1.2.3", true)]
    #[case("v1.2.3_build.7", true)]
    #[case("_x", true)]
    #[case("sha256-0a.sig", true)]
    #[case("", false)]
    #[case(".a", false)]
    #[case("-a", false)]
    #[case("1.0.0+b", false)]
    #[case("a/b", false)]
    #[case("a b", false)]
    fn tags_keep_to_the_grammar_of_the_specification(#[case] tag: &str, #[case] good: bool) {
        assert_eq!(is_tag(tag), good);
        assert!(is_tag(&"a".repeat(128)) && !is_tag(&"a".repeat(129)));
    }

    #[test]
    fn only_sha256_is_a_digest_that_can_be_checked() {
        let hex = "0123456789abcdef".repeat(4);
        assert!(is_digest(&format!("sha256:{hex}")));
        for other in [
            hex.clone(),
            format!("sha512:{hex}{hex}"),
            format!("sha256:{}", hex.to_uppercase()),
            format!("sha256:{hex}0"),
            "sha256:".to_owned(),
            format!("SHA256:{hex}"),
        ] {
            assert!(!is_digest(&other), "{other}");
        }
    }

    #[rstest]
    #[case("1.2.3", true)]
    #[case("v0.27.1", true)]
    #[case("1.0", true)]
    #[case("2", true)]
    #[case("1.2.3_build", true)]
    #[case("1.2.3-rc.1_a.b", true)]
    #[case("latest", false)]
    #[case("sha256-0a1b.sig", false)]
    #[case("1.2.3.4", false)]
    #[case("1.2.3_a_b", false)]
    #[case("", false)]
    fn tags_that_mean_versions_are_told_from_others(#[case] tag: &str, #[case] version: bool) {
        assert_eq!(is_version(tag), version);
    }

    #[test]
    fn build_metadata_goes_into_a_tag_and_comes_back() {
        assert_eq!(tag_of("1.0.0-rc.1+b.2"), "1.0.0-rc.1_b.2");
        assert_eq!(version_of("1.0.0-rc.1_b.2"), "1.0.0-rc.1+b.2");
        assert_eq!(version_of("v1.0.0"), "v1.0.0");
    }
}
