//! Removes what may be secret from texts.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

const REDACTED: &str = "REDACTED";

/// Removes user information, queries and fragments from URLs, and the values of headers and settings whose names
/// promise a secret.
pub fn redact(text: &str) -> String {
    let text = replace(&ADDRESS, text, |found| value_of(found, &|value| url(value, true)));
    let text = replace(&URL, &text, |found| url(&found[0], false));
    let text = replace(&CREDENTIALS, &text, |found| format!("{} {REDACTED}", &found[1]));
    let text = replace(&SETTING, &text, |found| match found.name("literal") {
        Some(_) => found[0].to_owned(),
        None => value_of(found, &|_| REDACTED.to_owned()),
    });
    replace(&PRIVATE_KEY, &text, |_| REDACTED.to_owned()).into_owned()
}

/// Same for the whole value of a setting.
pub fn redact_setting(name: &str, value: &str) -> String {
    let name = name.to_ascii_lowercase().replace('_', "-");
    if name.ends_with("database-url") || name.ends_with("-proxy") {
        redact(&url(value, true))
    } else {
        redact(value)
    }
}

fn value_of(found: &Captures<'_>, with: &dyn Fn(&str) -> String) -> String {
    let (text, name) = (&found[0], &found[1]);
    let value = text.strip_prefix(name).unwrap_or(text);
    let quote = ["\"", "'"]
        .into_iter()
        .find(|quote| value.starts_with(quote))
        .unwrap_or_default();
    let inner = value.strip_prefix(quote).unwrap_or(value);
    let inner = inner.strip_suffix(quote).unwrap_or(inner);
    format!("{name}{quote}{}{quote}", with(inner))
}

#[expect(clippy::expect_used, reason = "the patterns are constant, and tested")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a valid pattern")
}

/// A setting whose value is a URL, or a part of it: `HTTPS_PROXY=user:password@proxy`.
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)([a-z0-9_-]*(?:database[_-]url|[_-]proxy)["']?\s*[=:]\s*)(?:"(?:\\.|[^"\\\n])+"?|'[^'\n]+'?|[^\s"'{\[]\S*)"#,
    )
});
/// A password may contain quotes.
static URL: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"(?i)\b[a-z][a-z0-9+.-]*://(?:[^\s"'<>`\\:@/]*:(?:\\.|[^\s"\\])*@)?[^\s"'<>`\\]*"#));
static CREDENTIALS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)\b(bearer|basic|digest|negotiate)\s+[A-Za-z0-9._~+/=:-]{4,}"));
/// A name and its value, as in `password=x`, `"token": "x"` and `api-key: x`. A value without quotes ends with the word.
static SETTING: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?ix)([a-z0-9_.-]*(?:password|passwd|passphrase|token|api[_-]?key|secret[_-]?key|access[_-]?key|authorization|credential)s?["']?\s*[=:]\s*)
        (?:
            (?<literal>(?:null|true|false)(?:[}\]]|,"|,?\s|,?$))
            | "(?:\\.|[^"\\\n])+"? | '[^'\n]+'?
            | [{\[]*[^\s"'{}\[\]]\S*
        )"#,
    )
});
static PRIVATE_KEY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"));

fn replace<'a>(pattern: &Regex, text: &'a str, with: impl Fn(&Captures<'_>) -> String) -> Cow<'a, str> {
    pattern.replace_all(text, with)
}

/// Does not parse: what is no valid URL may hold a secret too. In an address, which may lack the scheme, all before the
/// last `@` is user information.
fn url(text: &str, is_address: bool) -> String {
    match text.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", public(rest, is_address)),
        None => public(text, is_address),
    }
}

/// Returns the part of a URL after the scheme without user information, query and fragment.
fn public(rest: &str, is_address: bool) -> String {
    let without_query = |text: &str| text.split(['?', '#']).next().unwrap_or_default().to_owned();
    let Some(at) = rest.rfind('@') else {
        return without_query(rest);
    };
    let (user, host) = (&rest[..at], &rest[at + 1..]);
    if let Some((before, after)) = user.split_once(['?', '#'])
        && (before.contains('/') || after.contains('='))
    {
        // A password or a query: both sides may be a part of a secret.
        if before.contains(':') {
            return REDACTED.to_owned();
        }
        return public(before, is_address);
    }
    // A password may contain a slash that is not encoded.
    if is_address || !user.contains('/') || user.contains(':') {
        without_query(host)
    } else {
        without_query(rest)
    }
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
    #[case("postgres://me:hun'ter2@db/x", "postgres://db/x")]
    #[case("postgres://me:hun#ter2@db/x", "postgres://db/x")]
    #[case("postgres://me:hun?ter2@db/x", "postgres://db/x")]
    #[case("postgres://me:hunter2@db/x?password=hun@ter2", "postgres://REDACTED")]
    #[case("https://host/a?email=me@x&token=hun:ter2@y", "https://host/a")]
    #[case("HTTPS_PROXY=me:hunter2@proxy:3128", "HTTPS_PROXY=proxy:3128")]
    #[case("HTTPS_PROXY=\"me:hun ter2@proxy:3128\" x", "HTTPS_PROXY=\"proxy:3128\" x")]
    #[case("password=hun,ter2 next", "password=REDACTED next")]
    #[case("password={hunter2}", "password=REDACTED")]
    #[case("{\"password\": \"hun ter2\"}", "{\"password\": \"REDACTED\"}")]
    #[case("{\"password\": \"hun\\\" ter2\"}", "{\"password\": \"REDACTED\"}")]
    #[case(
        "{\"token\":null,\"password\":\"hun ter2\"}",
        "{\"token\":null,\"password\":\"REDACTED\"}"
    )]
    #[case(
        "{\"credentials\": {\"token\": \"hunter2\"}}",
        "{\"credentials\": {\"token\": \"REDACTED\"}}"
    )]
    #[case("\"http://a:1\" \"me@x\"", "\"http://a:1\" \"me@x\"")]
    fn secrets_are_removed_from_texts(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(redact(text), expected);
    }
}
