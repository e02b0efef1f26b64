//! Renders components and traits from CUE templates, and components that are Terraform modules.
//!
//! ```text
//!  template ─► source: tokens, declarations; markers, open lists and guards as data
//!                │
//!                └─ wrap: template, parameters, context ─► evaluator ─► output, outputs, patch as JSON
//!                                                                         │
//!        release: objects of a revision ◄─ component: traits in order ◄─ patch: by markers
//!          └─ identity: names, labels
//! ```
//!
//! The evaluator is real CUE; what its export to JSON loses is in [`source`](super::source) and [`patch`]. Templates are written by
//! tenants, so everything here has limits ([`limits`]).

pub mod cache_key;
pub mod component;
pub mod evaluate;
pub mod health;
pub mod identity;
mod limits;
pub mod patch;
mod place;
pub mod release;
pub mod terraform;
#[cfg(test)]
pub mod tests;
mod wrap;

pub use wrap::clean_errors;
