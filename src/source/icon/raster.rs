//! Pictures made of pixels.

use std::io::Cursor;

use image::error::ImageError;
use image::imageops::{self, FilterType};
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, RgbaImage};

use super::{IconError, Limits, SIDE};

/// Pixels on one side: what scaling takes in memory follows the longer one.
const SIDE_LIMIT: u32 = 16_384;

/// The format that the first bytes tell, if it is one that is read.
pub(super) fn format(bytes: &[u8]) -> Option<ImageFormat> {
    image::guess_format(bytes).ok().filter(ImageFormat::reading_enabled)
}

/// What a decoder may take for itself in any case: tables, a colour profile, buffers.
const DECODER_BYTES: u64 = 1024 * 1024;

/// Bytes of memory that decoding a picture and fitting it in takes, by what its header says.
pub(super) fn memory(bytes: &[u8], format: ImageFormat, limits: &Limits) -> Result<u64, IconError> {
    let header = Header::read(bytes, format, limits)?;
    // Scaling makes four floats of each pixel of a picture that is as narrow as it was and as high as it will be, or the other
    // way round.
    let scaling = 16 * u64::from(SIDE) * u64::from(header.shortest_side);
    let scaling = 4 * header.pixels + scaling;
    // Some decoders begin with a copy of the bytes. They are gone before anything is scaled.
    Ok(header.decoded + scaling.max(header.decoder + bytes.len() as u64))
}

/// What is known of a picture before it is decoded.
struct Header {
    shortest_side: u32,
    pixels: u64,
    /// Bytes once decoded.
    decoded: u64,
    /// Bytes that its decoder may take beside them: eight a pixel, or twice what they decode to.
    decoder: u64,
}

impl Header {
    fn read(bytes: &[u8], format: ImageFormat, limits: &Limits) -> Result<Self, IconError> {
        let decoder = open(bytes, format, DECODER_BYTES, limits)?;
        let (width, height) = decoder.dimensions();
        let (pixels, decoded) = (u64::from(width) * u64::from(height), decoder.total_bytes());
        if pixels > limits.pixels {
            return Err(IconError::too_large("pixels", limits.pixels));
        }
        let most = limits.pixels.saturating_mul(4);
        if decoded > most {
            return Err(IconError::too_large("bytes once decoded", most));
        }
        Ok(Self {
            shortest_side: width.min(height),
            pixels,
            decoded,
            decoder: (8 * pixels).max(2 * decoded).max(DECODER_BYTES),
        })
    }
}

/// Decodes a picture, its first frame if it moves, and fits it in.
pub(super) fn read(bytes: &[u8], format: ImageFormat, limits: &Limits) -> Result<RgbaImage, IconError> {
    let header = Header::read(bytes, format, limits)?;
    let decoder = open(bytes, format, header.decoder, limits)?;
    let picture = DynamicImage::from_decoder(decoder).map_err(|error| failed(error, limits))?;
    Ok(fit(picture.into_rgba8()))
}

/// A decoder that has read the header, and takes no more than so many bytes beside what it decodes to.
fn open<'b>(
    bytes: &'b [u8],
    format: ImageFormat,
    memory: u64,
    limits: &Limits,
) -> Result<impl ImageDecoder + 'b, IconError> {
    let mut bounds = image::Limits::default();
    bounds.max_image_width = Some(SIDE_LIMIT);
    bounds.max_image_height = Some(SIDE_LIMIT);
    bounds.max_alloc = Some(memory);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(bounds);
    reader.into_decoder().map_err(|error| failed(error, limits))
}

fn failed(error: ImageError, limits: &Limits) -> IconError {
    match error {
        ImageError::Limits(_) => IconError::too_large("pixels", limits.pixels),
        other => IconError::damaged(&other.to_string()),
    }
}

/// Scales down to [`SIDE`], never up.
fn fit(mut picture: RgbaImage) -> RgbaImage {
    let (width, height) = picture.dimensions();
    let longest = width.max(height);
    if longest <= SIDE {
        return picture;
    }
    let scaled = |side: u32| {
        let (side, longest) = (u64::from(side), u64::from(longest));
        let rounded = (side * u64::from(SIDE) + longest / 2) / longest;
        u32::try_from(rounded).unwrap_or(SIDE).clamp(1, SIDE)
    };
    // What is transparent has a colour too, which must not bleed into what is not.
    change_colours(&mut picture, multiplied);
    let mut picture = imageops::resize(&picture, scaled(width), scaled(height), FilterType::Lanczos3);
    change_colours(&mut picture, divided);
    picture
}

fn change_colours(picture: &mut RgbaImage, change: fn(u8, u8) -> u8) {
    for pixel in picture.pixels_mut() {
        let [red, green, blue, alpha] = pixel.0;
        pixel.0 = [change(red, alpha), change(green, alpha), change(blue, alpha), alpha];
    }
}

fn multiplied(colour: u8, alpha: u8) -> u8 {
    let product = (u16::from(colour) * u16::from(alpha) + 127) / 255;
    u8::try_from(product).unwrap_or(u8::MAX)
}

fn divided(colour: u8, alpha: u8) -> u8 {
    let quotient = (u16::from(colour) * 255 + u16::from(alpha) / 2).checked_div(u16::from(alpha));
    u8::try_from(quotient.unwrap_or_default()).unwrap_or(u8::MAX)
}

/// The picture as a PNG.
pub(super) fn encode(picture: &RgbaImage) -> Result<Vec<u8>, IconError> {
    let mut bytes = Vec::new();
    picture
        .write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png)
        .map_err(|error| IconError::damaged(&error.to_string()))?;
    Ok(bytes)
}
