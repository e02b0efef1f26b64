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

pub use compare::{has_same_application, has_same_contents};
pub use decide::{Candidate, Decision, Recorded, can_match, decide, is_same};
pub use encoding::{RevisionError, compress, expand};
pub use hash::{hash, hash_of_json, is_own_hash};
pub use packed::Packed;
pub use record::{metadata, refreshed};
pub use release::{is_release_of, recorded_application};
pub use retention::{expendable, in_use};
