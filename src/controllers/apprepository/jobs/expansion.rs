//! Escapes texts of tenants: Kubernetes replaces `$(NAME)` in arguments and variables. A repository of the URL
//! `https://host/$(DB_PASSWORD)` would else send the password of the database to `host`.

/// Returns a text that Kubernetes expands to `text`.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        let run = from.len() - from.trim_start_matches('$').len();
        let after = &from[run..];
        escaped.push_str(before);
        // A single `$` stays, unless it starts an expression.
        let copies = if run == 1 && !after.starts_with('(') {
            1
        } else {
            2 * run
        };
        escaped.extend(std::iter::repeat_n('$', copies));
        rest = after;
    }
    escaped.push_str(rest);
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    /// Expands as Kubernetes does (third_party/forked/golang/expansion), with every variable set to `SECRET`.
    fn expand(text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            let after = &rest[at + 1..];
            if let Some(more) = after.strip_prefix('$') {
                out.push('$');
                rest = more;
            } else if let Some(end) = after.strip_prefix('(').and_then(|inner| inner.find(')')) {
                out.push_str("SECRET");
                rest = &after[end + 2..];
            } else {
                out.push('$');
                rest = after;
            }
        }
        out + rest
    }

    #[rstest]
    #[case(".name == $var1", ".name == $var1")]
    #[case("https://host/$(DB_PASSWORD)", "https://host/$$(DB_PASSWORD)")]
    #[case("$$(DB_PASSWORD)", "$$$$(DB_PASSWORD)")]
    #[case("$", "$")]
    fn only_what_would_be_expanded_is_escaped(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(escape(text), expected);
    }

    proptest! {
        #[test]
        fn an_escaped_text_expands_to_itself(text in "[$(a)]{0,12}") {
            prop_assert_eq!(expand(&escape(&text)), text);
        }
    }
}
