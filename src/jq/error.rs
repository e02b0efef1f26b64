use serde::{Deserialize, Serialize};

/// Reasons why a rule gives no answer. Only [`FilterError::Process`] is transient.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum FilterError {
    #[error("spec.filterRule is not valid: {0}")]
    Invalid(String),
    #[error("spec.filterRule failed for chart {chart}: {cause}")]
    Failed { chart: String, cause: String },
    /// `place` is empty, or names the charts in evaluation.
    #[error("spec.filterRule was stopped{place}: {cause}; simplify the rule")]
    LimitExceeded { place: String, cause: String },
    /// The process that evaluates filters failed for another reason than a limit.
    #[error("failed to evaluate spec.filterRule: {0}")]
    Process(String),
}

impl FilterError {
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "InvalidFilter",
            Self::Failed { .. } => "FilterFailed",
            Self::LimitExceeded { .. } => "FilterLimitExceeded",
            Self::Process(_) => "FilterProcessFailed",
        }
    }

    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Process(_))
    }
}
