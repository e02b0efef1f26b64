//! Icons of charts: raster images of any publisher, stored as small PNGs.
//!
//! An image is judged by its dimensions before it is decoded. SVGs are not stored.

mod data_url;
mod error;
mod raster;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use data_url::data_url;
pub use error::IconError;

/// Pixels that an icon has at most on either side, as in Kubeapps.
const SIDE: u32 = 160;

/// Resource limits of one icon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the image file.
    pub bytes: usize,
    /// Pixels of the image. Decoded it may take four bytes for each, so an image of 16 bits per channel has half as many.
    pub pixels: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 5 * 1024 * 1024,
            pixels: 1024 * 1024,
        }
    }
}

impl Limits {
    /// Returns the bytes of memory that [`png`] takes at most, besides the file and a copy of it that some decoders make.
    ///
    /// A decoded image takes 3 (RGB) or 4 (RGBA) bytes a pixel, and its decoder up to 8 more: 12 MiB for 1,024 x 1,024 pixels.
    /// Resizing takes less than the decoder, which is gone by then: a second RGBA copy, and four floats for each pixel of an
    /// image of the old width and the new height.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        4 * self.pixels + self.decoder_memory()
    }

    const fn decoder_memory(&self) -> u64 {
        /// Tables, a color profile, buffers.
        const LEAST: u64 = 1024 * 1024;
        let bytes = 8 * self.pixels;
        if bytes > LEAST { bytes } else { LEAST }
    }
}

/// Turns an icon into a PNG of at most 160 pixels on either side, its proportions kept: larger images are scaled down
/// (Lanczos), smaller ones stay as they are. PNG, JPEG, GIF (its first frame), TIFF, BMP and WebP are recognized by their
/// first bytes.
///
/// Blocks while it computes, so it belongs on a thread that may.
///
/// # Errors
/// [`IconError`], final for these bytes.
pub fn png(bytes: &[u8], content_type: Option<&str>, limits: &Limits) -> Result<Vec<u8>, IconError> {
    if bytes.len() > limits.bytes {
        return Err(IconError::too_large("bytes", limits.bytes as u64));
    }
    let Some(format) = raster::format(bytes) else {
        return Err(unsupported(bytes, content_type));
    };
    // Decoders check with assertions and plain indexing what they did not expect; one hostile icon must not fail other work.
    catch_unwind(AssertUnwindSafe(|| raster::png(bytes, format, limits)))
        .unwrap_or_else(|_| Err(IconError::damaged("its decoder failed on it")))
}

fn unsupported(bytes: &[u8], content_type: Option<&str>) -> IconError {
    if bytes.is_empty() {
        return IconError::NotAnIcon("the answer is empty");
    }
    if is_svg(bytes, content_type) {
        return IconError::Svg;
    }
    IconError::NotAnIcon(if bytes.trim_ascii_start().starts_with(b"<") {
        "the answer is an HTML or XML page"
    } else {
        "the answer is in no format that is known"
    })
}

/// Recognizes an SVG by its content type or its beginning.
fn is_svg(bytes: &[u8], content_type: Option<&str>) -> bool {
    /// A prologue and comments reach no further.
    const BEGINNING: usize = 4096;
    if content_type.is_some_and(|value| value.to_ascii_lowercase().contains("image/svg")) {
        return true;
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let beginning = &bytes[..bytes.len().min(BEGINNING)];
    let begins_with = |starts: &[&[u8]]| starts.iter().any(|start| beginning.starts_with(start));
    begins_with(&[b"<svg", b"<!DOCTYPE svg"])
        || begins_with(&[b"<?xml", b"<!--"]) && beginning.windows(4).any(|window| window == b"<svg")
}
