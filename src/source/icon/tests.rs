//! Tests of icons as a whole; what concerns one file stands in that file.

use std::io::Cursor;

use image::{DynamicImage, ImageFormat, Rgba, RgbaImage};
use proptest::prelude::*;
use proptest::sample::Index;
use rstest::rstest;

use super::*;

fn icon(bytes: &[u8]) -> Result<RgbaImage, IconError> {
    let png = png(bytes, None, &Limits::default())?;
    Ok(image::load_from_memory_with_format(&png, ImageFormat::Png)
        .unwrap()
        .into_rgba8())
}

fn svg(content: &str) -> Result<RgbaImage, IconError> {
    icon(format!("<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' viewBox='0 0 100 100'>{content}</svg>").as_bytes())
}

fn picture(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let picture = RgbaImage::from_fn(width, height, |x, y| {
        Rgba([(x * 7) as u8, (y * 5) as u8, (x ^ y) as u8, 255])
    });
    let picture = match format {
        ImageFormat::Jpeg => DynamicImage::from(DynamicImage::from(picture).into_rgb8()),
        _ => picture.into(),
    };
    let mut bytes = Vec::new();
    picture.write_to(&mut Cursor::new(&mut bytes), format).unwrap();
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
    // A wrong content type is no hindrance: what the bytes say is beyond doubt.
    let large = picture(400, 200, format);
    for content_type in [None, Some("image/svg+xml"), Some("text/html")] {
        let png = png(&large, content_type, &Limits::default()).unwrap();
        assert_eq!(image::guess_format(&png).unwrap(), ImageFormat::Png);
        let fitted = image::load_from_memory(&png).unwrap();
        assert_eq!((fitted.width(), fitted.height()), (160, 80));
    }
    assert_eq!(icon(&picture(32, 40, format)).unwrap().dimensions(), (32, 40));
}

#[rstest]
#[case((1000, 10), (160, 2))]
#[case((1, 5000), (1, 160))]
#[case((161, 160), (160, 159))]
#[case((160, 160), (160, 160))]
fn proportions_are_kept(#[case] from: (u32, u32), #[case] to: (u32, u32)) {
    assert_eq!(
        icon(&picture(from.0, from.1, ImageFormat::Png)).unwrap().dimensions(),
        to
    );
}

#[rstest]
#[case::small((64, 64), 1, 2)]
#[case::large((1024, 1024), 12, 14)]
#[case::narrow((16_000, 16), 3, 5)]
fn what_a_picture_takes_is_told_by_its_header(
    #[values(
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::Gif,
        ImageFormat::Tiff,
        ImageFormat::Bmp,
        ImageFormat::WebP
    )]
    format: ImageFormat,
    #[case] (width, height): (u32, u32),
    #[case] least: u64,
    #[case] most: u64,
) {
    let bytes = picture(width, height, format);
    let memory = memory(&bytes, None, &Limits::default()).unwrap();
    let own = bytes.len() as u64;
    // A JPEG and others without transparency decode to three bytes a pixel.
    let least = (least << 20) * 9 / 12;
    assert!((least..(most << 20) + own).contains(&memory), "{memory}");
}

#[test]
fn what_an_svg_takes_is_told_by_its_weight() {
    let drawing = |shapes: usize| {
        let shapes = "<use href='#a'/>".repeat(shapes);
        format!("<svg xmlns='http://www.w3.org/2000/svg'><path id='a' d='M0 0h1v1z'/>{shapes}</svg>")
    };
    let takes = |svg: String| memory(svg.as_bytes(), None, &Limits::default()).unwrap();
    let (light, heavy) = (takes(drawing(1)), takes(drawing(5000)));
    assert!(light < 9 << 20 && heavy > light + (8 << 20), "{light} {heavy}");
    let none = memory(b"Not found", None, &Limits::default()).unwrap_err();
    assert!(matches!(none, IconError::NotAnIcon(_)), "{none}");
}

#[test]
fn a_picture_that_is_small_enough_keeps_its_pixels() {
    let bytes = picture(50, 60, ImageFormat::Png);
    assert_eq!(
        icon(&bytes).unwrap(),
        image::load_from_memory(&bytes).unwrap().into_rgba8()
    );
}

#[test]
fn the_colour_of_what_is_transparent_does_not_show() {
    let half = RgbaImage::from_fn(640, 640, |x, _| if x < 320 { RED } else { NOTHING });
    let mut bytes = Vec::new();
    half.write_to(&mut Cursor::new(&mut bytes), ImageFormat::Png).unwrap();
    for pixel in icon(&bytes).unwrap().pixels().filter(|pixel| pixel[3] > 10) {
        assert!(pixel[0] > 240 && pixel[1] == 0, "{pixel:?}");
    }
}

#[test]
fn a_picture_is_refused_by_what_it_announces() {
    // A PNG of 4 GB that has no content.
    let mut bytes = picture(1, 1, ImageFormat::Png);
    bytes[16..24].copy_from_slice(&[0, 0, 0x78, 0, 0, 0, 0x78, 0]);
    let crc = crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(icon(&bytes), Err(IconError::too_large("pixels", 2048 * 2048)));
    let limits = Limits {
        pixels: 100,
        ..Limits::default()
    };
    for format in [
        ImageFormat::Png,
        ImageFormat::Jpeg,
        ImageFormat::Gif,
        ImageFormat::Tiff,
        ImageFormat::Bmp,
        ImageFormat::WebP,
    ] {
        let result = png(&picture(11, 10, format), None, &limits);
        assert_eq!(result, Err(IconError::too_large("pixels", 100)), "{format:?}");
    }
    let limits = Limits {
        bytes: 50,
        svg_bytes: 10,
        ..Limits::default()
    };
    assert_eq!(
        png(&picture(9, 9, ImageFormat::Png), None, &limits),
        Err(IconError::too_large("bytes", 50))
    );
    assert_eq!(
        png(b"<svg>      </svg>", None, &limits),
        Err(IconError::too_large("bytes", 10))
    );
}

/// The sum that PNG puts behind each of its chunks.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ ((sum & 1) * 0xedb8_8320))
    })
}

#[rstest]
#[case(b"", "the answer is empty")]
#[case(b"<!DOCTYPE html><html><svg/></html>", "the answer is an HTML or XML page")]
#[case(b"<?xml version='1.0'?><rss/>", "the answer is an HTML or XML page")]
#[case(b"Not found", "the answer is in no format that is known")]
#[case(b"\x00\x00\x01\x00\x01\x00", "the answer is in no format that is known")]
fn what_is_no_icon_is_said_to_be_none(#[case] bytes: &[u8], #[case] what: &'static str) {
    assert_eq!(icon(bytes), Err(IconError::NotAnIcon(what)));
}

#[rstest]
#[case("<svg xmlns='http://www.w3.org/2000/svg' width='40' height='20'><rect width='40' height='20' fill='#f00'/></svg>", (40, 20))]
#[case("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 1000 500'><rect width='1000' height='500' fill='red'/></svg>", (160, 80))]
#[case("<svg xmlns='http://www.w3.org/2000/svg' width='16' height='16' viewBox='0 0 512 512'><rect width='512' height='512' fill='red'/></svg>", (160, 160))]
#[case("\u{feff}<?xml version='1.0'?><!-- x --><svg xmlns='http://www.w3.org/2000/svg' width='1e9' height='5e8'><rect width='1e9' height='1e9' fill='red'/></svg>", (160, 80))]
fn an_svg_is_drawn_at_its_final_size(#[case] text: &str, #[case] size: (u32, u32)) {
    let drawn = icon(text.as_bytes()).unwrap();
    assert_eq!(drawn.dimensions(), size);
    assert!(drawn.pixels().all(|pixel| *pixel == RED));
}

#[test]
fn an_svg_is_known_by_its_content_type_too() {
    let text = "<!DOCTYPE x [<!ENTITY svg 'http://www.w3.org/2000/svg'>]><x:svg xmlns:x='&svg;' width='9' height='9'><x:rect width='9' height='9' fill='red'/></x:svg>";
    assert!(matches!(icon(text.as_bytes()), Err(IconError::NotAnIcon(_))));
    let drawn = png(
        text.as_bytes(),
        Some("Image/SVG+xml; charset=utf-8"),
        &Limits::default(),
    )
    .unwrap();
    assert_eq!(
        *image::load_from_memory(&drawn).unwrap().into_rgba8().get_pixel(4, 4),
        RED
    );
}

#[test]
fn what_drawings_use_is_drawn() {
    let drawn = svg("<style>.a{fill:url(#g)} .b{clip-path:url(#c)} g.c rect{opacity:.5}</style>
        <defs><linearGradient id='g'><stop stop-color='red'/></linearGradient><clipPath id='c'><rect class='a' width='50' height='100'/></clipPath>
        <filter id='f'><feGaussianBlur stdDeviation='1e-9'/></filter><rect id='r' class='a' width='100' height='100'/></defs>
        <g class='b' filter='url(#f)'><use xlink:href='#r'/></g>")
    .unwrap();
    assert_eq!((*drawn.get_pixel(20, 50), *drawn.get_pixel(80, 50)), (RED, NOTHING));
}

#[rstest]
fn nothing_outside_an_svg_is_loaded(
    #[values(
        "file:///etc/hostname",
        "/etc/hostname",
        "icon.png",
        "http://127.0.0.1:9/icon.png",
        "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><rect width='9' height='9'/></svg>",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
    )]
    href: &str,
) {
    let href = href.replace('<', "&lt;").replace('\'', "&quot;");
    let drawn = svg(&format!(
        "<style>@import url('{href}');</style><image xlink:href='{href}' width='100' height='100'/><use xlink:href='{href}'/>"
    ));
    assert!(drawn.unwrap().pixels().all(|pixel| *pixel == NOTHING));
}

#[test]
fn an_entity_from_a_file_is_not_read() {
    let text = "<!DOCTYPE svg [<!ENTITY x SYSTEM 'file:///etc/hostname'>]><svg xmlns='http://www.w3.org/2000/svg'><desc>&x;</desc></svg>";
    assert!(matches!(icon(text.as_bytes()), Err(IconError::Damaged(_))));
}

fn chain(count: usize, link: impl Fn(usize) -> String) -> String {
    (0..count).map(link).collect()
}

#[rstest]
#[case::nesting(format!("{}{}", "<g>".repeat(6000), "</g>".repeat(6000)))]
#[case::nesting_layers(format!("{}<rect width='9' height='9'/>{}", "<g opacity='.5'>".repeat(49), "</g>".repeat(49)))]
#[case::attributes(format!("<g {}/>", chain(40_000, |n| format!("a{n}='' "))))]
#[case::many("<g/>".repeat(21_000))]
#[case::itself("<g id='a'><use xlink:href='#a'/></g>".to_owned())]
#[case::uses(chain(20, |n| format!("<g id='a{n}'>{}</g>", format!("<use xlink:href='#a{}'/>", n + 1).repeat(10))))]
#[case::masks(chain(20, |n| format!("<mask id='a{n}'>{}</mask>", format!("<rect mask='url(#a{})'/>", n + 1).repeat(10))) + "<rect mask='url(#a0)'/>")]
#[case::masks_by_style(format!("<style>{}</style>{}<rect class='a0'/>",
    chain(20, |n| format!(".a{n}{{mask:url(#m{n})}}")),
    chain(20, |n| format!("<mask id='m{n}'>{}</mask>", format!("<rect class='a{}'/>", n + 1).repeat(10)))))]
#[case::long_chain(chain(3000, |n| format!("<clipPath id='a{n}' clip-path='url(#a{})'><rect/></clipPath>", n + 1)) + "<rect clip-path='url(#a0)'/>")]
#[case::dashes("<path stroke='red' stroke-dasharray='0.0001' d='M0 0H100'/>".repeat(100))]
#[case::layers("<g opacity='.5'><rect width='9' height='9'/></g>".repeat(4_000))]
#[case::layers_by_style(format!("<style>g{{opacity:.5}}</style>{}", "<g><rect width='9' height='9'/></g>".repeat(4_000)))]
#[case::filters(format!("<filter id='f'>{}</filter>{}", "<feOffset/>".repeat(20), "<rect filter='url(#f)'/>".repeat(30)))]
#[case::pattern("<pattern id='p' width='100000' height='100000'><rect width='9' height='9'/></pattern><rect fill='url(#p)' width='9' height='9'/>".to_owned())]
#[case::noise("<filter id='f'><feTurbulence numOctaves='4000000000'/></filter><rect filter='url(#f)' width='9' height='9'/>".to_owned())]
#[case::many_steps(format!("<filter id='f'>{}</filter>", "<feFlood/>".repeat(25)))]
#[case::selectors(format!("<style>{}</style>{}", ".a{fill:red}".repeat(5000), "<g/>".repeat(5000)))]
#[case::long_path_again_and_again(format!("<path id='p' d='M0 0{}'/>{}", "L9 9".repeat(50_000), "<use xlink:href='#p'/>".repeat(1000)))]
fn what_would_cost_too_much_is_refused_before_it_is_drawn(#[case] content: String) {
    let began = std::time::Instant::now();
    assert!(matches!(svg(&content), Err(IconError::TooComplex(_))));
    assert!(began.elapsed().as_secs() < 20);
}

#[test]
fn a_picture_of_16_bits_takes_no_more_memory_than_another() {
    let limits = Limits {
        pixels: 400,
        ..Limits::default()
    };
    let deep = image::DynamicImage::ImageRgba16(image::ImageBuffer::new(20, 20));
    let flat = image::DynamicImage::ImageRgba8(image::ImageBuffer::new(20, 20));
    let written = |picture: &image::DynamicImage| {
        let mut bytes = Vec::new();
        picture
            .write_to(&mut std::io::Cursor::new(&mut bytes), image::ImageFormat::Png)
            .unwrap();
        png(&bytes, None, &limits)
    };
    assert!(written(&flat).is_ok());
    assert_eq!(written(&deep), Err(IconError::too_large("bytes once decoded", 1600)));
}

/// Each may reach to the end of the text: all of them together took a quarter of a minute.
#[rstest]
#[case::declarations("<!ENTITY")]
#[case::names("<!ENTITY a b")]
#[case::files("<!ENTITY a SYSTEM ")]
fn an_svg_of_nothing_but_declarations_is_refused_at_once(#[case] declaration: &str) {
    let text = format!(
        "<!DOCTYPE svg [{}]><svg xmlns='http://www.w3.org/2000/svg'/>",
        declaration.repeat(500_000 / declaration.len())
    );
    let started = std::time::Instant::now();
    assert!(matches!(icon(text.as_bytes()), Err(IconError::TooComplex(_))));
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
}

#[rstest]
#[case::laughs("<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;'>", "&b;")]
#[case::by_number("<!ENTITY a '&#38;b;'>", "&a;")]
#[case::hidden("<!-- <!ENTITY x \" --><!ENTITY b 'b'><!ENTITY a '&b;'><!-- \"> -->", "&a;")]
fn entities_within_entities_are_refused(#[case] declarations: &str, #[case] content: &str) {
    let text =
        format!("<!DOCTYPE svg [{declarations}]><svg xmlns='http://www.w3.org/2000/svg'><desc>{content}</desc></svg>");
    assert!(matches!(icon(text.as_bytes()), Err(IconError::TooComplex(_))));
}

#[test]
fn a_long_entity_is_not_multiplied() {
    let text = format!(
        "<!DOCTYPE svg [<!ENTITY a '{}'>]><svg xmlns='http://www.w3.org/2000/svg'>{}</svg>",
        "a".repeat(100_000),
        "<g id='&a;'/>".repeat(100)
    );
    assert!(matches!(icon(text.as_bytes()), Err(IconError::TooComplex(_))));
}

/// Debug builds have far larger frames than release builds, which run with twice that.
#[test]
fn the_deepest_svg_that_is_drawn_fits_a_small_stack() {
    let nested = format!(
        "{}<rect width='9' height='9' fill='red'/>{}",
        "<g opacity='.9' filter='url(#f)' clip-path='url(#c)'>".repeat(20),
        "</g>".repeat(20)
    );
    let chain = chain(20, |n| {
        format!(
            "<mask id='m{n}'><rect mask='url(#m{})' width='9' height='9' fill='white'/></mask>",
            n + 1
        )
    });
    for content in [
        format!(
            "<filter id='f'><feOffset dx='1'/></filter><clipPath id='c'><rect width='99' height='99'/></clipPath>{nested}"
        ),
        format!("{}<g/>{}", "<g>".repeat(46), "</g>".repeat(46)),
        format!("{chain}<rect mask='url(#m0)' width='9' height='9'/>"),
    ] {
        let thread = std::thread::Builder::new().stack_size(1024 * 1024);
        let drawn = thread.spawn(move || svg(&content)).unwrap().join().unwrap();
        assert!(drawn.is_ok(), "{drawn:?}");
    }
}

#[test]
fn a_decoder_that_fails_takes_nothing_along() {
    // A radius at which the arithmetic of the blur overflows, which debug builds notice.
    let result = svg(
        "<filter id='f' x='0' y='0' width='1' height='1'><feGaussianBlur stdDeviation='1e30'/></filter><rect width='99' height='99' filter='url(#f)'/>",
    );
    assert!(matches!(result, Ok(_) | Err(IconError::Damaged(_))), "{result:?}");
}

/// Pieces that mean something to an SVG.
const PIECES: [&str; 24] = [
    "<g>",
    "</g>",
    "<g id='a' opacity='.5'>",
    "<use xlink:href='#a'/>",
    "<use xlink:href='#b' transform='scale(1e30)'/>",
    "<rect id='b' width='50' height='1e30' fill='url(#l)' stroke='red' stroke-width='9'/>",
    "<circle r='NaN' cx='1e-40' mask='url(#m)'/>",
    "<path d='M0 0L10-1e38Q1 1e9 3 4A1 2 3 0 1 9 9Z' stroke='#123' stroke-dasharray='3 1'/>",
    "<mask id='m'><rect width='9' height='9'/></mask>",
    "<mask id='m' mask='url(#m)'>",
    "</mask>",
    "<clipPath id='c' clip-path='url(#c)'><rect/></clipPath>",
    "<linearGradient id='l' xlink:href='#l'><stop offset='2'/></linearGradient>",
    "<radialGradient id='l' r='0'/>",
    "<filter id='f'><feGaussianBlur stdDeviation='5 0'/><feMerge/><feBlend in2='x'/></filter>",
    "<filter id='f' width='1e30'><feDropShadow dx='1e9'/></filter>",
    "<g filter='url(#f)' clip-path='url(#c)'><rect width='9' height='9'/></g>",
    "<style>*{fill:red} .x{mask:url(#m)} rect:hover{}</style>",
    "<svg viewBox='0 0 0 0' preserveAspectRatio='none'/>",
    "<marker id='k'><path d='M0 0'/></marker><path marker-start='url(#k)' d='M0 0H9V9'/>",
    "<text x='1'>text</text>",
    "<switch><g systemLanguage='de'/><rect/></switch>",
    "<symbol id='s' viewBox='0 0 1 1'><rect/></symbol><use xlink:href='#s' width='-1'/>",
    "'&#0;\u{0}",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn small_hostile_drawings_do_no_harm(pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..12)) {
        if let Ok(drawn) = svg(&pieces.concat()) {
            prop_assert!(drawn.width() <= SIDE && drawn.height() <= SIDE);
        }
    }

    #[test]
    fn changed_pictures_do_no_harm(
        format in proptest::sample::select(&[ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::Tiff, ImageFormat::Bmp, ImageFormat::WebP][..]),
        changes in proptest::collection::vec((any::<Index>(), any::<u8>()), 1..8),
        cut in proptest::option::of(any::<Index>()),
    ) {
        let mut bytes = picture(20, 10, format);
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
    fn random_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300), is_svg: bool) {
        let _ = png(&bytes, is_svg.then_some("image/svg+xml"), &Limits::default());
    }
}
