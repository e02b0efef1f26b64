const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Returns true if the first element is `svg`, after an optional byte order mark, XML declaration, comments and doctype. The
/// rest of the image is not looked at.
#[must_use]
pub fn is_svg(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    let mut rest = bytes.trim_ascii_start();
    while let Some(after) = skip(rest) {
        rest = after.trim_ascii_start();
    }
    rest.strip_prefix(b"<").is_some_and(starts_with_svg)
}

/// Returns what follows a comment, a processing instruction or the doctype of an SVG.
fn skip(rest: &[u8]) -> Option<&[u8]> {
    if let Some(comment) = rest.strip_prefix(b"<!--") {
        return after(comment, b"-->");
    }
    if let Some(instruction) = rest.strip_prefix(b"<?") {
        return after(instruction, b"?>");
    }
    let doctype = rest.strip_prefix(b"<!DOCTYPE")?.trim_ascii_start();
    if starts_with_svg(doctype) {
        after_doctype(doctype)
    } else {
        None
    }
}

/// A doctype may declare entities between brackets.
fn after_doctype(mut rest: &[u8]) -> Option<&[u8]> {
    let mut is_in_brackets = false;
    loop {
        if let Some(comment) = rest.strip_prefix(b"<!--") {
            rest = after(comment, b"-->")?;
            continue;
        }
        let (first, others) = rest.split_first()?;
        rest = match *first {
            quote @ (b'"' | b'\'') => after(others, &[quote])?,
            b'>' if !is_in_brackets => return Some(others),
            b'[' => {
                is_in_brackets = true;
                others
            }
            b']' => {
                is_in_brackets = false;
                others
            }
            _ => others,
        };
    }
}

fn after<'a>(bytes: &'a [u8], end: &[u8]) -> Option<&'a [u8]> {
    let at = bytes.windows(end.len()).position(|window| window == end)?;
    bytes.get(at + end.len()..)
}

/// Returns true for the name `svg`, also with the prefix of a namespace.
fn starts_with_svg(bytes: &[u8]) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || matches!(*byte, b'>' | b'/' | b'[');
    let Some(end) = bytes.iter().position(is_end) else {
        return false;
    };
    bytes
        .get(..end)
        .is_some_and(|name| name == b"svg" || name.ends_with(b":svg"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_element_decides() {
        for svg in [
            &b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>"[..],
            b"\xef\xbb\xbf \n<?xml version='1.0'?>\n<!-- <html> --><!-- x --><svg>",
            b"<x:svg xmlns:x='http://www.w3.org/2000/svg'/>",
            b"<!DOCTYPE svg PUBLIC \"-//W3C//DTD SVG 1.1//EN\" \"a>b\"><svg width='1'>",
            b"<!DOCTYPE svg [<!ENTITY a \"]>\"><!-- it's ]> --><!ENTITY b 'b'>]><svg>&a;</svg>",
            b"<svg\tonload=\"alert(1)\"><script>alert(1)</script></svg>",
            b"<svg>\xff\0",
        ] {
            assert!(is_svg(svg), "{}", String::from_utf8_lossy(svg));
        }
        for other in [
            &b""[..],
            b"<",
            b"<svg",
            b"svg>",
            b"<html><svg></svg></html>",
            b"<!DOCTYPE html><svg></svg>",
            b"<?xml version='1.0'?><rss><svg/></rss>",
            b"<?xml version='1.0'",
            b"<!-- <svg/>",
            b"<!DOCTYPE svg [<svg/>",
            b"<svgs/>",
            b"text <svg/>",
            b"\x1f\x8b\x08\0<svg/>",
            b"\x89PNG\r\n\x1a\n<svg/>",
        ] {
            assert!(!is_svg(other), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn a_long_prolog_is_skipped_in_one_pass() {
        let prolog = "<!-- x --><?y?>".repeat(300_000);
        assert!(is_svg(format!("{prolog}<svg/>").as_bytes()) && !is_svg(prolog.as_bytes()));
    }
}
