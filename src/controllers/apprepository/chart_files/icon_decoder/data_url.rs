//! `data:` URLs (RFC 2397).

use base64::Engine as _;

use super::IconError;
use crate::http::encoded::{BASE64, percent_decoded};

/// Decodes a `data:` URL into its content type, if present, and its bytes.
pub fn data_url(text: &str, max_bytes: usize) -> Result<(Option<String>, Vec<u8>), IconError> {
    let text = text.trim_ascii();
    let remaining = match text.split_at_checked("data:".len()) {
        Some((scheme, remaining)) if scheme.eq_ignore_ascii_case("data:") => remaining,
        _ => return Err(IconError::InvalidDataUrl("does not start with data:")),
    };
    let (kind, data) = remaining
        .split_once(',')
        .ok_or(IconError::InvalidDataUrl("no comma before the data"))?;
    let (content_type, is_base64) = match kind.rsplit_once(';') {
        Some((content_type, last)) if last.trim_ascii().eq_ignore_ascii_case("base64") => (content_type, true),
        _ => (kind, false),
    };
    // Each byte takes at most three characters; this bounds the copies.
    if data.len() / 3 > max_bytes {
        return Err(IconError::too_large("bytes", max_bytes as u64));
    }
    let mut bytes = percent_decoded(data);
    if is_base64 {
        bytes.retain(|byte| !byte.is_ascii_whitespace());
        bytes = BASE64
            .decode(bytes)
            .map_err(|_| IconError::InvalidDataUrl("data is not valid base64"))?;
    }
    if bytes.len() > max_bytes {
        return Err(IconError::too_large("bytes", max_bytes as u64));
    }
    let content_type = content_type.trim_ascii();
    Ok(((!content_type.is_empty()).then(|| content_type.to_owned()), bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("data:image/png;base64,AAEC", Some("image/png"), b"\0\x01\x02")]
    #[case("DATA:image/png;BASE64,AAE", Some("image/png"), b"\0\x01")]
    #[case("data:;base64,AA==", None, b"\0")]
    #[case("data:;base64,A%41%3D%3D\n", None, b"\0")]
    #[case(
        " data:image/svg+xml;charset=utf-8,%3Csvg a='#f,%zz%2'/%3E ",
        Some("image/svg+xml;charset=utf-8"),
        b"<svg a='#f,%zz%2'/>"
    )]
    #[case("data:,", None, b"")]
    fn both_encodings_are_read(#[case] url: &str, #[case] content_type: Option<&str>, #[case] bytes: &[u8]) {
        let expected = (content_type.map(str::to_owned), bytes.to_vec());
        assert_eq!(data_url(url, 100), Ok(expected));
    }

    #[rstest]
    #[case("https://example.com/a.png")]
    #[case("data")]
    #[case("data:image/png")]
    #[case("data:image/png;base64,A")]
    #[case("data:image/png;base64,_-__")]
    #[case("dätä:,")]
    fn anything_else_is_an_error(#[case] url: &str) {
        assert!(matches!(data_url(url, 100), Err(IconError::InvalidDataUrl(_))));
    }

    #[test]
    fn the_content_is_limited() {
        assert!(data_url("data:,1234", 4).is_ok());
        for url in [
            "data:,12345",
            "data:;base64,AAECAwQ",
            &format!("data:,{}", "%41".repeat(500)),
        ] {
            assert_eq!(data_url(url, 4), Err(IconError::too_large("bytes", 4)));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_handled(text in "(data:)?.{0,10}(;base64)?,?.{0,40}") {
            let _ = data_url(&text, 20);
        }

        #[test]
        fn bytes_come_out_as_they_went_in(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let base64 = format!("data:a/b;base64,{}", BASE64.encode(&bytes));
            prop_assert_eq!(&data_url(&base64, 50).unwrap().1, &bytes);
            let escaped: String = bytes.iter().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(&data_url(&format!("data:,{escaped}"), 50).unwrap().1, &bytes);
        }
    }
}
