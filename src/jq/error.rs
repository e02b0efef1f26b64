use std::io;

use super::Limits;
use super::budget::Exhausted;

/// Reasons why a rule gives no answer. Only [`FilterError::Thread`] is transient.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error("spec.filterRule is not valid: {0}")]
    Invalid(String),
    #[error("spec.filterRule failed for chart {chart}: {cause}")]
    Failed { chart: String, cause: String },
    #[error("spec.filterRule was stopped at chart {chart}: {cause}; simplify the rule")]
    TooCostly { chart: String, cause: String },
    #[error("failed to start a thread for spec.filterRule: {0}")]
    Thread(#[source] io::Error),
    #[error("internal error in Portolan; please report this bug")]
    Panicked,
}

impl FilterError {
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "InvalidFilter",
            Self::Failed { .. } => "FilterFailed",
            Self::TooCostly { .. } => "FilterTooCostly",
            Self::Thread(_) => "ResourceExhausted",
            Self::Panicked => "InternalError",
        }
    }

    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Thread(_))
    }
}

impl Exhausted {
    pub(super) fn describe(self, limits: &Limits) -> String {
        match self {
            Self::Steps => format!("it takes more than {} steps", limits.steps.min(Limits::MAX_STEPS)),
            Self::Time => format!(
                "it takes more than {} seconds for all charts together",
                limits.time.as_secs_f64()
            ),
            Self::Stack => "its calls are nested too deeply".to_owned(),
            Self::Depth => format!("its lists and objects are more than {} levels deep", limits.depth),
            Self::Value => format!("it creates a value of more than {} bytes", limits.value_bytes),
            Self::Allocated => format!("it creates values of more than {} bytes", limits.allocated_bytes),
        }
    }
}
