//! Three-way merge against a real API server: its rules, its defaults, its answers to our patches.

mod document;
mod patches;
