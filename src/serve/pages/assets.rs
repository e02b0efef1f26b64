//! The style sheet, the script and the icon, which are part of the program.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::protect;
use crate::serve::problem::Problem;
use crate::serve::respond::{Content, respond_with};
use crate::text::hex;

pub(super) static STYLE: Asset = Asset {
    prefix: "/assets/style-",
    suffix: ".css",
    media_type: "text/css",
    content: include_str!("assets/style.css"),
    path: LazyLock::new(|| STYLE.hashed_path()),
};
pub(super) static SCRIPT: Asset = Asset {
    prefix: "/assets/page-",
    suffix: ".js",
    media_type: "text/javascript",
    content: include_str!("assets/page.js"),
    path: LazyLock::new(|| SCRIPT.hashed_path()),
};
const ICON: &str = include_str!("assets/favicon.svg");
const ROBOTS: &str = "User-agent: *\nDisallow: /\n";

pub(super) struct Asset {
    prefix: &'static str,
    suffix: &'static str,
    media_type: &'static str,
    content: &'static str,
    path: LazyLock<String>,
}

impl Asset {
    /// Returns the path below the prefix of the site, which changes with the content.
    pub(super) fn path(&'static self) -> &'static str {
        &self.path
    }

    fn hashed_path(&self) -> String {
        let digest: String = hex(&Sha256::digest(self.content)).chars().take(16).collect();
        format!("{}{digest}{}", self.prefix, self.suffix)
    }

    /// During an upgrade, browsers ask for the file of another release. They get this one, and don't keep it.
    fn caching_at(&'static self, path: &str) -> Option<&'static str> {
        if path == self.path() {
            return Some("public, max-age=31536000, immutable");
        }
        let is_of_other_release = path.starts_with(self.prefix) && path.ends_with(self.suffix);
        is_of_other_release.then_some("no-store")
    }
}

pub(super) async fn show(headers: HeaderMap, file: Result<Path<String>, PathRejection>) -> Result<Response, Problem> {
    let Path(file) = file.map_err(|_| Problem::unknown_path())?;
    let path = format!("/assets/{file}");
    let found = [&STYLE, &SCRIPT]
        .into_iter()
        .find_map(|asset| Some((asset, asset.caching_at(&path)?)));
    let (asset, caching) = found.ok_or_else(Problem::unknown_path)?;
    respond_public(&headers, asset.media_type, asset.content, caching)
}

pub(super) async fn favicon(headers: HeaderMap) -> Result<Response, Problem> {
    respond_public(&headers, "image/svg+xml", ICON, "public, max-age=86400")
}

pub(super) async fn robots() -> Response {
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(header::CONTENT_TYPE, plain)], ROBOTS).into_response()
}

/// Responds with content that is the same for all callers.
fn respond_public(
    headers: &HeaderMap,
    media_type: &'static str,
    content: &'static str,
    caching: &'static str,
) -> Result<Response, Problem> {
    let mut response = respond_with(headers, Content::new(media_type, content.into()))?;
    let headers = response.headers_mut();
    protect(headers);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_SCRIPT: usize = 8 * 1024;

    #[test]
    fn only_the_path_of_the_content_is_immutable() {
        let caching = |path: &str| STYLE.caching_at(path).map(|caching| caching.contains("immutable"));
        assert_eq!(caching(STYLE.path()), Some(true));
        assert_eq!(caching("/assets/style-0000.css"), Some(false));
        assert_eq!(caching(SCRIPT.path()), None);
        assert_ne!(STYLE.path(), "/assets/style-.css");
    }

    #[test]
    fn the_script_is_small_and_sets_no_markup() {
        assert!(SCRIPT.content.len() <= MAX_SCRIPT, "{}", SCRIPT.content.len());
        for unsafe_sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!SCRIPT.content.contains(unsafe_sink), "{unsafe_sink}");
        }
    }

    #[test]
    fn each_rule_of_the_style_sheet_is_closed() {
        let count = |brace: char| STYLE.content.matches(brace).count();
        assert_eq!(count('{'), count('}'));
    }

    #[test]
    fn the_style_sheet_loads_nothing() {
        assert!(!STYLE.content.contains("url(") && !STYLE.content.contains("@import"));
    }
}
