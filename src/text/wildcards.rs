/// Returns true if a pattern matches the whole name; `*` stands for any characters.
///
/// Takes time linear in the length of the name: each part of a pattern is found after the part before it.
#[must_use]
pub fn matches_wildcards(pattern: &str, name: &str) -> bool {
    let Some((prefix, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = name.strip_prefix(prefix).and_then(|name| name.strip_suffix(suffix));
    let Some(mut inner) = inner else { return false };
    middle.split('*').all(|part| match inner.split_once(part) {
        _ if part.is_empty() => true,
        Some((_, after)) => {
            inner = after;
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        for (pattern, name) in [
            ("web", "web"),
            ("*", ""),
            ("w*", "web"),
            ("*b", "web"),
            ("w*e*b", "w-e-b"),
            ("a**", "a"),
        ] {
            assert!(matches_wildcards(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("web", "web-1"),
            ("", "web"),
            ("a*a", "a"),
            ("*x*", "web"),
            ("w*", "my-web"),
        ] {
            assert!(!matches_wildcards(pattern, name), "{pattern} {name}");
        }
    }
}
