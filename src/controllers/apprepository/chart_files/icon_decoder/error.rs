use crate::text::{printable, truncate};

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IconError {
    #[error("not an icon: {0}; the chart's icon must be the URL of a PNG, JPEG, GIF, TIFF, BMP, WebP or SVG image")]
    NotAnIcon(&'static str),
    #[error("the icon exceeds {limit} {what}")]
    TooLarge { what: &'static str, limit: u64 },
    #[error("invalid icon: {0}")]
    Damaged(String),
    #[error("invalid data URL of the icon: {0}")]
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
