//! One tenant takes all it can; another is served.

mod fairness;
