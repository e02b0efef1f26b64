//! Icons of charts: whatever picture is published, as a small PNG.
//!
//! Anybody may publish an icon. A picture is judged by its dimensions before it is decoded, and an SVG by what drawing it
//! would cost before it is drawn; nothing that an SVG refers to outside itself is ever loaded.

mod data_url;
mod entities;
mod error;
mod raster;
mod styles;
mod svg;
#[cfg(test)]
mod tests;
mod weight;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use data_url::data_url;
pub use error::IconError;

/// Pixels that an icon has at most on either side, as in Kubeapps.
const SIDE: u32 = 160;

/// What an icon may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a picture.
    pub bytes: usize,
    /// Bytes of an SVG.
    pub svg_bytes: usize,
    /// Pixels of a picture. Decoded it may take four bytes for each, so one of 16 bits has half as many; its decoder may take
    /// eight beside.
    pub pixels: u64,
    /// Elements and attributes that drawing an SVG comes across, those that it draws repeatedly counted as often, and
    /// longer attributes by their length.
    pub svg_weight: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 5 * 1024 * 1024,
            svg_bytes: 512 * 1024,
            pixels: 2048 * 2048,
            // Some thousand plain shapes. The dearest drawings within it take about half a minute unoptimised.
            svg_weight: 50_000,
        }
    }
}

/// Turns an icon into a PNG of at most 160 pixels on either side, its proportions kept: larger pictures are scaled
/// down (Lanczos), smaller ones stay as they are, and an SVG is drawn at the final size at once. PNG, JPEG, GIF (its
/// first frame), TIFF, BMP and WebP are told by their first bytes, an SVG by its content type or its beginning.
///
/// Blocks while it computes, so it belongs on a thread that may; a stack of 2 MiB is enough.
///
/// # Errors
/// [`IconError`], final for these bytes.
pub fn png(bytes: &[u8], content_type: Option<&str>, limits: &Limits) -> Result<Vec<u8>, IconError> {
    // The decoders check with assertions and plain indexing what they have not thought of; one hostile icon must not take
    // its worker's other work along.
    catch_unwind(AssertUnwindSafe(|| convert(bytes, content_type, limits)))
        .unwrap_or_else(|_| Err(IconError::damaged("its decoder failed on it")))
}

fn convert(bytes: &[u8], content_type: Option<&str>, limits: &Limits) -> Result<Vec<u8>, IconError> {
    if bytes.is_empty() {
        return Err(IconError::NotAnIcon("the answer is empty"));
    }
    let picture = match raster::format(bytes) {
        Some(format) => {
            check_bytes(bytes, limits.bytes)?;
            raster::read(bytes, format, limits)?
        }
        None if svg::is_svg(bytes, content_type) => {
            check_bytes(bytes, limits.svg_bytes)?;
            svg::draw(bytes, limits)?
        }
        None if bytes.trim_ascii_start().starts_with(b"<") => {
            return Err(IconError::NotAnIcon("the answer is an HTML or XML page"));
        }
        None => return Err(IconError::NotAnIcon("the answer is in no format that is known")),
    };
    raster::encode(&picture)
}

fn check_bytes(bytes: &[u8], limit: usize) -> Result<(), IconError> {
    if bytes.len() > limit {
        return Err(IconError::too_large("bytes", limit as u64));
    }
    Ok(())
}
