//! Raw HTML of a README as tags. Only names and a few attributes are read; all else is dropped.

/// Longer tags are text, which bounds the search for the end of one.
const MAX_TAG_BYTES: usize = 2048;

const ELEMENTS: [&str; 42] = [
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
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "hr",
    "i",
    "img",
    "kbd",
    "li",
    "ol",
    "p",
    "pre",
    "q",
    "s",
    "samp",
    "small",
    "strong",
    "sub",
    "summary",
    "sup",
    "table",
    "tbody",
    "td",
    "th",
    "thead",
    "tr",
    "u",
    "ul",
];

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Has entities.
    Text(&'a str),
    Open(RawTag<'a>),
    Close(&'static str),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RawTag<'a> {
    pub(super) name: &'static str,
    pub(super) href: Option<&'a str>,
    pub(super) id: Option<&'a str>,
    pub(super) src: Option<&'a str>,
    pub(super) alt: Option<&'a str>,
}

/// Reads raw HTML from its start. Comments, declarations and unknown tags are left out.
pub(super) struct Tokens<'a>(pub(super) &'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let text = self.0;
            if text.is_empty() {
                return None;
            }
            let start = text.find('<').unwrap_or(text.len());
            if start > 0 {
                return Some(Token::Text(self.advance(start)));
            }
            if text.starts_with("<!--") {
                let end = text.find("-->").map_or(text.len(), |end| end + 3);
                self.advance(end);
                continue;
            }
            let Some(end) = tag_end(text) else {
                return Some(Token::Text(self.advance(1)));
            };
            let tag = self.advance(end);
            if let Some(token) = self.tag(tag) {
                return Some(token);
            }
        }
    }
}

impl<'a> Tokens<'a> {
    fn advance(&mut self, bytes: usize) -> &'a str {
        let (before, after) = self.0.split_at_checked(bytes).unwrap_or((self.0, ""));
        self.0 = after;
        before
    }

    fn tag(&mut self, tag: &'a str) -> Option<Token<'a>> {
        let content = tag.strip_prefix('<')?.strip_suffix('>')?;
        let (is_end, content) = match content.strip_prefix('/') {
            Some(content) => (true, content),
            None => (false, content),
        };
        let end = content
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(content.len());
        let (name, attributes) = content.split_at_checked(end)?;
        if !is_end
            && ["script", "style"]
                .iter()
                .any(|hidden| name.eq_ignore_ascii_case(hidden))
        {
            self.skip_to_end_tag();
            return None;
        }
        let name = ELEMENTS.into_iter().find(|known| name.eq_ignore_ascii_case(known))?;
        if is_end {
            return Some(Token::Close(name));
        }
        Some(Token::Open(RawTag::parse(name, attributes)))
    }

    /// Skips the content of a script or a style: it is not for readers.
    fn skip_to_end_tag(&mut self) {
        let end = self.0.find("</").unwrap_or(self.0.len());
        self.advance(end);
    }
}

/// Returns the length of the tag at the start of a text; `None` if there is none.
fn tag_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if !bytes
        .get(1)
        .is_some_and(|byte| byte.is_ascii_alphabetic() || b"/!?".contains(byte))
    {
        return None;
    }
    let mut quote = None;
    for (at, &byte) in bytes.iter().enumerate().take(MAX_TAG_BYTES) {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'>') => return Some(at + 1),
            _ => {}
        }
    }
    None
}

impl<'a> RawTag<'a> {
    fn parse(name: &'static str, mut text: &'a str) -> Self {
        let mut tag = Self {
            name,
            ..Self::default()
        };
        loop {
            text = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/' || c == '=');
            let end = text.find(|c: char| c.is_ascii_whitespace() || "/=".contains(c));
            let (attribute, after) = text.split_at_checked(end.unwrap_or(text.len())).unwrap_or_default();
            if attribute.is_empty() {
                return tag;
            }
            let (value, after) = match after.trim_ascii_start().strip_prefix('=') {
                Some(after) => value(after.trim_ascii_start()),
                None => ("", after),
            };
            text = after;
            let field = match attribute.to_ascii_lowercase().as_str() {
                "href" => &mut tag.href,
                // Older anchors are `<a name="...">`.
                "id" | "name" => &mut tag.id,
                "src" => &mut tag.src,
                "alt" => &mut tag.alt,
                _ => continue,
            };
            // As in browsers, the first of equal attributes counts.
            field.get_or_insert(value);
        }
    }
}

/// Splits a text after the value at its start.
fn value(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(value) = text.strip_prefix(quote) {
            return value.split_once(quote).unwrap_or((value, ""));
        }
    }
    let end = text.find(|c: char| c.is_ascii_whitespace()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_tags_and_attributes_are_read() {
        let html =
            "x &amp; <A title='>' HREF=\"https://a.example/?a=1\" onclick=\"b()\">link</a><!-- <b> --><form><br/>1 < 2";
        let tokens: Vec<_> = Tokens(html).collect();
        let link = RawTag {
            name: "a",
            href: Some("https://a.example/?a=1"),
            ..RawTag::default()
        };
        let line_break = RawTag {
            name: "br",
            ..RawTag::default()
        };
        assert_eq!(
            tokens,
            [
                Token::Text("x &amp; "),
                Token::Open(link),
                Token::Text("link"),
                Token::Close("a"),
                Token::Open(line_break),
                Token::Text("1 "),
                Token::Text("<"),
                Token::Text(" 2"),
            ]
        );
    }

    #[test]
    fn scripts_are_left_out_and_open_tags_are_text() {
        let all = |html| Tokens(html).collect::<Vec<_>>();
        assert_eq!(all("<script>alert(1)</script><style>a{}</style>"), []);
        assert_eq!(all("<!-- open"), []);
        assert_eq!(all("<a href=\"x"), [Token::Text("<"), Token::Text("a href=\"x")]);
        let image = RawTag {
            name: "img",
            src: Some("a.png"),
            alt: Some("A"),
            ..RawTag::default()
        };
        assert_eq!(all("<img\nsrc = a.png alt='A' src=b.png >"), [Token::Open(image)]);
    }
}
