//! Formats of Helm: repository indexes, chart archives, chart metadata.

pub mod archive;
pub mod index;
pub mod semver;
