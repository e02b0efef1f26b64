//! Names of ResourceTrackers. They are cluster-scoped, so the names contain the namespace.

use sha2::{Digest, Sha256};

use crate::api::NamespacedName;

/// Maximum length of the name of an object.
const MAX_NAME: usize = 253;

/// Length of the suffix of shortened names: a dash and eight hexadecimal digits.
const SUFFIX: usize = 9;

#[must_use]
pub fn root(app: &NamespacedName) -> String {
    shorten(format!("{}-{}", app.name, app.namespace))
}

#[must_use]
pub fn versioned(app: &NamespacedName, generation: i64, publish_version: Option<&str>) -> String {
    shorten(match publish_version {
        Some(version) => format!("{}-{version}-{}", app.name, app.namespace),
        None => format!("{}-v{generation}-{}", app.name, app.namespace),
    })
}

#[must_use]
pub fn component_revision(app: &NamespacedName) -> String {
    shorten(format!("{}-comp-rev-{}", app.name, app.namespace))
}

/// Shortens a name to [`MAX_NAME`], with a hash that keeps it unique.
fn shorten(name: String) -> String {
    if name.len() <= MAX_NAME {
        return name;
    }
    let digest = Sha256::digest(name.as_bytes());
    let hash: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let ends = name
        .char_indices()
        .map(|(start, character)| start + character.len_utf8());
    let end = ends.take_while(|end| *end <= MAX_NAME - SUFFIX).last().unwrap_or(0);
    // A dot before the dash would end a label of a DNS name with nothing.
    let prefix = name[..end].trim_end_matches(|character: char| !character.is_ascii_alphanumeric());
    format!("{prefix}-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(name: &str) -> NamespacedName {
        NamespacedName::new("shop", name)
    }

    #[test]
    fn names_are_those_of_kubevela() {
        assert_eq!(root(&app("web")), "web-shop");
        assert_eq!(versioned(&app("web"), 7, None), "web-v7-shop");
        assert_eq!(versioned(&app("web"), 7, Some("beta.1")), "web-beta.1-shop");
        assert_eq!(component_revision(&app("web")), "web-comp-rev-shop");
    }

    #[test]
    fn long_names_are_shortened_and_stay_unique() {
        let one = root(&app(&"a".repeat(249)));
        let two = root(&app(&"a".repeat(250)));
        assert_eq!(root(&app(&"a".repeat(248))).len(), MAX_NAME);
        assert_eq!((one.len(), two.len()), (MAX_NAME, MAX_NAME));
        assert_ne!(one, two);
        let (prefix, hash) = one.rsplit_once('-').unwrap();
        assert_eq!(prefix, "a".repeat(MAX_NAME - SUFFIX));
        assert!(hash.len() == 8 && hash.chars().all(|digit| digit.is_ascii_hexdigit()));
    }

    #[test]
    fn a_shortened_name_has_no_empty_label() {
        let dotted = format!("{}..{}", "a".repeat(242), "b".repeat(20));
        let name = root(&app(&dotted));
        assert!(name.starts_with(&format!("{}-", "a".repeat(242))), "{name}");
        assert!(!name.contains('.'), "{name}");
        let wide = root(&app(&"ü".repeat(200)));
        assert!(wide.len() <= MAX_NAME, "{wide}");
    }
}
