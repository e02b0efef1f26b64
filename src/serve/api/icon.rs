//! Icons of charts as images, which run nothing and load nothing.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::address::{Names, address};
use crate::serve::problem::Problem;
use crate::serve::respond::{Content, negotiate, send};
use crate::serve::site::Site;
use crate::text::is_svg;

const SVG: &str = "image/svg+xml";
/// Scripts of an SVG don't run, also if it is opened as a page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox";

#[derive(Default, Deserialize)]
#[serde(default)]
struct Row<'a> {
    #[serde(borrow)]
    raw_icon: Option<&'a RawValue>,
}

/// Returns the stored icon; empty if there is none. A row that is not JSON is no chart.
fn decode(info: &str) -> Option<Vec<u8>> {
    let row: Row<'_> = serde_json::from_str(info).ok()?;
    let base64: Option<String> = row.raw_icon.and_then(|icon| serde_json::from_str(icon.get()).ok());
    Some(BASE64_STANDARD.decode(base64.unwrap_or_default()).unwrap_or_default())
}

/// The stored type comes from the server of the icon, so the bytes decide.
fn media_type(icon: &[u8]) -> Option<&'static str> {
    match icon {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => is_svg(icon).then_some(SVG),
    }
}

/// Returns an image of the first letter or digit of a name.
fn letter(name: &str) -> String {
    let letter = name.chars().find(|c| c.is_alphanumeric());
    // Some letters have two in upper case.
    let letter: String = letter.map_or_else(|| "?".to_owned(), |letter| letter.to_uppercase().collect());
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 160"><rect width="160" height="160" rx="20" fill="#56647a"/><text x="80" y="112" font-family="sans-serif" font-size="90" text-anchor="middle" fill="#fff">{letter}</text></svg>"##
    )
}

pub(super) async fn show(State(site): State<Site>, headers: HeaderMap, names: Names) -> Result<Response, Problem> {
    let address = address(names)?;
    let icon = address.decode(&site, &headers, decode).await?;
    let image = match media_type(&icon.value) {
        Some(media_type) => Some((icon.value, media_type)),
        None => {
            let svg = site.rows().svg_icon(&address.repository, &address.chart_id()).await?;
            svg.filter(|svg| is_svg(svg)).map(|svg| (svg, SVG))
        }
    };
    let (body, media_type) = match image {
        Some(image) => image,
        None => {
            // `%2F` precedes the last part of a name.
            let name = address.chart.rsplit("%2F").next().unwrap_or_default();
            (letter(name).into_bytes(), SVG)
        }
    };
    let content = Content {
        media_type: negotiate(&headers, &[media_type])?,
        body,
        memory: icon.memory,
    };
    let mut response = send(&headers, content).await?;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_decide_on_the_type() {
        let cases: [(&[u8], Option<&str>); 10] = [
            (b"\x89PNG\r\n\x1a\n...", Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a...", Some("image/gif")),
            (b"RIFF\x01\x02\x03\x04WEBPVP8 ", Some("image/webp")),
            (b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>", Some(SVG)),
            (b"\xef\xbb\xbf <?xml version=\"1.0\"?>\n<svg/>", Some(SVG)),
            (b"<html><svg></svg></html>", None),
            (b"<?xml version=\"1.0\"?><html/>", None),
            (b"", None),
            (b"PNG", None),
        ];
        for (icon, expected) in cases {
            assert_eq!(media_type(icon), expected, "{}", String::from_utf8_lossy(icon));
        }
    }

    #[test]
    fn a_letter_stands_for_a_missing_icon() {
        for (name, expected) in [
            ("web", ">W<"),
            ("<script>", ">S<"),
            ("\u{202e}&", ">?<"),
            ("1up", ">1<"),
        ] {
            let image = letter(name);
            assert!(image.contains(expected) && is_svg(image.as_bytes()), "{image}");
        }
    }

    #[test]
    fn rows_without_a_readable_icon_have_none() {
        assert_eq!(decode(r#"{"raw_icon": "aWNvbg=="}"#).unwrap(), b"icon");
        for info in [
            "{}",
            r#"{"raw_icon": null}"#,
            r#"{"raw_icon": "*"}"#,
            r#"{"raw_icon": 1}"#,
        ] {
            assert_eq!(decode(info).unwrap(), b"", "{info}");
        }
        assert_eq!(decode("{"), None);
    }
}
