//! The allowed tags and attributes of a README.

/// Prefix of all IDs, which keeps them apart from the IDs of the page.
pub(super) const ID_PREFIX: &str = "readme-";

pub(super) const REL: &str = "nofollow noopener noreferrer";

/// Returns true if each `<` begins an allowed tag, with allowed attributes only.
///
/// All allowed elements leave an HTML parser in its data state, where only `<` ends a text. Tags that could be read in two ways
/// are refused: attributes have the form ` name="value"`, and no tag has `<` or `>` inside.
pub(super) fn is_inert(html: &str) -> bool {
    let mut parts = html.split('<');
    // Before the first tag.
    parts.next();
    parts.all(|part| part.split_once('>').is_some_and(|(tag, _)| is_allowed(tag)))
}

fn is_allowed(tag: &str) -> bool {
    if let Some(name) = tag.strip_prefix('/') {
        return is_allowed_element(name);
    }
    let (name, attributes) = tag.split_at(tag.find(' ').unwrap_or(tag.len()));
    is_allowed_element(name) && has_allowed_attributes(name, attributes)
}

/// `h1` is the title of the page, and images are links.
fn is_allowed_element(name: &str) -> bool {
    matches!(
        name,
        "a" | "b"
            | "blockquote"
            | "br"
            | "code"
            | "dd"
            | "del"
            | "details"
            | "div"
            | "dl"
            | "dt"
            | "em"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "hr"
            | "i"
            | "kbd"
            | "li"
            | "ol"
            | "p"
            | "pre"
            | "q"
            | "s"
            | "samp"
            | "small"
            | "span"
            | "strong"
            | "sub"
            | "summary"
            | "sup"
            | "table"
            | "tbody"
            | "td"
            | "tfoot"
            | "th"
            | "thead"
            | "tr"
            | "u"
            | "ul"
    )
}

fn has_allowed_attributes(element: &str, mut attributes: &str) -> bool {
    let (mut is_link, mut has_rel) = (false, false);
    while !attributes.is_empty() {
        let attribute = attributes.strip_prefix(' ').and_then(|text| text.split_once("=\""));
        let Some((name, (value, rest))) = attribute.and_then(|(name, text)| Some((name, text.split_once('"')?))) else {
            return false;
        };
        let is_known = match (element, name) {
            (_, "id") => value.starts_with(ID_PREFIX),
            ("a", "href") => is_destination(value),
            ("a", "rel") => value == REL,
            ("ol", "start") => value.bytes().all(|byte| byte.is_ascii_digit()),
            // Long lines scroll, also by keyboard.
            ("pre", "tabindex") => value == "0",
            _ => false,
        };
        if !is_known {
            return false;
        }
        is_link |= name == "href";
        has_rel |= name == "rel";
        attributes = rest;
    }
    !is_link || has_rel
}

/// Returns true for an absolute URL that pages may link, and for a place in the README.
fn is_destination(url: &str) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_tags_in_one_form_are_inert() {
        for html in [
            "",
            "a > b",
            "<p>a</p>",
            "<h2 id=\"readme-a\">a</h2>",
            "<a id=\"readme-a\" href=\"https://a.example/?b=1&amp;c\" rel=\"nofollow noopener noreferrer\">a</a>",
            "<a href=\"#readme-a\" rel=\"nofollow noopener noreferrer\">a</a>",
            "<ol start=\"3\"><li>a</li></ol>",
            "<pre tabindex=\"0\"><code>a</code></pre>",
        ] {
            assert!(is_inert(html), "{html}");
        }
        for html in [
            "<",
            "<p",
            "< p>",
            "<P>",
            "<p/>",
            "<p >",
            "</p >",
            "<p\tid=\"readme-a\">",
            "<p id=readme-a>",
            "<p id='readme-a'>",
            "<p id=\"a\">",
            "<p id=\"readme-a\"id=\"readme-b\">",
            "<p id=\"readme-a\"/onclick=\"a\">",
            "<p id=\"readme->\">",
            "<p onclick=\"a\">",
            "<p class=\"a\">",
            "<script>",
            "<!-- a -->",
            "<svg>",
            "<img src=\"a\">",
            "<a href=\"https://a.example\">",
            "<a href=\"javascript:a\" rel=\"nofollow noopener noreferrer\">",
            "<a href=\" https://a.example\" rel=\"nofollow noopener noreferrer\">",
            "<a href=\"#a\" rel=\"nofollow noopener noreferrer\">",
            "<a href=\"https://a.example\" rel=\"opener\">",
            "<p href=\"https://a.example\">",
            "<p>a</p><",
        ] {
            assert!(!is_inert(html), "{html}");
        }
    }
}
