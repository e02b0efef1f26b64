//! Parser of `WWW-Authenticate` headers.

/// Limit of challenges per header, and of parameters per challenge.
const MAX_ITEMS: usize = 16;

/// Longer schemes, names and values are dropped.
const MAX_TEXT_BYTES: usize = 4096;

/// A challenge (RFC 9110, section 11.6.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// In lower case.
    pub scheme: String,
    /// Names in lower case, values without quotes.
    pub parameters: Vec<(String, String)>,
}

impl Challenge {
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(parameter, _)| parameter == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Parses the challenges of a header. Skips invalid input up to the next comma.
#[must_use]
pub fn challenges(value: &[u8]) -> Vec<Challenge> {
    let mut scanner = Scanner { remaining: value };
    let mut challenges: Vec<Challenge> = Vec::new();
    loop {
        scanner.skip(|byte| is_space(byte) || byte == b',');
        if scanner.remaining.is_empty() {
            return challenges;
        }
        let word = scanner.take(is_token);
        scanner.skip(is_space);
        if scanner.eat(b'=') {
            scanner.parse_parameter(&word, challenges.last_mut());
            continue;
        }
        if word.is_empty() || word.len() > MAX_TEXT_BYTES || challenges.len() == MAX_ITEMS {
            scanner.skip(|byte| byte != b',');
            continue;
        }
        let mut challenge = Challenge {
            scheme: word.to_ascii_lowercase(),
            parameters: Vec::new(),
        };
        scanner.parse_first_parameter(&mut challenge);
        challenges.push(challenge);
    }
}

struct Scanner<'a> {
    remaining: &'a [u8],
}

impl Scanner<'_> {
    fn skip(&mut self, predicate: impl Fn(u8) -> bool) {
        let end = self.remaining.iter().position(|byte| !predicate(*byte));
        self.remaining = &self.remaining[end.unwrap_or(self.remaining.len())..];
    }

    fn take(&mut self, predicate: impl Fn(u8) -> bool) -> String {
        let before = self.remaining;
        self.skip(predicate);
        String::from_utf8_lossy(&before[..before.len() - self.remaining.len()]).into_owned()
    }

    fn eat(&mut self, byte: u8) -> bool {
        let rest = self.remaining.strip_prefix(&[byte]);
        self.remaining = rest.unwrap_or(self.remaining);
        rest.is_some()
    }

    /// Parses the first parameter. Skips `token68`, which Basic and Bearer challenges do not use.
    fn parse_first_parameter(&mut self, challenge: &mut Challenge) {
        if self.remaining.first().is_none_or(|byte| *byte == b',') {
            return;
        }
        let name = self.take(is_token);
        self.skip(is_space);
        if self.eat(b'=') {
            self.parse_parameter(&name, Some(challenge));
        } else {
            self.skip(|byte| byte != b',');
        }
    }

    fn parse_parameter(&mut self, name: &str, challenge: Option<&mut Challenge>) {
        self.skip(is_space);
        let value = if self.eat(b'"') {
            self.take_quoted()
        } else {
            self.take(|byte| byte != b',' && !is_space(byte))
        };
        self.skip(|byte| byte != b',');
        let is_valid = !name.is_empty() && name.len() <= MAX_TEXT_BYTES && value.len() <= MAX_TEXT_BYTES;
        if let Some(challenge) = challenge.filter(|challenge| is_valid && challenge.parameters.len() < MAX_ITEMS) {
            challenge.parameters.push((name.to_ascii_lowercase(), value));
        }
    }

    /// Parses a quoted string after its opening quote. The closing quote may be missing.
    fn take_quoted(&mut self) -> String {
        let mut value = Vec::new();
        while let Some((byte, rest)) = self.remaining.split_first() {
            self.remaining = rest;
            match byte {
                b'"' => break,
                b'\\' => {
                    if let Some((escaped, rest)) = rest.split_first() {
                        value.push(*escaped);
                        self.remaining = rest;
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

/// Returns true for a `tchar` (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn render(value: &str) -> Vec<String> {
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
    #[case::invalid_input(r#"=,"=,@@ x, Basic realm=y"#, &["basic realm<y>"])]
    fn challenges_are_parsed(#[case] value: &str, #[case] found: &[&str]) {
        assert_eq!(render(value), found);
    }

    #[test]
    fn challenges_parameters_and_values_are_limited() {
        assert_eq!(challenges("a, ".repeat(1_000).as_bytes()).len(), MAX_ITEMS);
        let parameters = format!("Basic {}", "a=b, ".repeat(1_000));
        assert_eq!(challenges(parameters.as_bytes())[0].parameters.len(), MAX_ITEMS);
        let long = format!("Basic a={}, b=c", "x".repeat(MAX_TEXT_BYTES + 1));
        assert_eq!(render(&long), ["basic b<c>"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3_000))]

        #[test]
        fn arbitrary_headers_never_panic(pieces in proptest::collection::vec(
            prop_oneof![
                proptest::sample::select(&["Bearer", "Basic ", "realm", "=", "\"", "\\", ",", " ", "a=b", "\"u\"", "é", "/", "\0"][..]).prop_map(|piece| piece.as_bytes().to_vec()),
                proptest::collection::vec(any::<u8>(), 0..4),
            ], 0..24,
        )) {
            for challenge in challenges(&pieces.concat()) {
                prop_assert!(!challenge.scheme.is_empty() && challenge.parameters.len() <= MAX_ITEMS);
            }
        }

        #[test]
        fn quoted_values_survive_a_round_trip(value in "[ -~]{0,40}") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let header = format!("Basic charset=x, Bearer realm=\"{quoted}\", service=s");
            let found = challenges(header.as_bytes());
            prop_assert_eq!(found[1].parameter("realm"), Some(value.as_str()));
            prop_assert_eq!(found[1].parameter("service"), Some("s"));
        }
    }
}
