//! One tenant takes all it can, or something breaks; others are served, and everything recovers without a restart.

mod arena;
mod chaos;
mod fairness;
mod fault;
