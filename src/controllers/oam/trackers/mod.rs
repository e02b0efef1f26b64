//! ResourceTrackers: records of the objects that an application manages.
//!
//! ```text
//! history (oldest first) ──► current ──► root       the newest record of an object owns it
//! ```

mod create;
mod encoding;
mod entry;
mod guard;
mod inventory;
pub mod names;
mod ownership;
mod record;
#[cfg(test)]
mod tests;

pub use create::{create, tracker_selector};
pub use encoding::{EncodeError, Encoded, TrackerDecodeError, decode, decoded_bytes, encode, pack};
pub use entry::{EntryKey, LOCAL, ResourceKey, cluster_name, display_name, is_local};
pub use guard::{Refusal, check_mark};
pub use inventory::{AppIdentity, Inventory, InventoryError, Tracker, TrackerType};
pub use ownership::Owners;
pub use record::{record, remove, without_creators};
