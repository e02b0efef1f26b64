//! Compressed JSON inside of objects: base64 of gzip or zstd.

use std::io::{self, Read, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::{GzEncoder, MultiGzDecoder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::lenient::null_as_default;
use crate::budget::ParsedSize;

/// Maximum window of zstd, as a power of two. The largest that the format allows would take gigabytes.
const MAX_WINDOW_LOG: u32 = 25;

/// The default of zstd: levels above it take several times the CPU time for a few percent.
const ZSTD_LEVEL: i32 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Gzip,
    Zstd,
}

impl Format {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

/// Compressed JSON, or nothing.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Compressed {
    /// `gzip`, `zstd` or empty.
    #[serde(
        rename = "type",
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub type_: String,
    /// Compressed JSON as base64.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "String::is_empty")]
    pub data: String,
}

#[derive(Debug, thiserror::Error)]
pub enum CompressionError {
    #[error("unknown compression type {0:?}; supported types: gzip, zstd")]
    UnknownType(String),
    #[error("compressed data is not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error("compressed data is not valid {format}: {cause}")]
    Invalid { format: &'static str, cause: io::Error },
    #[error("decompressed data exceeds {} MiB", .0 >> 20)]
    TooLarge(usize),
}

impl Compressed {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.type_.is_empty()
    }

    /// Fails for lack of memory.
    pub fn encode(format: Format, json: &[u8]) -> io::Result<Self> {
        let mut bytes = Vec::new();
        match format {
            Format::Gzip => {
                GzEncoder::new(json, flate2::Compression::default()).read_to_end(&mut bytes)?;
            }
            // Allocates for this size, unlike a stream.
            Format::Zstd => bytes = zstd::bulk::compress(json, ZSTD_LEVEL)?,
        }
        Ok(Self {
            type_: format.name().to_owned(),
            data: STANDARD.encode(bytes),
        })
    }

    /// Decompresses to at most `limit` bytes. Fails if the type is unknown, or the data are invalid or too large.
    pub fn decode(&self, limit: usize) -> Result<Vec<u8>, CompressionError> {
        let mut json = Vec::new();
        self.decode_to(limit, &mut json)?;
        Ok(json)
    }

    /// Returns the size of the JSON, at most `limit`. Takes little memory.
    pub fn decoded_size(&self, limit: usize) -> Result<u64, CompressionError> {
        self.decode_to(limit, &mut io::sink())
    }

    /// Counts the memory of the parsed JSON. Takes little memory.
    pub fn parsed_bytes(&self, limit: usize) -> Result<u64, CompressionError> {
        let mut size = ParsedSize::default();
        self.decode_to(limit, &mut size)?;
        Ok(size.bytes())
    }

    fn decode_to(&self, limit: usize, json: &mut impl Write) -> Result<u64, CompressionError> {
        let format = match self.type_.as_str() {
            "gzip" => Format::Gzip,
            "zstd" => Format::Zstd,
            other => return Err(CompressionError::UnknownType(other.to_owned())),
        };
        let compressed = STANDARD.decode(&self.data)?;
        let size = match format {
            Format::Gzip => copy_limited(MultiGzDecoder::new(&compressed[..]), limit, json),
            Format::Zstd => unzstd(&compressed, limit, json),
        };
        let size = size.map_err(|cause| CompressionError::Invalid {
            format: format.name(),
            cause,
        })?;
        if size > limit as u64 {
            return Err(CompressionError::TooLarge(limit));
        }
        Ok(size)
    }
}

fn unzstd(compressed: &[u8], limit: usize, json: &mut impl Write) -> io::Result<u64> {
    let mut decoder = zstd::Decoder::with_buffer(compressed)?;
    decoder.window_log_max(MAX_WINDOW_LOG)?;
    copy_limited(decoder, limit, json)
}

/// Copies at most one byte more than `limit`.
fn copy_limited(reader: impl Read, limit: usize, json: &mut impl Write) -> io::Result<u64> {
    io::copy(&mut reader.take((limit as u64).saturating_add(1)), json)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::budget::parsed_bytes;

    const LIMIT: usize = 8 << 20;

    #[rstest]
    #[case(Format::Gzip)]
    #[case(Format::Zstd)]
    fn json_survives_a_round_trip(#[case] format: Format) {
        let json = br#"[{"kind":"Deployment"}]"#;
        let compressed = Compressed::encode(format, json).unwrap();
        assert_eq!(compressed.type_, format.name());
        assert_eq!(compressed.decode(LIMIT).unwrap(), json);
        assert_eq!(compressed.decoded_size(LIMIT).unwrap(), json.len() as u64);
        let text = std::str::from_utf8(json).unwrap();
        assert_eq!(compressed.parsed_bytes(LIMIT).unwrap(), parsed_bytes(text));
    }

    #[rstest]
    #[case(Format::Gzip)]
    #[case(Format::Zstd)]
    fn a_bomb_fails_by_name(#[case] format: Format) {
        let bomb = Compressed::encode(format, &vec![b' '; LIMIT + 1]).unwrap();
        assert!(bomb.data.len() < 1 << 20);
        assert_eq!(
            bomb.decode(LIMIT).unwrap_err().to_string(),
            "decompressed data exceeds 8 MiB"
        );
        let largest = Compressed::encode(format, &vec![b' '; LIMIT]).unwrap();
        assert_eq!(largest.decode(LIMIT).unwrap().len(), LIMIT);
    }

    #[test]
    fn a_zstd_frame_that_demands_a_huge_window_is_rejected() {
        // Magic number, a descriptor without checksum, and a window of 2^31 bytes.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0x00, 0x00];
        let compressed = Compressed {
            type_: "zstd".to_owned(),
            data: STANDARD.encode(frame),
        };
        let error = compressed.decode(LIMIT).unwrap_err().to_string();
        assert!(error.starts_with("compressed data is not valid zstd: "), "{error}");
    }

    #[rstest]
    #[case("lz4", "", "unknown compression type \"lz4\"; supported types: gzip, zstd")]
    #[case("gzip", "!", "compressed data is not base64: ")]
    #[case("gzip", "AAAA", "compressed data is not valid gzip: ")]
    #[case("zstd", "AAAA", "compressed data is not valid zstd: ")]
    fn invalid_data_fails_by_name(#[case] format: &str, #[case] data: &str, #[case] expected: &str) {
        let compressed = Compressed {
            type_: format.to_owned(),
            data: data.to_owned(),
        };
        let error = compressed.decode(LIMIT).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
