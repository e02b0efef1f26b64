//! Bytes as texts from outside hold them.

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Base64 with or without padding: as Kubernetes takes it in Secrets, and browsers in `data:` URLs.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The bytes that a part of a URL stands for. What only looks like an escape stays as it is.
#[must_use]
pub fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let nibble = |at: usize| behind.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        let escaped = nibble(0)
            .zip(nibble(1))
            .and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
        match escaped.filter(|_| byte == b'%') {
            Some(escaped) => {
                decoded.push(escaped);
                rest = &behind[2..];
            }
            None => {
                decoded.push(byte);
                rest = behind;
            }
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("a%3Ab%2f", b"a:b/")]
    #[case("%", b"%")]
    #[case("%4", b"%4")]
    #[case("%zz%41", b"%zzA")]
    #[case("%ff\u{e9}", b"\xff\xc3\xa9")]
    fn escapes_are_undone_and_what_is_none_is_kept(#[case] text: &str, #[case] bytes: &[u8]) {
        assert_eq!(percent_decoded(text), bytes);
    }
}
