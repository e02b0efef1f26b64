//! The origin of forms. A form of another site could sign a person in with a token that its author knows.

use axum::http::{HeaderMap, header};

use super::hosts::Hosts;

const FETCH_SITE: &str = "sec-fetch-site";

/// A connection over which a token may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum Connection {
    Https,
    /// Plain HTTP that does not leave the host of the browser.
    Loopback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::serve) enum OriginError {
    #[error("the form was sent by another site")]
    Foreign,
    #[error("a token must not be sent over plain HTTP; use HTTPS, or localhost with kubectl port-forward")]
    PlainHttp,
}

/// Returns the connection of a form of our own. `external` is the origin of `--external-url`.
pub(in crate::serve) fn check(headers: &HeaderMap, external: Option<&str>) -> Result<Connection, OriginError> {
    let is_loopback = Hosts::loopback().allow(headers);
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let origin = match (origins.next(), origins.next()) {
        (None, _) => return without_origin(headers, is_loopback),
        (Some(origin), None) => origin.to_str().map_err(|_| OriginError::Foreign)?,
        _ => return Err(OriginError::Foreign),
    };
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let is_external = external == Some(origin);
    // A browser names the host of a form's target itself, so equal hosts are the same site.
    let is_own = |scheme: &str| {
        let authority = origin.strip_prefix(scheme);
        authority
            .zip(host)
            .is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
    };
    if is_own("https://") || (is_external && origin.starts_with("https://")) {
        Ok(Connection::Https)
    } else if is_own("http://") && is_loopback {
        Ok(Connection::Loopback)
    } else if is_own("http://") || is_external {
        Err(OriginError::PlainHttp)
    } else {
        Err(OriginError::Foreign)
    }
}

/// Browsers send `Sec-Fetch-Site` over TLS and on loopback only.
fn without_origin(headers: &HeaderMap, is_loopback: bool) -> Result<Connection, OriginError> {
    let mut sites = headers.get_all(FETCH_SITE).iter();
    match (sites.next(), sites.next()) {
        (Some(site), None) if site == "same-origin" => Ok(if is_loopback {
            Connection::Loopback
        } else {
            Connection::Https
        }),
        _ => Err(OriginError::Foreign),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn check_with(headers: &[(&str, &str)], external: Option<&str>) -> Result<Connection, OriginError> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::try_from(*name).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        check(&map, external)
    }

    #[test]
    fn the_origin_is_that_of_the_external_url_or_of_the_host() {
        let external = Some("https://charts.example");
        for (host, origin, external, expected) in [
            ("charts.example", "https://charts.example", external, Connection::Https),
            // Behind a proxy that names another host.
            (
                "portolan-serve:8090",
                "https://charts.example",
                external,
                Connection::Https,
            ),
            ("127.0.0.1:8090", "https://charts.example", external, Connection::Https),
            (
                "Charts.example:8443",
                "https://charts.example:8443",
                None,
                Connection::Https,
            ),
            ("localhost:8090", "http://localhost:8090", None, Connection::Loopback),
            ("[::1]:8090", "http://[::1]:8090", external, Connection::Loopback),
            ("localhost", "https://localhost", None, Connection::Https),
        ] {
            let checked = check_with(&[("host", host), ("origin", origin)], external);
            assert_eq!(checked, Ok(expected), "{host} {origin}");
        }
    }

    #[test]
    fn forms_of_other_sites_are_refused() {
        let external = Some("https://charts.example");
        for (host, origin) in [
            ("charts.example", "https://evil.example"),
            ("charts.example", "https://charts.example.evil.example"),
            ("charts.example", "https://charts.example:8443"),
            ("charts.example", "null"),
            ("charts.example", ""),
            ("charts.example", "charts.example"),
            ("localhost:8090", "http://localhost:8091"),
            ("localhost:8090", "http://evil.example"),
        ] {
            let checked = check_with(&[("host", host), ("origin", origin)], external);
            assert_eq!(checked, Err(OriginError::Foreign), "{host} {origin}");
        }
        let host = ("host", "charts.example");
        let own = ("origin", "https://charts.example");
        let twice = check_with(&[host, own, ("origin", "https://evil.example")], external);
        assert_eq!(twice, Err(OriginError::Foreign));
        let without_host = check_with(&[("origin", "https://")], None);
        assert_eq!(without_host, Err(OriginError::Foreign));
    }

    #[test]
    fn forms_over_plain_http_are_refused_except_on_loopback() {
        for external in [None, Some("http://charts.example"), Some("https://charts.example")] {
            let headers = [("host", "charts.example"), ("origin", "http://charts.example")];
            assert_eq!(
                check_with(&headers, external),
                Err(OriginError::PlainHttp),
                "{external:?}"
            );
        }
    }

    #[test]
    fn without_an_origin_the_browser_must_say_that_the_site_is_the_same() {
        let from = |host: &str, site: &str| check_with(&[("host", host), ("sec-fetch-site", site)], None);
        assert_eq!(from("charts.example", "same-origin"), Ok(Connection::Https));
        assert_eq!(from("localhost:8090", "same-origin"), Ok(Connection::Loopback));
        for site in ["same-site", "cross-site", "none", ""] {
            assert_eq!(from("charts.example", site), Err(OriginError::Foreign), "{site}");
        }
        assert_eq!(
            check_with(&[("host", "charts.example")], None),
            Err(OriginError::Foreign)
        );
        let null = [
            ("host", "charts.example"),
            ("origin", "null"),
            ("sec-fetch-site", "same-origin"),
        ];
        assert_eq!(check_with(&null, None), Err(OriginError::Foreign));
    }
}
