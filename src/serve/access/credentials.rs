//! Tokens of requests, and the time for which they are valid.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::Deserialize;

use crate::server::tokens::{MAX_TOKEN, TokenDigest, bearer_token};
use crate::text::hex;

pub(super) enum Credentials {
    Missing,
    /// Neither Bearer nor Basic, or too long.
    Unusable,
    Token(String),
}

impl Credentials {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let token = match (values.next(), values.next()) {
            (None, _) => return Self::Missing,
            (Some(value), None) => bearer_token(headers)
                .map(str::to_owned)
                .or_else(|| basic_password(value)),
            _ => None,
        };
        token.map_or(Self::Unusable, Self::Token)
    }
}

/// The token of a caller, for reads with the caller's rights.
pub(in crate::serve) struct CallerToken {
    /// Sensitive: it is not printed.
    authorization: HeaderValue,
    digest: TokenDigest,
}

impl CallerToken {
    /// Returns `None` for a text that is not allowed in a header.
    pub(in crate::serve) fn new(token: &str) -> Option<Self> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
        authorization.set_sensitive(true);
        Some(Self {
            authorization,
            digest: TokenDigest::of(token),
        })
    }

    pub(in crate::serve) fn authorization(&self) -> HeaderValue {
        self.authorization.clone()
    }

    /// Returns the name of the caller in limits.
    pub(in crate::serve) fn name(&self) -> String {
        hex(self.digest.as_bytes())
    }
}

/// Clients of Helm repositories send the token as password, with any user.
fn basic_password(value: &HeaderValue) -> Option<String> {
    let (scheme, encoded) = value.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (_, password) = decoded.split_once(':')?;
    let is_usable = !password.is_empty() && password.len() <= MAX_TOKEN;
    is_usable.then(|| password.to_owned())
}

/// Returns the time until a JWT expires, `None` for other tokens. The signature is not verified: the claim of a forged
/// token has no effect, because the API server refuses it.
pub(super) fn time_to_expiry(token: &str) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Claims {
        exp: f64,
    }

    let mut parts = token.split('.');
    let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
    let claims: Claims = serde_json::from_slice(&payload).ok()?;
    let left = claims.exp - Timestamp::now().as_duration().as_secs_f64();
    Some(Duration::try_from_secs_f64(left.max(0.0)).unwrap_or(Duration::MAX))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::serve::access) fn jwt(exp: &str) -> String {
        let payload = format!(r#"{{"aud":["https://kubernetes.default.svc"],"exp":{exp},"sub":"system:x"}}"#);
        format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(payload))
    }

    fn token(values: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        match Credentials::of(&headers) {
            Credentials::Missing => Some("missing".to_owned()),
            Credentials::Unusable => None,
            Credentials::Token(token) => Some(token),
        }
    }

    fn basic(text: &str) -> String {
        format!("Basic {}", BASE64_STANDARD.encode(text))
    }

    #[test]
    fn a_token_is_a_bearer_token_or_the_password_of_basic_credentials() {
        assert_eq!(token(&["Bearer abc"]).as_deref(), Some("abc"));
        assert_eq!(token(&[&basic("jane:a:b")]).as_deref(), Some("a:b"));
        assert_eq!(
            token(&[&basic(":abc").replace("Basic", "basic")]).as_deref(),
            Some("abc")
        );
        assert_eq!(token(&[]).as_deref(), Some("missing"));
    }

    #[test]
    fn other_credentials_are_unusable() {
        let long = basic(&format!("jane:{}", "x".repeat(MAX_TOKEN + 1)));
        for value in [
            "Digest abc",
            "Bearer ",
            "Basic ???",
            &basic("jane"),
            &basic("jane:"),
            &long,
            "",
        ] {
            assert_eq!(token(&[value]), None, "{value}");
        }
        assert_eq!(token(&["Bearer abc", "Bearer abc"]), None);
    }

    #[test]
    fn the_token_of_a_caller_is_sensitive() {
        let token = CallerToken::new("abc").unwrap();
        assert_eq!(token.authorization(), "Bearer abc");
        assert!(!format!("{:?}", token.authorization()).contains("abc"));
        assert!(CallerToken::new("a\nb").is_none());
    }

    #[test]
    fn the_time_to_the_expiry_of_a_jwt_is_read() {
        let left = |exp: &str| time_to_expiry(&jwt(exp));
        let now = Timestamp::now().as_second();
        let seconds = left(&(now + 100).to_string()).unwrap().as_secs();
        assert!((90..=100).contains(&seconds), "{seconds}");
        assert_eq!(left(&(now - 100).to_string()), Some(Duration::ZERO));
        assert_eq!(left("1e300"), Some(Duration::MAX));
    }

    #[test]
    fn tokens_without_a_readable_expiry_have_none() {
        for other in [
            "abc",
            "a.b",
            "a.b.c.d",
            "a.???.c",
            &jwt("\"soon\""),
            &jwt("null"),
            "e30.e30.e30",
        ] {
            assert_eq!(time_to_expiry(other), None, "{other}");
        }
    }
}
