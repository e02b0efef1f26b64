//! Helm formats: repository indexes, chart archives and chart metadata.

pub mod archive;
pub mod index;
pub mod location;
pub mod semver;
