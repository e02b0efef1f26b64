//! What a registry wants to see before it answers: the header `WWW-Authenticate`.

/// Challenges of one header that are kept, and parameters of one challenge. Real ones have two, and three.
const KEPT: usize = 16;

/// Bytes of a scheme, name or value that are kept; one that is longer is left out.
const TEXT_BYTES: usize = 4096;

/// One way to authenticate, as RFC 9110, section 11.6.1, has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// The scheme, in lower case: `basic`, `bearer`.
    pub scheme: String,
    /// Names in lower case, and values without their quotes.
    pub parameters: Vec<(String, String)>,
}

impl Challenge {
    /// The value of a parameter; of the first where it stands twice.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Reads a value of the header `WWW-Authenticate`, which may hold several challenges. What breaks the grammar is passed
/// over up to the next comma, so that any bytes give some list.
#[must_use]
pub fn challenges(value: &[u8]) -> Vec<Challenge> {
    let mut scanner = Scanner { rest: value };
    let mut found: Vec<Challenge> = Vec::new();
    loop {
        scanner.skip(|byte| is_space(byte) || byte == b',');
        if scanner.rest.is_empty() {
            return found;
        }
        let word = scanner.take(is_token);
        scanner.skip(is_space);
        if scanner.eat(b'=') {
            scanner.parameter(&word, found.last_mut());
            continue;
        }
        if word.is_empty() || word.len() > TEXT_BYTES || found.len() == KEPT {
            scanner.skip(|byte| byte != b',');
            continue;
        }
        let mut challenge = Challenge {
            scheme: word.to_ascii_lowercase(),
            parameters: Vec::new(),
        };
        scanner.after_scheme(&mut challenge);
        found.push(challenge);
    }
}

struct Scanner<'a> {
    rest: &'a [u8],
}

impl Scanner<'_> {
    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        let end = self.rest.iter().position(|byte| !wanted(*byte));
        self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
    }

    fn take(&mut self, wanted: impl Fn(u8) -> bool) -> String {
        let before = self.rest;
        self.skip(wanted);
        String::from_utf8_lossy(&before[..before.len() - self.rest.len()]).into_owned()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// The first parameter, or `token68`, the other form that may stand behind a scheme and which none of ours uses.
    fn after_scheme(&mut self, challenge: &mut Challenge) {
        if self.rest.first().is_none_or(|byte| *byte == b',') {
            return;
        }
        let name = self.take(is_token);
        self.skip(is_space);
        if self.eat(b'=') {
            self.parameter(&name, Some(challenge));
        } else {
            self.skip(|byte| byte != b',');
        }
    }

    /// The value of a parameter, and whatever stands between it and the next comma.
    fn parameter(&mut self, name: &str, challenge: Option<&mut Challenge>) {
        self.skip(is_space);
        let value = if self.eat(b'"') {
            self.quoted()
        } else {
            self.take(|byte| byte != b',' && !is_space(byte))
        };
        self.skip(|byte| byte != b',');
        let is_kept = !name.is_empty() && name.len() <= TEXT_BYTES && value.len() <= TEXT_BYTES;
        if let Some(challenge) = challenge.filter(|challenge| is_kept && challenge.parameters.len() < KEPT) {
            challenge.parameters.push((name.to_ascii_lowercase(), value));
        }
    }

    /// The rest of a quoted string. One that never ends goes up to the end.
    fn quoted(&mut self) -> String {
        let mut value = Vec::new();
        while let Some((byte, rest)) = self.rest.split_first() {
            self.rest = rest;
            match byte {
                b'"' => break,
                b'\\' => {
                    if let Some((escaped, rest)) = rest.split_first() {
                        value.push(*escaped);
                        self.rest = rest;
                    }
                }
                byte => value.push(*byte),
            }
        }
        String::from_utf8_lossy(&value).into_owned()
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn shown(value: &str) -> Vec<String> {
        let text = |challenge: Challenge| {
            let pairs = challenge
                .parameters
                .iter()
                .map(|(name, value)| format!(" {name}<{value}>"));
            challenge.scheme.clone() + &pairs.collect::<String>()
        };
        challenges(value.as_bytes()).into_iter().map(text).collect()
    }

    #[rstest]
    #[case::docker_hub(
        r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull,push""#,
        &["bearer realm<https://auth.docker.io/token> service<registry.docker.io> scope<repository:a/b:pull,push>"]
    )]
    #[case::plain("Basic realm=registry", &["basic realm<registry>"])]
    #[case::no_parameters("Negotiate", &["negotiate"])]
    #[case::several(
        r#"Basic realm="a, b" , charset="UTF-8", bearer REALM = "https://a/t" ,Negotiate"#,
        &["basic realm<a, b> charset<UTF-8>", "bearer realm<https://a/t>", "negotiate"]
    )]
    #[case::token68(r"NTLM TlRMTVNTUAACA/+A==, Basic realm=x", &["ntlm", "basic realm<x>"])]
    #[case::short_token68(r#"Negotiate YII=, Bearer realm="u""#, &["negotiate yii<>", "bearer realm<u>"])]
    #[case::escapes(r#"Basic realm="a\"b\\c""#, &[r#"basic realm<a"b\c>"#])]
    #[case::empty_elements(r#",, Bearer ,realm="u",,service=s"#, &["bearer realm<u> service<s>"])]
    #[case::unquoted_words("Basic realm=Registry Realm, Bearer realm=u", &["basic realm<Registry>", "bearer realm<u>"])]
    #[case::never_closed(r#"Bearer realm="https://a/t"#, &["bearer realm<https://a/t>"])]
    #[case::no_scheme(r#"realm="u", Basic realm=x"#, &["basic realm<x>"])]
    #[case::nothing("", &[])]
    #[case::rubbish(r#"=,"=,@@ x, Basic realm=y"#, &["basic realm<y>"])]
    fn challenges_are_read_as_they_are_written(#[case] value: &str, #[case] found: &[&str]) {
        assert_eq!(shown(value), found);
    }

    #[test]
    fn a_header_that_goes_on_and_on_costs_no_more_than_others() {
        assert_eq!(challenges("a, ".repeat(1_000).as_bytes()).len(), KEPT);
        let parameters = format!("Basic {}", "a=b, ".repeat(1_000));
        assert_eq!(challenges(parameters.as_bytes())[0].parameters.len(), KEPT);
        let long = format!("Basic a={}, b=c", "x".repeat(TEXT_BYTES + 1));
        assert_eq!(shown(&long), ["basic b<c>"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn no_header_is_too_odd(pieces in proptest::collection::vec(
            prop_oneof![
                proptest::sample::select(&["Bearer", "Basic ", "realm", "=", "\"", "\\", ",", " ", "a=b", "\"u\"", "é", "/", "\0"][..]).prop_map(|piece| piece.as_bytes().to_vec()),
                proptest::collection::vec(any::<u8>(), 0..4),
            ], 0..24,
        )) {
            for challenge in challenges(&pieces.concat()) {
                prop_assert!(!challenge.scheme.is_empty() && challenge.parameters.len() <= KEPT);
            }
        }

        #[test]
        fn a_quoted_value_comes_back_as_it_was(value in "[ -~]{0,40}") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let header = format!("Basic charset=x, Bearer realm=\"{quoted}\", service=s");
            let found = challenges(header.as_bytes());
            prop_assert_eq!(found[1].parameter("realm"), Some(value.as_str()));
            prop_assert_eq!(found[1].parameter("service"), Some("s"));
        }
    }
}
