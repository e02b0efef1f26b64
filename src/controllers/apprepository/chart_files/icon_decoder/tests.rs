//! Tests of the whole conversion.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, Rgba, RgbaImage};
use proptest::prelude::*;
use proptest::sample::Index;
use rstest::rstest;

use super::*;

fn icon(bytes: &[u8]) -> Result<RgbaImage, IconError> {
    let png = png(bytes, &IconLimits::default())?;
    Ok(image::load_from_memory_with_format(&png, ImageFormat::Png)
        .unwrap()
        .into_rgba8())
}

fn image_data(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let image_data = RgbaImage::from_fn(width, height, |x, y| {
        Rgba([(x * 7) as u8, (y * 5) as u8, (x ^ y) as u8, 255])
    });
    let image_data = match format {
        ImageFormat::Jpeg => DynamicImage::from(DynamicImage::from(image_data).into_rgb8()),
        _ => image_data.into(),
    };
    let mut bytes = Vec::new();
    image_data.write_to(&mut Cursor::new(&mut bytes), format).unwrap();
    bytes
}

const RED: Rgba<u8> = Rgba([255, 0, 0, 255]);
const NOTHING: Rgba<u8> = Rgba([0, 0, 0, 0]);

#[rstest]
fn each_format_is_fitted_in(
    #[values(
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::Gif,
        ImageFormat::Tiff,
        ImageFormat::Bmp,
        ImageFormat::WebP
    )]
    format: ImageFormat,
) {
    let large = image_data(400, 200, format);
    let png = png(&large, &IconLimits::default()).unwrap();
    assert_eq!(image::guess_format(&png).unwrap(), ImageFormat::Png);
    let fitted = image::load_from_memory(&png).unwrap();
    assert_eq!((fitted.width(), fitted.height()), (160, 80));
    assert_eq!(icon(&image_data(32, 40, format)).unwrap().dimensions(), (32, 40));
}

#[rstest]
#[case((1000, 10), (160, 2))]
#[case((1, 5000), (1, 160))]
#[case((161, 160), (160, 159))]
#[case((160, 160), (160, 160))]
fn proportions_are_kept(#[case] from: (u32, u32), #[case] to: (u32, u32)) {
    assert_eq!(
        icon(&image_data(from.0, from.1, ImageFormat::Png))
            .unwrap()
            .dimensions(),
        to
    );
}

#[test]
fn a_small_image_keeps_its_pixels() {
    let bytes = image_data(50, 60, ImageFormat::Png);
    assert_eq!(
        icon(&bytes).unwrap(),
        image::load_from_memory(&bytes).unwrap().into_rgba8()
    );
}

#[test]
fn transparent_pixels_do_not_bleed_their_color() {
    let half = RgbaImage::from_fn(640, 640, |x, _| if x < 320 { RED } else { NOTHING });
    let mut bytes = Vec::new();
    half.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).unwrap();
    for pixel in icon(&bytes).unwrap().pixels().filter(|pixel| pixel[3] > 10) {
        assert!(pixel[0] > 240 && pixel[1] == 0, "{pixel:?}");
    }
}

#[test]
fn an_image_is_refused_by_its_header() {
    // A PNG header that claims 4 GB.
    let mut bytes = image_data(1, 1, ImageFormat::Png);
    bytes[16..24].copy_from_slice(&[0, 0, 0x78, 0, 0, 0, 0x78, 0]);
    let crc = crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(icon(&bytes), Err(IconError::too_large("pixels", 1024 * 1024)));
    let limits = IconLimits {
        pixels: 100,
        ..IconLimits::default()
    };
    for format in [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::Gif,
        ImageFormat::Tiff,
        ImageFormat::Bmp,
        ImageFormat::WebP,
    ] {
        let result = png(&image_data(11, 10, format), &limits);
        assert_eq!(result, Err(IconError::too_large("pixels", 100)), "{format:?}");
    }
    let limits = IconLimits {
        bytes: 50,
        ..IconLimits::default()
    };
    assert_eq!(
        png(&image_data(9, 9, ImageFormat::Png), &limits),
        Err(IconError::too_large("bytes", 50))
    );
}

/// Computes the checksum of a PNG chunk.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ ((sum & 1) * 0xedb8_8320))
    })
}

#[rstest]
#[case(b"", "the response is empty")]
#[case(b"<!DOCTYPE html><html><svg/></html>", "the response is an HTML or XML page")]
#[case(b"<?xml version='1.0'?><rss/>", "the response is an HTML or XML page")]
#[case(b"Not found", "unknown image format")]
#[case(b"\x00\x00\x01\x00\x01\x00", "unknown image format")]
fn other_content_is_reported_as_not_an_icon(#[case] bytes: &[u8], #[case] what: &'static str) {
    assert_eq!(icon(bytes), Err(IconError::NotAnIcon(what)));
}

#[test]
fn an_svg_stays_as_it_came_up_to_its_limit() {
    let read = |bytes: &[u8]| read(bytes.to_vec(), &IconLimits::default());
    let hostile = b"<?xml version='1.0'?><!-- x --><svg onload='alert(1)'><script>alert(1)</script>\xff</svg>";
    assert_eq!(read(hostile), Ok(Icon::Svg(hostile.to_vec())));
    let mut svg = b"<svg>".to_vec();
    svg.resize(SVG_BYTES, b' ');
    assert_eq!(read(&svg), Ok(Icon::Svg(svg.clone())));
    svg.push(b' ');
    assert_eq!(
        read(&svg),
        Err(IconError::too_large("bytes as an SVG", SVG_BYTES as u64))
    );
    let page = read(b"<!DOCTYPE html><html><svg/></html>");
    assert!(matches!(page, Err(IconError::NotAnIcon(_))), "{page:?}");
    let raster = read(&image_data(4, 4, ImageFormat::Gif));
    assert!(matches!(raster, Ok(Icon::Png(_))), "{raster:?}");
}

#[test]
fn the_largest_image_is_stored_and_one_more_row_is_not() {
    assert!(icon(&image_data(1024, 1024, ImageFormat::Jpeg)).is_ok());
    assert_eq!(
        icon(&image_data(1024, 1025, ImageFormat::Jpeg)),
        Err(IconError::too_large("pixels", 1024 * 1024))
    );
    assert_eq!(IconLimits::default().memory(), 12 << 20);
}

#[test]
fn an_image_with_16_bits_per_channel_needs_no_more_memory() {
    let limits = IconLimits {
        pixels: 400,
        ..IconLimits::default()
    };
    let deep = image::DynamicImage::ImageRgba16(image::ImageBuffer::new(20, 20));
    let flat = image::DynamicImage::ImageRgba8(image::ImageBuffer::new(20, 20));
    let written = |image_data: &image::DynamicImage| {
        let mut bytes = Vec::new();
        image_data
            .write_to(&mut std::io::Cursor::new(&mut bytes), image::ImageFormat::Png)
            .unwrap();
        png(&bytes, &limits)
    };
    assert!(written(&flat).is_ok());
    assert_eq!(written(&deep), Err(IconError::too_large("bytes once decoded", 1600)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn corrupted_images_cause_no_panic(
        format in proptest::sample::select(&[ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::Tiff, ImageFormat::Bmp, ImageFormat::WebP][..]),
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..8),
        cut in proptest::option::of(any::<Index>()),
    ) {
        let mut bytes = image_data(20, 10, format);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(drawn) = icon(&bytes) {
            prop_assert!(drawn.width() <= SIDE && drawn.height() <= SIDE);
        }
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(bytes, &IconLimits::default());
    }
}
