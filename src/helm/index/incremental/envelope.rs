//! What stands around the charts: it has to be what it looks like.

use memchr::{memchr, memmem};

use crate::helm::index::DecodeLimits;
use crate::helm::index::yaml;

/// Behind the first place of all it may stand for something else.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Whether the text in front of the charts is a map by itself whose last key is `entries`, with nothing behind it yet: then the
/// charts, which are deeper, are what it holds.
pub(super) fn is_head(text: &[u8], limits: &DecodeLimits) -> bool {
    // Directives hold for the whole, and would not be seen by its parts. Where they may stand behind is for parsers to know.
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

/// Whether the text behind the charts is a map by itself, of other keys, or nothing.
pub(super) fn is_foot(text: &[u8], limits: &DecodeLimits) -> bool {
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
