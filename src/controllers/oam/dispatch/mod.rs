//! Applying rendered objects.
//!
//! ```text
//!  admission ── order ── decide, for each object ── dry run ── record in the tracker ── write
//! ```
//!
//! All of this directory is pure; reads, dry runs and writes take place around it.

pub mod admission;
pub mod bookkeeping;
pub mod decide;
mod field_path;
pub mod fights;
pub mod order;
#[cfg(test)]
mod tests;
