//! A client of OCI registries, over the guarded HTTP client.

mod challenge;
pub mod decode;
mod error;
mod link;
mod manifest;
mod name;
mod reference;
#[cfg(test)]
mod tests;

pub use challenge::{Challenge, challenges};
pub use error::OciError;
pub use link::next_link;
pub use manifest::{Descriptor, Manifest, manifest};
pub use name::{is_digest, is_repository_name, is_tag, is_version, tag_of, version_of};
pub use reference::ChartReference;
