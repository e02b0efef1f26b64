/// Returns the target of the link with the relation `next` (RFC 8288, section 3).
#[must_use]
pub fn next_link(value: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(value).ok()?;
    let mut remaining = text;
    loop {
        let (target, after) = remaining.split_once('<')?.1.split_once('>')?;
        let (parameters, next) = split_link(after);
        if parameters.iter().any(|parameter| is_next(parameter)) {
            return Some(target.trim().to_owned());
        }
        remaining = next;
    }
}

/// Returns the parameters of a link, and the text after its comma. Ignores separators within quotes.
fn split_link(text: &str) -> (Vec<&str>, &str) {
    let mut parameters = Vec::new();
    let (mut start, mut is_quoted, mut is_escaped) = (0, false, false);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b';' | b',' if !is_quoted => {
                parameters.push(&text[start..index]);
                start = index + 1;
                if byte == b',' {
                    return (parameters, &text[start..]);
                }
            }
            _ => {}
        }
    }
    parameters.push(&text[start..]);
    (parameters, "")
}

fn is_next(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else {
        return false;
    };
    let mut relations = value.trim().trim_matches('"').split_ascii_whitespace();
    name.trim().eq_ignore_ascii_case("rel") && relations.any(|relation| relation.eq_ignore_ascii_case("next"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(r#"</v2/a/tags/list?last=b&n=2>; rel="next""#, Some("/v2/a/tags/list?last=b&n=2"))]
    #[case(r"<https://r/x>;rel=next", Some("https://r/x"))]
    #[case(r#"<a,b;c>; title="x, <y>; rel=next"; REL="prev Next""#, Some("a,b;c"))]
    #[case(r#"<a>; rel="prev", <b>; rel="next", <c>; rel="last""#, Some("b"))]
    #[case(r#"<a>; title="\", <z>; rel=next", <b>; rel=next"#, Some("b"))]
    #[case(r#"<a>; rel="prev""#, None)]
    #[case(r#"<a>; rel="nextish""#, None)]
    #[case("<a>", None)]
    #[case("<a", None)]
    #[case("a>; rel=next", None)]
    #[case("", None)]
    fn the_next_link_is_found_among_others(#[case] value: &str, #[case] target: Option<&str>) {
        assert_eq!(next_link(value.as_bytes()).as_deref(), target);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn arbitrary_headers_never_panic(value in "[<>;,\"\\\\= a\u{e9}]{0,30}|.*", bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            let _ = next_link(value.as_bytes());
            let _ = next_link(&bytes);
        }
    }
}
