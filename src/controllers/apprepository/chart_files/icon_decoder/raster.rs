use std::io::Cursor;

use image::error::ImageError;
use image::imageops::{self, FilterType};
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, RgbaImage};

use super::{IconError, IconLimits, SIDE};

/// Maximum width and height; the memory for scaling depends on the longer side.
const SIDE_LIMIT: u32 = 16_384;

pub(super) fn format(bytes: &[u8]) -> Option<ImageFormat> {
    image::guess_format(bytes).ok().filter(ImageFormat::reading_enabled)
}

/// Decodes an image, or the first frame of an animation, and encodes it as a PNG that fits [`SIDE`].
pub(super) fn png(bytes: &[u8], format: ImageFormat, limits: &IconLimits) -> Result<Vec<u8>, IconError> {
    let decoder = open(bytes, format, limits)?;
    let image_data = DynamicImage::from_decoder(decoder).map_err(|error| failed(error, limits))?;
    encode(&fit(image_data.into_rgba8()))
}

fn open<'b>(bytes: &'b [u8], format: ImageFormat, limits: &IconLimits) -> Result<impl ImageDecoder + 'b, IconError> {
    let mut bounds = image::Limits::default();
    bounds.max_image_width = Some(SIDE_LIMIT);
    bounds.max_image_height = Some(SIDE_LIMIT);
    bounds.max_alloc = Some(limits.decoder_memory());
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(bounds);
    let decoder = reader.into_decoder().map_err(|error| failed(error, limits))?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > limits.pixels {
        return Err(IconError::too_large("pixels", limits.pixels));
    }
    let decoded = 4 * limits.pixels;
    if decoder.total_bytes() > decoded {
        return Err(IconError::too_large("bytes once decoded", decoded));
    }
    Ok(decoder)
}

fn failed(error: ImageError, limits: &IconLimits) -> IconError {
    match error {
        ImageError::Limits(_) => IconError::too_large("pixels", limits.pixels),
        other => IconError::damaged(&other.to_string()),
    }
}

/// Scales down to [`SIDE`], never up.
fn fit(mut image_data: RgbaImage) -> RgbaImage {
    let (width, height) = image_data.dimensions();
    let longest = width.max(height);
    if longest <= SIDE {
        return image_data;
    }
    let scaled = |side: u32| {
        let (side, longest) = (u64::from(side), u64::from(longest));
        let rounded = (side * u64::from(SIDE) + longest / 2) / longest;
        u32::try_from(rounded).unwrap_or(SIDE).clamp(1, SIDE)
    };
    // Premultiplies alpha, so that transparent pixels do not bleed their color.
    map_colors(&mut image_data, multiply_alpha);
    let mut image_data = imageops::resize(&image_data, scaled(width), scaled(height), FilterType::Lanczos3);
    map_colors(&mut image_data, divide_alpha);
    image_data
}

fn map_colors(image_data: &mut RgbaImage, change: fn(u8, u8) -> u8) {
    for pixel in image_data.pixels_mut() {
        let [red, green, blue, alpha] = pixel.0;
        pixel.0 = [change(red, alpha), change(green, alpha), change(blue, alpha), alpha];
    }
}

fn multiply_alpha(color: u8, alpha: u8) -> u8 {
    let product = (u16::from(color) * u16::from(alpha) + 127) / 255;
    u8::try_from(product).unwrap_or(u8::MAX)
}

fn divide_alpha(color: u8, alpha: u8) -> u8 {
    let quotient = (u16::from(color) * 255 + u16::from(alpha) / 2).checked_div(u16::from(alpha));
    u8::try_from(quotient.unwrap_or_default()).unwrap_or(u8::MAX)
}

fn encode(image_data: &RgbaImage) -> Result<Vec<u8>, IconError> {
    let mut bytes = Vec::new();
    image_data
        .write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png)
        .map_err(|error| IconError::damaged(&error.to_string()))?;
    Ok(bytes)
}
