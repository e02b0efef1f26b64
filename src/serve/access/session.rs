//! Sessions of browsers: a cookie with the token of a person. The server stores nothing.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;

use super::credentials::time_to_expiry;
use super::hosts::Hosts;
use super::origin::Connection;
use crate::server::tokens::bearer_token;

/// Browsers take cookies of 4 KiB, with name and attributes.
const MAX_TOKEN: usize = 3584;
const MAX_AGE: Duration = Duration::from_secs(12 * 3600);
/// A name without prefix, which browsers also store without TLS.
const LOOPBACK_NAME: &str = "portolan";

/// The token of a cookie, and the end of the session.
pub(in crate::serve) struct Session {
    token: String,
    pub(in crate::serve) expires: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::serve) enum TokenError {
    #[error("enter a token")]
    Missing,
    #[error(
        "the token has more than {MAX_TOKEN} bytes, which do not fit into a cookie; use a token of a ServiceAccount"
    )]
    TooLong,
    #[error("this is not a token: it has characters that no bearer token has")]
    InvalidCharacter,
}

impl Session {
    /// Begins a session with the text that a person entered.
    pub(in crate::serve) fn begin(entered: &str) -> Result<Self, TokenError> {
        let token = entered.trim();
        if token.is_empty() {
            return Err(TokenError::Missing);
        }
        if token.len() > MAX_TOKEN {
            return Err(TokenError::TooLong);
        }
        if !is_token(token) {
            return Err(TokenError::InvalidCharacter);
        }
        let age = time_to_expiry(token).map_or(MAX_AGE, |left| left.min(MAX_AGE));
        Ok(Self {
            token: token.to_owned(),
            expires: Timestamp::now().saturating_add(age).unwrap_or(Timestamp::MAX),
        })
    }

    pub(in crate::serve) fn token(&self) -> &str {
        &self.token
    }

    /// Returns these headers with the token of the session as their only credentials.
    pub(in crate::serve) fn authorize(&self, headers: &HeaderMap) -> HeaderMap {
        let mut headers = headers.clone();
        // Tokens have characters of headers only.
        if let Ok(mut value) = HeaderValue::try_from(format!("Bearer {}", self.token)) {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        headers
    }

    fn parse(value: &str) -> Option<Self> {
        let (expires, token) = value.split_once('.')?;
        let expires = Timestamp::from_second(expires.parse().ok()?).ok()?;
        let is_valid = expires > Timestamp::now() && token.len() <= MAX_TOKEN && is_token(token);
        is_valid.then(|| Self {
            token: token.to_owned(),
            expires,
        })
    }
}

/// The characters of RFC 6750, which are also those of cookies.
fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

/// The cookies of a site.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Sessions {
    /// Browsers store cookies of this name only over TLS, and none of them from another host.
    secure_name: &'static str,
    path: String,
}

impl Sessions {
    /// `prefix` is the path of `--external-url`.
    pub(in crate::serve) fn new(prefix: &str) -> Self {
        Self {
            // `__Host-` requires the path `/`.
            secure_name: if prefix.is_empty() {
                "__Host-portolan"
            } else {
                "__Secure-portolan"
            },
            path: format!("{prefix}/"),
        }
    }

    /// Returns the session of a request, before any review of its token.
    pub(in crate::serve) fn of(&self, headers: &HeaderMap) -> Option<Session> {
        let value = cookie(headers, self.secure_name);
        let on_loopback = || cookie(headers, LOOPBACK_NAME).filter(|_| Hosts::loopback().allow(headers));
        Session::parse(value.or_else(on_loopback)?)
    }

    /// Returns the session whose token is the credentials of a request.
    pub(in crate::serve) fn in_use(&self, headers: &HeaderMap) -> Option<Session> {
        let session = self.of(headers)?;
        (bearer_token(headers) == Some(session.token())).then_some(session)
    }

    /// Returns the value of `Set-Cookie` that begins a session.
    pub(in crate::serve) fn set(&self, session: &Session, connection: Connection) -> Option<HeaderValue> {
        let age = session.expires.duration_since(Timestamp::now()).as_secs().max(0);
        let value = format!("{}.{}", session.expires.as_second(), session.token);
        self.set_cookie(connection, &value, age)
    }

    /// Returns the values of `Set-Cookie` that end all sessions of a browser.
    pub(in crate::serve) fn clear(&self) -> impl Iterator<Item = HeaderValue> {
        let connections = [Connection::Https, Connection::Loopback].into_iter();
        connections.filter_map(move |connection| self.set_cookie(connection, "", 0))
    }

    fn set_cookie(&self, connection: Connection, value: &str, max_age: i64) -> Option<HeaderValue> {
        let (name, secure) = match connection {
            Connection::Https => (self.secure_name, "; Secure"),
            Connection::Loopback => (LOOPBACK_NAME, ""),
        };
        let path = &self.path;
        let cookie = format!("{name}={value}; Path={path}; Max-Age={max_age}; HttpOnly; SameSite=Lax{secure}");
        let mut cookie = HeaderValue::try_from(cookie).ok()?;
        cookie.set_sensitive(true);
        Some(cookie)
    }
}

fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(header::COOKIE).iter();
    let mut cookies = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    cookies.find(|(other, _)| *other == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::access::credentials::tests::jwt;

    fn request(host: &str, cookies: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        headers.insert(header::COOKIE, HeaderValue::from_str(cookies).unwrap());
        headers
    }

    fn in_an_hour() -> i64 {
        Timestamp::now().as_second() + 3600
    }

    fn token_of(sessions: &Sessions, host: &str, cookies: &str) -> Option<String> {
        let session = sessions.of(&request(host, cookies))?;
        Some(session.token().to_owned())
    }

    fn max_age(cookie: &HeaderValue) -> i64 {
        let cookie = cookie.to_str().unwrap();
        let (_, age) = cookie.split_once("Max-Age=").unwrap();
        age.split(';').next().unwrap().parse().unwrap()
    }

    #[test]
    fn the_cookie_is_bound_to_the_host_or_to_the_path() {
        let session = Session::begin("abc").unwrap();
        let set = |prefix: &str, connection| {
            let cookie = Sessions::new(prefix).set(&session, connection).unwrap();
            assert!(cookie.is_sensitive());
            cookie.to_str().unwrap().to_owned()
        };
        for (prefix, connection, name, end) in [
            (
                "",
                Connection::Https,
                "__Host-portolan=",
                "; Path=/; ; HttpOnly; SameSite=Lax; Secure",
            ),
            (
                "/catalog",
                Connection::Https,
                "__Secure-portolan=",
                "; Path=/catalog/; ; HttpOnly; SameSite=Lax; Secure",
            ),
            (
                "",
                Connection::Loopback,
                "portolan=",
                "; Path=/; ; HttpOnly; SameSite=Lax",
            ),
        ] {
            let cookie = set(prefix, connection);
            let age = cookie.split("; ").find(|part| part.starts_with("Max-Age=")).unwrap();
            let expected = format!("{name}{}.abc{end}", session.expires.as_second());
            assert_eq!(cookie.replace(age, ""), expected);
        }
    }

    #[test]
    fn a_session_ends_with_its_token_and_after_12_hours() {
        let age = |token: &str| {
            let session = Session::begin(token).unwrap();
            max_age(&Sessions::new("").set(&session, Connection::Https).unwrap())
        };
        let half_day = 12 * 3600;
        assert!((half_day - 10..=half_day).contains(&age("opaque")));
        let now = Timestamp::now().as_second();
        assert!((90..=100).contains(&age(&jwt(&(now + 100).to_string()))));
        assert!((half_day - 10..=half_day).contains(&age(&jwt("1e300"))));
        assert_eq!(age(&jwt(&(now - 100).to_string())), 0);
    }

    #[test]
    fn texts_that_are_no_tokens_begin_no_session() {
        let error = |text: &str| Session::begin(text).err();
        assert_eq!(error(" \n"), Some(TokenError::Missing));
        assert_eq!(error(&"x".repeat(MAX_TOKEN + 1)), Some(TokenError::TooLong));
        assert_eq!(error(&"x".repeat(MAX_TOKEN)), None);
        for text in ["a b", "a;b", "a\r\nb", "\"a\"", "ä", "a,b", "a\0"] {
            assert_eq!(error(text), Some(TokenError::InvalidCharacter), "{text}");
        }
        assert_eq!(Session::begin(" abc\r\n").unwrap().token(), "abc");
    }

    #[test]
    fn the_session_of_a_request_is_that_of_its_cookie() {
        let (sessions, end) = (Sessions::new(""), in_an_hour());
        let of = |cookies: &str| token_of(&sessions, "charts.example", cookies);
        assert_eq!(of(&format!("__Host-portolan={end}.a.b.c=")).as_deref(), Some("a.b.c="));
        assert_eq!(
            of(&format!("theme=dark; __Host-portolan={end}.abc; x=y")).as_deref(),
            Some("abc")
        );
        for ignored in [
            String::new(),
            "__Host-portolan=".to_owned(),
            "__Host-portolan=abc".to_owned(),
            format!("__Host-portolan={end}."),
            format!("__Host-portolan={end}.a b"),
            format!("__Host-portolan={}.abc", end - 7200),
            format!("__Host-portolan={}.abc", i64::MAX),
            format!("__Host-portolan={end}.{}", "x".repeat(MAX_TOKEN + 1)),
            format!("__Secure-portolan={end}.abc"),
        ] {
            assert_eq!(of(&ignored), None, "{ignored}");
        }
    }

    #[test]
    fn a_cookie_without_a_prefix_counts_on_loopback_only() {
        let (sessions, end) = (Sessions::new(""), in_an_hour());
        let of = |host: &str, cookies: &str| token_of(&sessions, host, cookies);
        let plain = format!("portolan={end}.plain");
        assert_eq!(of("localhost:8090", &plain).as_deref(), Some("plain"));
        assert_eq!(of("[::1]:8090", &plain).as_deref(), Some("plain"));
        assert_eq!(of("charts.example", &plain), None);
        let both = format!("{plain}; __Host-portolan={end}.secure");
        assert_eq!(of("localhost:8090", &both).as_deref(), Some("secure"));
    }

    #[test]
    fn a_session_is_in_use_if_its_token_is_the_credentials() {
        let (sessions, end) = (Sessions::new(""), in_an_hour());
        let headers = request("charts.example", &format!("__Host-portolan={end}.abc"));
        assert!(sessions.in_use(&headers).is_none());
        let session = sessions.of(&headers).unwrap();
        assert!(sessions.in_use(&session.authorize(&headers)).is_some());
        let other = Session::begin("other").unwrap();
        assert!(sessions.in_use(&other.authorize(&headers)).is_none());
    }

    #[test]
    fn the_end_of_a_session_clears_each_cookie() {
        let cleared: Vec<HeaderValue> = Sessions::new("/catalog").clear().collect();
        let names = cleared
            .iter()
            .map(|cookie| cookie.to_str().unwrap().split_once('=').unwrap().0);
        assert_eq!(names.collect::<Vec<_>>(), ["__Secure-portolan", "portolan"]);
        assert!(cleared.iter().all(|cookie| max_age(cookie) == 0));
    }
}
