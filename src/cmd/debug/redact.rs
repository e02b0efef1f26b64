//! Removes what may be secret from texts.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

const REDACTED: &str = "REDACTED";

/// Removes user information, queries and fragments from URLs, and the values of headers and settings whose names promise a
/// secret.
pub fn redact(text: &str) -> String {
    let text = replace(&URL, text, |found| url(&found[0]));
    let text = replace(&CREDENTIALS, &text, |found| format!("{} {REDACTED}", &found[1]));
    let text = replace(&SETTING, &text, |found| match &found[3] {
        value @ ("null" | "true" | "false") => format!("{}{}{value}", &found[1], &found[2]),
        _ => format!("{}{}{REDACTED}", &found[1], &found[2]),
    });
    replace(&PRIVATE_KEY, &text, |_| REDACTED.to_owned()).into_owned()
}

#[expect(clippy::expect_used, reason = "the patterns are constant, and tested")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

static URL: LazyLock<Regex> = LazyLock::new(|| pattern(r#"(?i)\b[a-z][a-z0-9+.-]*://[^\s"'<>`\\]+"#));
static CREDENTIALS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(bearer|basic|digest|negotiate)\s+[A-Za-z0-9._~+/=:-]{4,}"));
/// A name and its value, as in `password=x`, `"token": "x"` and `api-key: x`.
static SETTING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)([a-z0-9_.-]*(?:password|passwd|passphrase|token|api[_-]?key|secret[_-]?key|access[_-]?key|authorization|credential)s?["']?)(\s*[=:]\s*["']?)([^\s"',;&{}\[\]]+)"#,
    )
});
static PRIVATE_KEY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"));

fn replace<'a>(pattern: &Regex, text: &'a str, with: impl Fn(&Captures<'_>) -> String) -> Cow<'a, str> {
    pattern.replace_all(text, with)
}

/// Removes user information, query and fragment without parsing: what is no valid URL may hold a secret too.
fn url(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let end = rest.find('/').unwrap_or(rest.len());
    // A password may contain a slash that is not encoded.
    let rest = match rest.rfind('@') {
        Some(at) if at < end || rest[..at].contains(':') => &rest[at + 1..],
        _ => rest,
    };
    format!("{scheme}://{rest}")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(
        "get https://me:hunter2@host:1/a?token=hunter2#hunter2, retrying",
        "get https://host:1/a retrying"
    )]
    #[case("postgres://me:hun/ter2@host/db", "postgres://host/db")]
    #[case("oci://host/a@sha256", "oci://host/a@sha256")]
    #[case("Authorization: Bearer hunter2", "Authorization: REDACTED REDACTED")]
    #[case("header \"Basic aHVudGVyMg==\"", "header \"Basic REDACTED\"")]
    #[case("{\"password\": \"hunter2\", \"x\": 1}", "{\"password\": \"REDACTED\", \"x\": 1}")]
    #[case("{\"passCredentials\": null}", "{\"passCredentials\": null}")]
    #[case("DB_PASSWORD=hunter2 next", "DB_PASSWORD=REDACTED next")]
    #[case("api-key: hunter2", "api-key: REDACTED")]
    #[case(
        "a -----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY----- b",
        "a REDACTED b"
    )]
    #[case("a -----BEGIN PRIVATE KEY-----\nhunter2", "a REDACTED")]
    #[case("name=stable, namespace: default", "name=stable, namespace: default")]
    fn secrets_are_removed_from_texts(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(redact(text), expected);
    }
}
