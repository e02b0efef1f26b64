//! Pictures made of shapes.

use image::RgbaImage;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::roxmltree::{self, Document, ParsingOptions};
use resvg::usvg::{ImageHrefResolver, Options, Tree};

use super::{IconError, Limits, SIDE, entities, weight};

/// Elements, texts and comments of one SVG.
const NODES: u32 = 20_000;

/// Attributes of one element, each of which the parser compares with each.
const ATTRIBUTES: usize = 2_000;

/// Whether to take it for an SVG: its server says so, or it begins like one.
pub(super) fn is_svg(bytes: &[u8], content_type: Option<&str>) -> bool {
    /// How far a prologue and comments may reach.
    const BEGINNING: usize = 4096;
    if content_type.is_some_and(|said| said.to_ascii_lowercase().contains("image/svg")) {
        return true;
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    let beginning = &bytes[..bytes.len().min(BEGINNING)];
    let begins_with = |starts: &[&[u8]]| starts.iter().any(|start| beginning.starts_with(start));
    begins_with(&[b"<svg", b"<!DOCTYPE svg"])
        || begins_with(&[b"<?xml", b"<!--"]) && beginning.windows(4).any(|window| window == b"<svg")
}

/// Bytes of memory that drawing an SVG takes, by its length and its weight.
///
/// Each node of the text, of the tree that is drawn and of its path takes some hundred bytes, and weighs one at least; layers, of
/// 100 KiB each, are as many as levels and steps of a filter.
pub(super) fn memory(bytes: &[u8], limits: &Limits) -> Result<u64, IconError> {
    const LAYERS: u64 = 8 * 1024 * 1024;
    const OF_A_BYTE: u64 = 16;
    const OF_A_STEP: u64 = 512;
    let weight = weight::check(&parse(bytes)?, limits.svg_weight)?;
    Ok(LAYERS + OF_A_BYTE * bytes.len() as u64 + OF_A_STEP * weight)
}

fn parse(bytes: &[u8]) -> Result<Document<'_>, IconError> {
    let text = std::str::from_utf8(bytes).map_err(|_| IconError::damaged("it is no UTF-8 text"))?;
    if text.split('<').any(|element| element.matches('=').count() > ATTRIBUTES) {
        return Err(IconError::TooComplex(format!(
            "an element in it has more than {ATTRIBUTES} attributes"
        )));
    }
    entities::check(text)?;
    let parsing = ParsingOptions {
        // Drawing programs declare entities for namespaces. How far they expand is bounded by the parser.
        allow_dtd: true,
        nodes_limit: NODES,
        ..ParsingOptions::default()
    };
    Document::parse_with_options(text, parsing).map_err(|error| match error {
        roxmltree::Error::NodesLimitReached => IconError::TooComplex(format!("it has more than {NODES} elements")),
        other => IconError::damaged(&other.to_string()),
    })
}

/// Draws an SVG at its final size. Of pictures within it and of texts nothing is drawn: the ones would need further
/// decoders or the network, the others fonts.
pub(super) fn draw(bytes: &[u8], limits: &Limits) -> Result<RgbaImage, IconError> {
    let document = parse(bytes)?;
    weight::check(&document, limits.svg_weight)?;
    let nothing_from_outside = Options {
        resources_dir: None,
        image_href_resolver: ImageHrefResolver {
            resolve_data: Box::new(|_, _, _| None),
            resolve_string: Box::new(|_, _| None),
        },
        ..Options::default()
    };
    let tree =
        Tree::from_xmltree(&document, &nothing_from_outside).map_err(|error| IconError::damaged(&error.to_string()))?;
    render(&tree, view_box_side(&document))
}

/// The longer side of the root's view box, which is how large Kubeapps takes a drawing to be: that it is shown at 16
/// pixels on some page does not make it a small one.
fn view_box_side(document: &Document) -> Option<f32> {
    let view_box = document.root_element().attribute("viewBox")?;
    let mut numbers = view_box
        .split(|c: char| c == ',' || c.is_ascii_whitespace())
        .filter(|number| !number.is_empty());
    let width: f32 = numbers.nth(2)?.parse().ok()?;
    let height: f32 = numbers.next()?.parse().ok()?;
    Some(width.max(height)).filter(|side| side.is_finite())
}

fn render(tree: &Tree, view_box_side: Option<f32>) -> Result<RgbaImage, IconError> {
    let size = tree.size();
    let longest = size.width().max(size.height());
    let drawn = view_box_side.unwrap_or(longest).max(longest).clamp(1.0, SIDE as f32);
    let scale = drawn / longest;
    // From a float, `as` stays within the bounds of the integer.
    let pixels = |side: f32| ((side * scale).round() as u32).clamp(1, SIDE);
    let (width, height) = (pixels(size.width()), pixels(size.height()));
    let mut pixmap = Pixmap::new(width, height).ok_or_else(|| IconError::damaged("it has no size"))?;
    resvg::render(tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
    let pixels = pixmap.pixels().iter().flat_map(|pixel| {
        let colour = pixel.demultiply();
        [colour.red(), colour.green(), colour.blue(), colour.alpha()]
    });
    RgbaImage::from_raw(width, height, pixels.collect()).ok_or_else(|| IconError::damaged("it has no size"))
}
