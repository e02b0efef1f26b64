//! Real parts that tests run against.

pub mod postgres;
