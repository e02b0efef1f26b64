//! Responses and errors as a template sees them.

use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};

use super::MAX_TIMEOUT;
use crate::http::{Exchanged, FetchError};

/// Of headers and trailers together.
const MAX_HEADER_BYTES: usize = 64 * 1024;

/// Returns a response as `$returns`, with headers named as Go names them.
pub(super) fn value(exchanged: &Exchanged, host: &str) -> Result<Value, String> {
    let sizes = exchanged.headers.iter().chain(&exchanged.trailers);
    let bytes: usize = sizes.map(|(name, value)| name.as_str().len() + value.len()).sum();
    if bytes > MAX_HEADER_BYTES {
        return Err(format!(
            "the response of {host} has more than {MAX_HEADER_BYTES} bytes of headers"
        ));
    }
    let mut fields = Map::new();
    fields.insert("statusCode".to_owned(), json!(exchanged.status.as_u16()));
    let body = String::from_utf8_lossy(&exchanged.body);
    fields.insert("body".to_owned(), Value::from(body));
    for (name, headers) in [("header", &exchanged.headers), ("trailer", &exchanged.trailers)] {
        if !headers.is_empty() {
            fields.insert(name.to_owned(), Value::Object(by_name(headers)));
        }
    }
    Ok(Value::Object(fields))
}

fn by_name(headers: &HeaderMap) -> Map<String, Value> {
    let texts = |name| {
        let values = headers.get_all(name).iter();
        values
            .map(|value| Value::from(String::from_utf8_lossy(value.as_bytes())))
            .collect()
    };
    let named = headers
        .keys()
        .map(|name| (canonical(name.as_str()), Value::Array(texts(name))));
    named.collect()
}

/// Returns the name with its first letter, and each letter after a hyphen, in upper case.
fn canonical(name: &str) -> String {
    let mut is_first = true;
    let upper = |c: char| {
        let canonical = if is_first { c.to_ascii_uppercase() } else { c };
        is_first = c == '-';
        canonical
    };
    name.chars().map(upper).collect()
}

/// Returns the message of an error, with the parameter that mends it. It names the host only.
pub(super) fn message(error: &FetchError, host: &str) -> String {
    let message = error.message_without_path(host);
    match error {
        FetchError::Untrusted { .. } => format!("{message}; set tls_config for a private certificate authority"),
        FetchError::InvalidCa(problem) => {
            format!("ca.crt of the Secret in tls_config is not a certificate: it {problem}")
        }
        FetchError::Timeout { .. } => format!("{message}; set request.timeout, at most {}s", MAX_TIMEOUT.as_secs()),
        _ => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_headers_are_those_of_go() {
        for (name, expected) in [
            ("content-type", "Content-Type"),
            ("etag", "Etag"),
            ("x-request-id", "X-Request-Id"),
            ("x--a", "X--A"),
        ] {
            assert_eq!(canonical(name), expected);
        }
    }
}
