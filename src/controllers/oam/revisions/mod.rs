//! ApplicationRevisions: recorded versions of an application, with all that it was rendered from.

mod compare;
mod decide;
mod encoding;
mod hash;
pub mod names;
mod packed;
mod record;
mod release;
mod retention;
#[cfg(test)]
mod tests;

pub use decide::{Candidate, Recorded, can_match, is_same, is_unchanged, next};
pub use encoding::{RevisionError, compress, expand};
pub use hash::{hash, hash_of_json};
pub use packed::Packed;
pub use record::{metadata, refreshed};
pub use release::{is_record_of, is_release_of, recorded_application};
pub use retention::{expendable, in_use};
