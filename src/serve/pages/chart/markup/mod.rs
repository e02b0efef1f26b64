//! A README as inert HTML. Text in, HTML out.
//!
//! ```text
//!  Markdown ─► events ─► Inert: links, images, raw tags, depth ─► HTML ─► check: allowed tags and attributes
//! ```
//! The text is a chart author's. [`Inert`] writes the tags, and nests the elements: an HTML parser repeats unclosed elements in
//! each block that follows, so its work grows with the square of the text. The check is the proof that nothing else got through.

mod check;
mod inert;
mod tags;

use std::time::{Duration, Instant};

use pulldown_cmark::{Options, Parser, html};

use super::text::visible_lines;
use crate::text::truncate;
use inert::Inert;

/// Longer texts are not rendered.
const MAX_BYTES: usize = 512 * 1024;
/// Of CPU.
const MAX_TIME: Duration = Duration::from_millis(100);

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Markup {
    /// May stand in a page as it is.
    Html(String),
    /// The text is too long, too deep, takes too long, or its HTML is not inert. Cut at 512 KiB.
    Text(String),
}

pub(super) fn render(text: &str) -> Markup {
    let html = (text.len() <= MAX_BYTES).then(|| to_html(&visible_lines(text)));
    match html.flatten() {
        Some(html) => Markup::Html(html),
        None => Markup::Text(visible_lines(&truncate(text, MAX_BYTES))),
    }
}

/// Returns `None` if a limit is exceeded, or if the HTML is not inert.
fn to_html(text: &str) -> Option<String> {
    let deadline = Instant::now() + MAX_TIME;
    let parser = Parser::new_ext(
        text,
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS,
    );
    let mut inert = Inert::new(parser, deadline);
    let mut html = String::with_capacity(text.len() * 3);
    html::push_html(&mut html, inert.by_ref());
    (inert.is_complete() && check::is_inert(&html)).then_some(html)
}

#[cfg(test)]
mod tests;
