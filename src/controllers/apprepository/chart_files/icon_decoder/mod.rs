//! Converts icons to small PNGs. Dimensions are checked before decoding. SVGs stay as they are.

mod data_url;
mod error;
mod raster;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use data_url::data_url;
pub use error::IconError;

use crate::text::is_svg;

/// Copies of the file in memory: the file, one in the decoder, and the text of a `data:` URL.
pub const COPIES: u64 = 3;

const BYTES_PER_PIXEL: u64 = 12;

/// Maximum width and height of a stored icon, as in Kubeapps.
const SIDE: u32 = 160;

/// Maximum size of an SVG.
const SVG_BYTES: usize = 128 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IconLimits {
    pub bytes: usize,
    /// A decoded pixel takes up to four bytes; images with 16 bits per channel may have half as many pixels.
    pub pixels: u64,
}

impl Default for IconLimits {
    fn default() -> Self {
        Self {
            bytes: 5 * 1024 * 1024,
            pixels: 1024 * 1024,
        }
    }
}

impl IconLimits {
    /// Lowers the limits until the largest icon needs at most `memory` bytes.
    #[must_use]
    pub fn within(self, memory: u64) -> Self {
        let half = memory / 2;
        Self {
            bytes: self.bytes.min(usize::try_from(half / COPIES).unwrap_or(usize::MAX)),
            pixels: self.pixels.min(half / BYTES_PER_PIXEL),
        }
    }

    /// Returns the peak memory of [`png`] in bytes, in addition to the file and a copy that some decoders make. A
    /// decoded image takes 3 or 4 bytes per pixel, its decoder up to 8 more: 12 MiB for 1,024 x 1,024 pixels. Resizing
    /// takes less.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        4 * self.pixels + self.decoder_memory()
    }

    const fn decoder_memory(&self) -> u64 {
        const LEAST: u64 = 1024 * 1024;
        let bytes = 8 * self.pixels;
        if bytes > LEAST { bytes } else { LEAST }
    }
}

/// An icon in the form in which it is stored.
#[derive(Debug, PartialEq, Eq)]
pub enum Icon {
    Png(Vec<u8>),
    /// As it came: browsers show it as an image, in which nothing runs and nothing is loaded.
    Svg(Vec<u8>),
}

/// Detects the format of an icon from its content, and converts raster images by [`png`].
pub fn read(bytes: Vec<u8>, limits: &IconLimits) -> Result<Icon, IconError> {
    if !is_svg(&bytes) {
        return png(&bytes, limits).map(Icon::Png);
    }
    if bytes.len() > SVG_BYTES {
        return Err(IconError::too_large("bytes as an SVG", SVG_BYTES as u64));
    }
    Ok(Icon::Svg(bytes))
}

/// Converts an icon to a PNG of at most 160 x 160 pixels. Larger images are scaled down, smaller ones stay. The format
/// is detected from the first bytes: PNG, JPEG, GIF (first frame), TIFF, BMP or WebP.
pub fn png(bytes: &[u8], limits: &IconLimits) -> Result<Vec<u8>, IconError> {
    if bytes.len() > limits.bytes {
        return Err(IconError::too_large("bytes", limits.bytes as u64));
    }
    let Some(format) = raster::format(bytes) else {
        return Err(IconError::NotAnIcon(describe(bytes)));
    };
    // Decoders panic on some invalid input; a hostile icon must not fail other work.
    catch_unwind(AssertUnwindSafe(|| raster::png(bytes, format, limits)))
        .unwrap_or_else(|_| Err(IconError::damaged("decoder panicked")))
}

fn describe(bytes: &[u8]) -> &'static str {
    if bytes.is_empty() {
        "the response is empty"
    } else if bytes.trim_ascii_start().starts_with(b"<") {
        "the response is an HTML or XML page"
    } else {
        "unknown image format"
    }
}
