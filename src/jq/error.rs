//! Why a rule gives no answer.

use std::io;

use super::Limits;
use super::budget::Exhausted;

/// Why a rule gives no answer. None of it passes by itself: the rule has to be changed, or a chart.
///
/// [`FilterError::Thread`] alone says nothing about the rule.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// It can't be compiled.
    #[error("spec.filterRule can't be used: {0}")]
    Invalid(String),
    /// It failed for a chart, or did not answer true or false.
    #[error("spec.filterRule fails for the chart {chart}: {cause}")]
    Failed {
        /// The chart's name.
        chart: String,
        /// What is wrong, in the rule's own words where it has some.
        cause: String,
    },
    /// It takes more than it may.
    #[error("spec.filterRule is stopped at the chart {chart}: {cause}; make the rule simpler")]
    TooCostly {
        /// The chart's name.
        chart: String,
        /// The limit, with its value.
        cause: String,
    },
    /// There is no thread to run it on.
    #[error("no thread could be started to run spec.filterRule on: {0}")]
    Thread(#[source] io::Error),
    /// Its thread has panicked, and would again.
    #[error("it can't be done because of a defect in Portolan; please report it")]
    Panicked,
}

impl FilterError {
    /// The reason for a status condition.
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

    /// Whether it may pass by itself.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Thread(_))
    }
}

impl Exhausted {
    /// The limit, as a sentence that names its value.
    pub(super) fn describe(self, limits: &Limits) -> String {
        match self {
            Self::Steps => format!("it takes more than {} steps", limits.steps.min(Limits::MOST_STEPS)),
            Self::Time => format!(
                "it takes more than {} seconds for all charts together",
                limits.time.as_secs_f64()
            ),
            Self::Stack => "its calls within calls are too deep".to_owned(),
            Self::Depth => format!("its lists and objects are more than {} levels deep", limits.depth),
            Self::Value => format!("it makes a value of more than {} bytes", limits.value_bytes),
            Self::Made => format!("it makes values of more than {} bytes", limits.made_bytes),
        }
    }
}
