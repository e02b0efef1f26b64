/// The specification has no limit, but recommends 255 for compatibility.
const MAX_NAME_BYTES: usize = 255;

const MAX_TAG_BYTES: usize = 128;

/// Returns true for a valid repository name (OCI distribution specification, section "Pulling manifests").
/// Also accepts upper case letters, which Artifactory uses. Valid names need no escaping in a URL.
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
    text.len() <= MAX_NAME_BYTES && text.split('/').all(is_segment)
}

/// Returns true for a valid tag: `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`.
#[must_use]
pub fn is_tag(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= MAX_TAG_BYTES
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|byte| is_word(byte) || b".-".contains(&byte))
}

/// Returns true for a SHA-256 digest. Charts do not use other algorithms of the OCI image specification.
#[must_use]
pub fn is_digest(text: &str) -> bool {
    let is_lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.strip_prefix("sha256:")
        .is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_lower_hex))
}

/// Returns Helm's tag of a version, with `_` for the `+` of build metadata.
#[must_use]
pub fn tag_of(version: &str) -> String {
    version.replace('+', "_")
}

/// Returns Helm's version of a tag, the inverse of [`tag_of`].
#[must_use]
pub fn version_of(tag: &str) -> String {
    tag.replace('_', "+")
}

/// Returns true if a tag is a version by Helm's lenient rules: a leading `v`, optional minor and patch numbers.
#[must_use]
pub fn is_version(tag: &str) -> bool {
    crate::helm::index::is_version(&version_of(tag))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    fn names_used_by_registries_are_valid(
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
    fn names_with_a_special_meaning_in_urls_are_invalid(
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
    fn tags_follow_the_grammar_of_the_specification(#[case] tag: &str, #[case] is_valid: bool) {
        assert_eq!(is_tag(tag), is_valid);
        assert!(is_tag(&"a".repeat(128)) && !is_tag(&"a".repeat(129)));
    }

    #[test]
    fn only_sha256_digests_are_valid() {
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
    fn version_tags_are_recognized(#[case] tag: &str, #[case] version: bool) {
        assert_eq!(is_version(tag), version);
    }

    #[test]
    fn build_metadata_survives_the_conversion_to_a_tag() {
        assert_eq!(tag_of("1.0.0-rc.1+b.2"), "1.0.0-rc.1_b.2");
        assert_eq!(version_of("1.0.0-rc.1_b.2"), "1.0.0-rc.1+b.2");
        assert_eq!(version_of("v1.0.0"), "v1.0.0");
    }
}
