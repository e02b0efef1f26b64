//! Writes of a sync: compares an index with the stored charts and commits the difference.

pub mod batch;
pub mod chart_digests;
pub mod commit;
pub mod delete;
pub mod diff;
pub mod expire;
pub mod garbage;
pub mod index_cache;
pub mod retention;
pub mod stored;
pub mod tombstones;
