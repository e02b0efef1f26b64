//! Why an icon can't be used.

use crate::text::{printable, truncate};

/// Why there is no PNG of an icon. The same bytes fail in the same way again.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IconError {
    /// It is something else.
    #[error(
        "this is no icon: {0}; check that the chart's icon is the URL of a picture (PNG, JPEG, GIF, TIFF, BMP or WebP)"
    )]
    NotAnIcon(&'static str),
    /// It breaks a limit.
    #[error("the icon has more than {limit} {what}; its publisher has to make it smaller")]
    TooLarge {
        /// Bytes or pixels.
        what: &'static str,
        /// The limit.
        limit: u64,
    },
    /// It is made of shapes instead of pixels.
    #[error("an SVG icon is not stored; the chart keeps its URL")]
    Svg,
    /// It breaks the rules of its format.
    #[error("the icon is damaged: {0}; its publisher has to make it anew")]
    Damaged(String),
    /// It breaks the rules of `data:` URLs.
    #[error("the icon's data URL can't be read: {0}; its publisher has to correct it")]
    InvalidDataUrl(&'static str),
}

impl IconError {
    pub(super) const fn too_large(what: &'static str, limit: u64) -> Self {
        Self::TooLarge { what, limit }
    }

    /// The detail may quote the icon.
    pub(super) fn damaged(detail: &str) -> Self {
        const SHOWN_BYTES: usize = 256;
        Self::Damaged(truncate(&printable(detail), SHOWN_BYTES))
    }
}
