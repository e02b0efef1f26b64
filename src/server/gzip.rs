//! Compression of responses for clients that accept it.

use std::io::{self, Write};

use axum::http::HeaderMap;
use axum::http::header::ACCEPT_ENCODING;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Returns true if a client accepts gzip by name, and not with the weight 0.
#[must_use]
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let codings = headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut codings = codings.flat_map(|value| value.split(','));
    codings.any(|coding| {
        let (name, parameters) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = parameters.trim().strip_prefix("q=").unwrap_or("1").trim();
        name.trim().eq_ignore_ascii_case("gzip") && weight.parse().unwrap_or(0.0) > 0.0
    })
}

pub fn gzip(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body)?;
    gzip.finish()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use rstest::rstest;

    use super::*;

    fn accepting(encoding: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(encoding))])
    }

    #[rstest]
    #[case("gzip", true)]
    #[case("deflate, GZIP;q=0.5", true)]
    #[case("gzip;q=0", false)]
    #[case("gzip; q=0.0, identity", false)]
    #[case("gzip;q=much", false)]
    #[case("identity", false)]
    #[case("", false)]
    fn gzip_is_accepted_by_name_and_weight(#[case] encoding: &'static str, #[case] expected: bool) {
        assert_eq!(accepts_gzip(&accepting(encoding)), expected);
    }
}
