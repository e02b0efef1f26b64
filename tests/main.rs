//! The integration tests: one binary, since linking is what costs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod catalog;
mod support;
