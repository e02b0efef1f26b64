//! Errors of the icon decoder.

use crate::text::{printable, truncate};

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IconError {
    #[error(
        "this is no icon: {0}; check that the chart's icon is the URL of a picture (PNG, JPEG, GIF, TIFF, BMP or WebP)"
    )]
    NotAnIcon(&'static str),
    #[error("the icon has more than {limit} {what}; its publisher has to make it smaller")]
    TooLarge {
        what: &'static str,
        limit: u64,
    },
    #[error("an SVG icon is not stored; the chart keeps its URL")]
    Svg,
    #[error("the icon is damaged: {0}; its publisher has to make it anew")]
    Damaged(String),
    #[error("the icon's data URL can't be read: {0}; its publisher has to correct it")]
    InvalidDataUrl(&'static str),
}

impl IconError {
    pub(super) const fn too_large(what: &'static str, limit: u64) -> Self {
        Self::TooLarge { what, limit }
    }

    /// Sanitizes the detail, which may quote the icon.
    pub(super) fn damaged(detail: &str) -> Self {
        const SHOWN_BYTES: usize = 256;
        Self::Damaged(truncate(&printable(detail), SHOWN_BYTES))
    }
}
