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
use image::ImageFormat;

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
    guarded(|| {
        let picture = match Kind::of(bytes, content_type, limits)? {
            Kind::Raster(format) => raster::read(bytes, format, limits)?,
            Kind::Svg => svg::draw(bytes, limits)?,
        };
        raster::encode(&picture)
    })
}

/// Bytes of memory that [`png`] takes at most for this icon, beside the icon itself: some mebibytes for a small picture, twelve
/// bytes for each pixel of a large one, eight mebibytes and more for an SVG. It is told by the beginning of the icon, or by the text
/// of an SVG, and takes little itself.
///
/// # Errors
/// [`IconError`], final for these bytes.
pub fn memory(bytes: &[u8], content_type: Option<&str>, limits: &Limits) -> Result<u64, IconError> {
    guarded(|| match Kind::of(bytes, content_type, limits)? {
        Kind::Raster(format) => raster::memory(bytes, format, limits),
        Kind::Svg => svg::memory(bytes, limits),
    })
}

/// The decoders check with assertions and plain indexing what they have not thought of; one hostile icon must not take its worker's
/// other work along.
fn guarded<T>(work: impl FnOnce() -> Result<T, IconError>) -> Result<T, IconError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(IconError::damaged("its decoder failed on it")))
}

enum Kind {
    Raster(ImageFormat),
    Svg,
}

impl Kind {
    /// What it is, if it has no more bytes than such a one may have.
    fn of(bytes: &[u8], content_type: Option<&str>, limits: &Limits) -> Result<Self, IconError> {
        if bytes.is_empty() {
            return Err(IconError::NotAnIcon("the answer is empty"));
        }
        match raster::format(bytes) {
            Some(format) => {
                check_bytes(bytes, limits.bytes)?;
                Ok(Self::Raster(format))
            }
            None if svg::is_svg(bytes, content_type) => {
                check_bytes(bytes, limits.svg_bytes)?;
                Ok(Self::Svg)
            }
            None if bytes.trim_ascii_start().starts_with(b"<") => {
                Err(IconError::NotAnIcon("the answer is an HTML or XML page"))
            }
            None => Err(IconError::NotAnIcon("the answer is in no format that is known")),
        }
    }
}

fn check_bytes(bytes: &[u8], limit: usize) -> Result<(), IconError> {
    if bytes.len() > limit {
        return Err(IconError::too_large("bytes", limit as u64));
    }
    Ok(())
}
