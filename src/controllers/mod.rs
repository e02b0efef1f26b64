//! The controllers, one directory each. They never import each other.

pub mod application;
pub mod apprepository;
