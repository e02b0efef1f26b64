//! Limits the memory of decoded responses of remote API servers: `{}` takes three bytes in a list, and as an object several
//! hundred.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::budget::parsed_bytes;

/// Objects of a page. Some aggregated API servers return all, however small the requested page is.
const MAX_OBJECTS: usize = 10_000;
/// Memory of other responses, in bytes. API discovery with 3,000 kinds takes 20 MB.
const MAX_DECODED: u64 = 128 << 20;

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodedSizeError {
    #[error("the response is no list")]
    NoList,
    #[error("the response has more than {limit} objects")]
    TooManyObjects { limit: usize },
    #[error("the response would take more than {limit} bytes of memory")]
    TooLarge { limit: u64 },
}

#[derive(Deserialize)]
struct Page {
    items: Option<Vec<IgnoredAny>>,
}

/// Decodes nothing. Objects of a page are decoded one by one, and limited then.
pub(super) fn check_decoded_size(response: &[u8], is_page: bool) -> Result<(), DecodedSizeError> {
    if is_page {
        let page: Page = serde_json::from_slice(response).map_err(|_| DecodedSizeError::NoList)?;
        let has_too_many = page.items.is_some_and(|items| items.len() > MAX_OBJECTS);
        let limit = MAX_OBJECTS;
        return if has_too_many {
            Err(DecodedSizeError::TooManyObjects { limit })
        } else {
            Ok(())
        };
    }
    // Other text can't be decoded.
    let text = std::str::from_utf8(response).unwrap_or_default();
    if parsed_bytes(text) > MAX_DECODED {
        return Err(DecodedSizeError::TooLarge { limit: MAX_DECODED });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(count: usize) -> String {
        format!(r#"{{"items":[{}]}}"#, vec!["{}"; count].join(","))
    }

    #[test]
    fn a_page_has_a_limited_number_of_objects() {
        let check = |text: &str| check_decoded_size(text.as_bytes(), true);
        assert_eq!(check(&list(MAX_OBJECTS)), Ok(()));
        let limit = MAX_OBJECTS;
        assert_eq!(
            check(&list(MAX_OBJECTS + 1)),
            Err(DecodedSizeError::TooManyObjects { limit })
        );
        assert_eq!(check(r#"{"items":null}"#), Ok(()));
        let twice = r#"{"items":[],"items":[]}"#;
        assert_eq!(check(twice), Err(DecodedSizeError::NoList));
    }

    #[test]
    fn other_responses_take_a_limited_amount_of_memory() {
        let check = |text: &str| check_decoded_size(text.as_bytes(), false);
        assert_eq!(check(&list(1_000)), Ok(()));
        let limit = MAX_DECODED;
        assert_eq!(check(&list(1_000_000)), Err(DecodedSizeError::TooLarge { limit }));
        assert_eq!(check_decoded_size(b"\xff", false), Ok(()));
    }
}
