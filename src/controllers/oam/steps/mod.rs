//! Evaluates the templates of workflow steps: CUE that calls functions of the packages `vela/*`.
//!
//! ```text
//!  template ─► scan: imports, paths of fields that may be calls
//!                │
//!                └─► wrap: packages, template, parameter, context, answers so far ─► evaluator ─► first pending call
//!                      ▲                                                                              │
//!                      └── answer of builtin (pure) or of Functions ◄─────────────────────────────────┘
//! ```
//!
//! The loop ends without a pending call, or when one waits, suspends or fails. As at KubeVela, a run begins with the first
//! call again, and errors of fields that no call needs are ignored: the template is a `let`, which CUE doesn't validate.
//!
//! Components and traits call functions in the same way while they are rendered ([`CallingEvaluator`]), but only such that
//! change nothing.
//!
//! Templates are written by tenants, so everything here has limits ([`types`]).

mod builtin;
mod calling;
pub mod expression;
mod fields;
mod packages;
mod run;
mod scan;
pub mod support;
#[cfg(test)]
mod tests;
pub mod types;
mod values;
mod wrap;

pub use builtin::patch_object;
pub use calling::CallingEvaluator;
pub use expression::condition;
pub use packages::supports_import;
pub use run::run;
pub use support::applies_components;
pub use types::{Answer, Call, Functions, StepError, StepTemplate};
