//! The parameters of a request.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::Method;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{MAX_BODY, MAX_TIMEOUT};
use crate::controllers::oam::functions::params::{decode, required};
use crate::runtime::cron::parse_duration;
use crate::text::{sanitize, truncate};

/// The timeout of a request without one, as in KubeVela.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);
const MAX_URL: usize = 8 * 1024;
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 64 * 1024;
const MAX_SECRETS: usize = 16;

/// Headers of the connection, which the client sets. Go's client ignores them, too, if the caller sets them.
const IGNORED: [HeaderName; 9] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TRAILER,
    header::CONNECTION,
    header::TE,
    header::UPGRADE,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
];

#[derive(Deserialize)]
struct Params {
    method: Option<String>,
    url: Option<String>,
    request: Option<RequestParams>,
    tls_config: Option<TlsConfig>,
}

/// Trailers are accepted and not sent: Go's client drops them, because the length of the body is known.
#[derive(Default, Deserialize)]
struct RequestParams {
    timeout: Option<String>,
    body: Option<String>,
    header: Option<BTreeMap<String, String>>,
    #[serde(alias = "rateLimiter")]
    ratelimiter: Option<RateParams>,
    #[serde(rename = "headersFromSecret")]
    headers_from_secret: Option<Vec<SecretParams>>,
}

#[derive(Deserialize)]
struct RateParams {
    limit: Option<i64>,
    period: Option<String>,
}

#[derive(Deserialize)]
struct SecretParams {
    /// KubeVela's package declares it as `name`, its code reads `header`.
    #[serde(alias = "name")]
    header: Option<String>,
    secret: Option<String>,
    key: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TlsConfig {
    pub(super) secret: Option<String>,
    pub(super) namespace: Option<String>,
}

pub(super) struct HttpRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
    pub(super) timeout: Duration,
    pub(super) rate: Option<Rate>,
    pub(super) headers_from_secret: Vec<HeaderFromSecret>,
    pub(super) tls: Option<TlsConfig>,
}

/// `limit` requests at once, and one more each `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) limit: i64,
    pub(super) period: Duration,
}

pub(super) struct HeaderFromSecret {
    pub(super) header: HeaderName,
    pub(super) secret: String,
    pub(super) key: String,
}

pub(super) fn request(params: &Value) -> Result<HttpRequest, String> {
    let Params {
        method,
        url,
        request,
        tls_config,
    } = decode(params)?;
    let request = request.unwrap_or_default();
    let body = request.body.unwrap_or_default();
    if body.len() as u64 > MAX_BODY {
        return Err(format!("$params.request.body is larger than {MAX_BODY} bytes"));
    }
    Ok(HttpRequest {
        method: parse_method(method.as_deref())?,
        url: parse_url(&required(url, "url")?, "$params.url")?,
        headers: headers(request.header.unwrap_or_default())?,
        body,
        timeout: parse_timeout(request.timeout.as_deref())?,
        rate: request.ratelimiter.map(rate).transpose()?,
        headers_from_secret: headers_from_secret(request.headers_from_secret.unwrap_or_default())?,
        tls: tls_config,
    })
}

fn parse_method(method: Option<&str>) -> Result<Method, String> {
    match method.unwrap_or_default() {
        "" | "GET" => Ok(Method::GET),
        "POST" => Ok(Method::POST),
        "PUT" => Ok(Method::PUT),
        "DELETE" => Ok(Method::DELETE),
        _ => Err("$params.method is not supported; use GET, POST, PUT or DELETE".to_owned()),
    }
}

/// Parses the URL in `field`, which errors name. They do not quote the URL: its path and query may be secrets, as in
/// webhooks.
pub(super) fn parse_url(text: &str, field: &str) -> Result<Url, String> {
    if text.len() > MAX_URL {
        return Err(format!("{field} is longer than {MAX_URL} bytes"));
    }
    let url = Url::parse(text).map_err(|error| format!("{field} is invalid: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("{field} is not an http or https URL"));
    }
    Ok(url)
}

/// Shortens a longer timeout to the limit.
fn parse_timeout(text: Option<&str>) -> Result<Duration, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(DEFAULT_TIMEOUT);
    };
    match parse_duration(text) {
        // No timeout for Go's client.
        Some(Duration::ZERO) => Ok(MAX_TIMEOUT),
        Some(timeout) => Ok(timeout.min(MAX_TIMEOUT)),
        None => Err("$params.request.timeout is not a duration such as 5s".to_owned()),
    }
}

fn rate(params: RateParams) -> Result<Rate, String> {
    let period = params.period.as_deref().and_then(parse_duration);
    Ok(Rate {
        limit: params.limit.unwrap_or_default(),
        period: period.ok_or("$params.request.ratelimiter.period is not a duration such as 5s")?,
    })
}

fn headers(params: BTreeMap<String, String>) -> Result<HeaderMap, String> {
    let bytes: usize = params.iter().map(|(name, value)| name.len() + value.len()).sum();
    if params.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        return Err(format!(
            "$params.request.header has more than {MAX_HEADERS} headers or {MAX_HEADER_BYTES} bytes"
        ));
    }
    let mut headers = HeaderMap::new();
    for (name, text) in params {
        let name = header_name(&name)?;
        let value = HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| format!("$params.request.header.{name} contains a line break or another control character"))?;
        headers.append(name, value);
    }
    if headers.is_empty() {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for name in IGNORED {
        headers.remove(name);
    }
    Ok(headers)
}

fn headers_from_secret(params: Vec<SecretParams>) -> Result<Vec<HeaderFromSecret>, String> {
    if params.len() > MAX_SECRETS {
        return Err(format!(
            "$params.request.headersFromSecret has more than {MAX_SECRETS} entries"
        ));
    }
    let header = |entry: SecretParams| {
        let header = header_name(&required(entry.header, "request.headersFromSecret.header")?)?;
        if IGNORED.contains(&header) {
            return Err(format!("the header {header} can't be set from a Secret"));
        }
        Ok(HeaderFromSecret {
            header,
            secret: required(entry.secret, "request.headersFromSecret.secret")?,
            key: required(entry.key, "request.headersFromSecret.key")?,
        })
    };
    params.into_iter().map(header).collect()
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    let invalid = |_| format!("{:?} is not the name of a header", truncate(&sanitize(name), 100));
    HeaderName::from_bytes(name.as_bytes()).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn error(params: Value) -> String {
        match request(&params) {
            Ok(_) => panic!("accepted"),
            Err(error) => error,
        }
    }

    #[test]
    fn defaults_are_those_of_kubevela() {
        let request = request(&json!({"url": "http://example.com"})).unwrap();
        assert_eq!((request.method, request.timeout), (Method::GET, Duration::from_secs(3)));
        assert_eq!(request.headers.get("content-type").unwrap(), "application/json");
        assert!(request.body.is_empty() && request.rate.is_none() && request.tls.is_none());
    }

    #[test]
    fn a_header_replaces_the_default_content_type() {
        let params = json!({"url": "http://a", "request": {"header": {"X-A": "b"}}});
        let headers = request(&params).unwrap().headers;
        assert_eq!(headers.len(), 1);
        assert_eq!(headers.get("x-a").unwrap(), "b");
    }

    #[rstest]
    #[case("5s", 5)]
    #[case("1h", 30)]
    #[case("0", 30)]
    #[case("", 3)]
    fn a_timeout_is_at_most_thirty_seconds(#[case] timeout: &str, #[case] seconds: u64) {
        let params = json!({"url": "http://a", "request": {"timeout": timeout}});
        assert_eq!(request(&params).unwrap().timeout, Duration::from_secs(seconds));
    }

    #[test]
    fn headers_of_the_connection_are_ignored() {
        let header = json!({"Host": "other", "content-length": "5", "Transfer-Encoding": "chunked", "X-A": "b"});
        let params = json!({"url": "http://a", "request": {"header": header}});
        let headers = request(&params).unwrap().headers;
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-a"]);
    }

    #[test]
    fn rate_limiter_and_header_have_the_names_of_package_and_code() {
        let rate = json!({"limit": 2, "period": "5s"});
        for (rate_name, header_name) in [("ratelimiter", "name"), ("rateLimiter", "header")] {
            let from_secret = json!([{header_name: "X-A", "secret": "s", "key": "k"}]);
            let params = json!({"url": "http://a", "request": {rate_name: rate, "headersFromSecret": from_secret}});
            let request = request(&params).unwrap();
            let expected = Rate {
                limit: 2,
                period: Duration::from_secs(5),
            };
            assert_eq!(request.rate, Some(expected));
            assert_eq!(request.headers_from_secret[0].header, "x-a");
        }
    }

    #[rstest]
    #[case(json!(null), "$params is not a struct")]
    #[case(json!({}), "$params.url is required")]
    #[case(json!({"url": 5}), "$params.url has the wrong type")]
    #[case(json!({"url": "hunter2"}), "$params.url is invalid")]
    #[case(json!({"url": "file:///hunter2"}), "http or https")]
    #[case(json!({"url": format!("http://a/{}", "x".repeat(MAX_URL))}), "longer than")]
    #[case(json!({"url": "http://a", "method": "hunter2"}), "use GET")]
    #[case(json!({"url": "http://a", "request": []}), "$params.request")]
    #[case(json!({"url": "http://a", "request": {"body": {"hunter2": 1}}}), "$params.request.body has the wrong type")]
    #[case(json!({"url": "http://a", "request": {"body": "x".repeat(1024 * 1024 + 1)}}), "larger than")]
    #[case(json!({"url": "http://a", "request": {"timeout": "hunter2"}}), "not a duration")]
    #[case(json!({"url": "http://a", "request": {"timeout": "-1s"}}), "not a duration")]
    #[case(json!({"url": "http://a", "request": {"header": {"X-A": "hunter2\r\nX-B: c"}}}), "control character")]
    #[case(json!({"url": "http://a", "request": {"header": {"X A\n": "hunter2"}}}), "not the name of a header")]
    #[case(json!({"url": "http://a", "request": {"header": {"X-A": "x".repeat(70_000)}}}), "64 headers")]
    #[case(json!({"url": "http://a", "request": {"ratelimiter": {"limit": 1, "period": "soon"}}}), "period")]
    #[case(json!({"url": "http://a", "request": {"headersFromSecret": [{"header": "Host", "secret": "s", "key": "k"}]}}), "can't be set")]
    #[case(json!({"url": "http://a", "request": {"headersFromSecret": [{"header": "X-A", "key": "k"}]}}), "secret is required")]
    #[case(json!({"url": "http://a", "request": {"headersFromSecret": vec![json!({}); 17]}}), "16 entries")]
    fn invalid_params_are_refused_without_quoting_them(#[case] params: Value, #[case] why: &str) {
        let error = error(params);
        assert!(error.contains(why), "{error}");
        assert!(!error.contains("hunter2") && error.len() < 200, "{error}");
    }

    #[test]
    fn many_headers_are_refused() {
        let header: BTreeMap<String, &str> = (0..=MAX_HEADERS).map(|number| (format!("X-{number}"), "a")).collect();
        assert!(error(json!({"url": "http://a", "request": {"header": header}})).contains("64 headers"));
    }
}
