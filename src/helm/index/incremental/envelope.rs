use memchr::{memchr, memmem};

use crate::helm::index::DecodeLimits;
use crate::helm::index::yaml;

/// After the first character, parsers may treat a byte order mark differently.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The text must be a complete map whose last key is `entries` with a null value, which the indented charts become.
pub(super) fn is_valid_header(text: &[u8], limits: &DecodeLimits) -> bool {
    // Directives apply to the whole document. Rejecting every `%` avoids parsing for them.
    if text.iter().any(|byte| matches!(byte, b'%' | b'\r')) || memmem::find(text, BYTE_ORDER_MARK).is_some() {
        return false;
    }
    match yaml::keys(text, limits) {
        Some(keys) => {
            let entries = keys.iter().filter(|(key, _)| key == "entries").count();
            entries == 1 && keys.last().is_some_and(|(key, is_null)| key == "entries" && *is_null)
        }
        None => false,
    }
}

/// Returns true if the text after the charts is empty or a complete map without `entries`.
pub(super) fn is_valid_footer(text: &[u8], limits: &DecodeLimits) -> bool {
    if text.is_empty() {
        return true;
    }
    let word = text.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    if memchr(b'\r', text).is_some() {
        return false;
    }
    let begins = word > 0 && matches!(text.get(word..), Some([b':', b' ' | b'\n', ..] | [b':']));
    begins && yaml::keys(text, limits).is_some_and(|keys| keys.iter().all(|(key, _)| key != "entries"))
}
