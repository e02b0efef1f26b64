//! Owner references of components.
//!
//! ```text
//!  caches ──► plan ──► finalizer and record on the Application ──► patches of components ──► caches
//!                                                                        │
//!  deletion with --cascade=orphan ──► release: live lists, patches ──► finalizer removed
//! ```

pub mod apply;
pub mod finalizer;
pub mod plan;
