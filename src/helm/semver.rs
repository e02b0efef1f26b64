/// A greater rank is newer. Lenient as in Helm (`v2.0.0`, `1.9`, `01.2.3`). Prereleases count, build metadata does not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Sorts after all valid versions, for example `latest` or `0.1.2.3`.
    NotAVersion,
    Version([u64; 3], Prerelease),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prerelease {
    Of(Vec<Identifier>),
    Release,
}

/// Numbers sort before words. As in Masterminds' semver, a number above 64 bits is a word.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identifier {
    Number(u64),
    Word(String),
}

impl Rank {
    #[must_use]
    pub fn of(version: &str) -> Self {
        parse(version).unwrap_or(Self::NotAVersion)
    }
}

/// As Masterminds' `NewVersion`, for example with a leading `v` or fewer than three numbers.
#[must_use]
pub fn is_version(text: &str) -> bool {
    parse(text).is_some()
}

fn parse(version: &str) -> Option<Rank> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let (version, metadata) = split_once_or_none(version, '+');
    let (numbers, prerelease) = split_once_or_none(version, '-');
    metadata
        .is_none_or(|metadata| metadata.split('.').all(is_identifier))
        .then_some(())?;

    let mut parts = [0; 3];
    let mut count = 0;
    for (index, number) in numbers.split('.').enumerate() {
        // `u64::from_str` would accept a leading plus sign.
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        *parts.get_mut(index).filter(|_| digits)? = number.parse().ok()?;
        count = index + 1;
    }
    (count > 0).then_some(())?;

    let prerelease = match prerelease {
        None => Prerelease::Release,
        Some(text) => Prerelease::Of(text.split('.').map(identifier).collect::<Option<_>>()?),
    };
    Some(Rank::Version(parts, prerelease))
}

fn split_once_or_none(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn is_identifier(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn identifier(text: &str) -> Option<Identifier> {
    is_identifier(text).then_some(())?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Identifier::Word(text.to_owned()));
    }
    // A prerelease number with a leading zero makes the whole version invalid.
    (text == "0" || !text.starts_with('0')).then_some(())?;
    Some(
        text.parse()
            .map_or_else(|_| Identifier::Word(text.to_owned()), Identifier::Number),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sorted(mut versions: Vec<&str>) -> Vec<&str> {
        versions.sort_by(|a, b| Rank::of(b).cmp(&Rank::of(a)));
        versions
    }

    #[test]
    fn versions_have_the_same_order_as_in_kubeapps() {
        let file = vec![
            "1.9",
            "latest",
            "1.0.0",
            "1.10.0-rc1",
            "1.0.0+b2",
            "v2.0.0",
            "1.10.0",
            "1.0.0+b10",
        ];
        let order = [
            "v2.0.0",
            "1.10.0",
            "1.10.0-rc1",
            "1.9",
            "1.0.0",
            "1.0.0+b2",
            "1.0.0+b10",
            "latest",
        ];
        assert_eq!(sorted(file), order);
    }

    #[test]
    fn prereleases_are_compared_identifier_by_identifier() {
        let order = [
            "1.0.0",
            "1.0.0-rc.1",
            "1.0.0-beta.11",
            "1.0.0-beta.2",
            "1.0.0-beta",
            "1.0.0-alpha.beta",
            "1.0.0-alpha.1",
            "1.0.0-alpha",
            "1.0.0-99999999999999999999",
            "1.0.0-12",
            "1.0.0-2",
        ];
        let mut file = order.to_vec();
        file.reverse();
        assert_eq!(sorted(file), order);
    }

    #[test]
    fn texts_that_helm_does_not_accept_are_not_versions() {
        for text in [
            "",
            "v",
            "latest",
            "0.1.2.3",
            "1..2",
            "1.",
            ".1",
            "1.0.0-",
            "1.0.0+",
            "1.0.0-01",
            "1.0.0-a..b",
            "1.0.0-ä",
            "V1",
            "vv1",
            " 1",
            "+1",
            "1.+2",
            "-1",
            "18446744073709551616",
            "1.0.0+a+b",
        ] {
            assert_eq!(Rank::of(text), Rank::NotAVersion, "{text:?}");
        }
        for text in [
            "1",
            "v1",
            "01.2.3",
            "1.9",
            "1.0.0--",
            "1.0.0-0",
            "1.0.0-0a",
            "1.0.0+01.-",
            "1-a-b",
        ] {
            assert_ne!(Rank::of(text), Rank::NotAVersion, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn strict_versions_are_ordered_as_in_the_specification(
            a in "[0-9]{1,2}\\.[0-3]\\.[0-3](-[a-b0-2]{1,2}(\\.[a-b1-2]{1,2})?)?",
            b in "[0-9]{1,2}\\.[0-3]\\.[0-3](-[a-b0-2]{1,2}(\\.[a-b1-2]{1,2})?)?",
        ) {
            if let (Ok(strict_a), Ok(strict_b)) = (semver::Version::parse(&a), semver::Version::parse(&b)) {
                prop_assert_eq!(Rank::of(&a).cmp(&Rank::of(&b)), strict_a.cmp_precedence(&strict_b));
            }
        }

        #[test]
        fn every_text_has_a_rank(text in ".*") {
            let _ = Rank::of(&text);
        }
    }
}
