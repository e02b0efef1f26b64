//! The allowed tags and attributes of a README.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use ammonia::Builder;

/// Of all ids, so that none is one of the page's.
pub(super) const ID_PREFIX: &str = "readme-";

/// Headings begin below that of the page, and images are links.
const TAGS: [&str; 42] = [
    "a",
    "b",
    "blockquote",
    "br",
    "code",
    "dd",
    "del",
    "details",
    "div",
    "dl",
    "dt",
    "em",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "i",
    "kbd",
    "li",
    "ol",
    "p",
    "pre",
    "q",
    "s",
    "samp",
    "small",
    "span",
    "strong",
    "sub",
    "summary",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "tr",
    "u",
    "ul",
];

static CLEANER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut builder = Builder::empty();
    builder
        .tags(HashSet::from(TAGS))
        .generic_attributes(HashSet::from(["id"]))
        .tag_attributes(HashMap::from([
            ("a", HashSet::from(["href"])),
            ("ol", HashSet::from(["start"])),
        ]))
        // Long lines scroll, also by keyboard.
        .set_tag_attribute_value("pre", "tabindex", "0")
        .clean_content_tags(HashSet::from(["script", "style"]))
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .attribute_filter(|_, attribute, value| {
            let is_allowed = attribute != "href" || is_link(value);
            is_allowed.then(|| value.into())
        })
        .link_rel(Some("nofollow noopener noreferrer"))
        .id_prefix(Some(ID_PREFIX));
    builder
});

pub(super) fn clean(html: &str) -> String {
    CLEANER.clean(html).to_string()
}

/// Returns true for an absolute URL that pages may link, and for a place in the README.
fn is_link(url: &str) -> bool {
    is_absolute(url) || url.strip_prefix('#').is_some_and(|id| id.starts_with(ID_PREFIX))
}

/// Returns true for a URL that pages may link. The scheme is written out, so no entity or white space hides another one.
pub(super) fn is_absolute(url: &str) -> bool {
    has_scheme(url, "mailto:") || is_web(url)
}

pub(super) fn is_web(url: &str) -> bool {
    has_scheme(url, "https://") || has_scheme(url, "http://")
}

fn has_scheme(url: &str, scheme: &str) -> bool {
    url.get(..scheme.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}
