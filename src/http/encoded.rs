//! Lenient base64 and percent decoding.

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Base64 with optional padding, as accepted in Kubernetes Secrets and in `data:` URLs of browsers.
pub(crate) const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Decodes percent escapes and copies invalid ones.
#[must_use]
pub fn percent_decoded(text: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut remaining = text.as_bytes();
    while let Some((&byte, next)) = remaining.split_first() {
        let nibble = |at: usize| next.get(at).and_then(|&digit| char::from(digit).to_digit(16));
        let escaped = nibble(0)
            .zip(nibble(1))
            .and_then(|(high, low)| u8::try_from(high << 4 | low).ok());
        match escaped.filter(|_| byte == b'%') {
            Some(escaped) => {
                decoded.push(escaped);
                remaining = &next[2..];
            }
            None => {
                decoded.push(byte);
                remaining = next;
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
    fn valid_escapes_are_decoded_and_invalid_ones_are_copied(#[case] text: &str, #[case] bytes: &[u8]) {
        assert_eq!(percent_decoded(text), bytes);
    }
}
