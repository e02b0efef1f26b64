//! Phases, reasons and states, as the status holds them.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::oam::{StepStatus, WorkflowStatus};

/// Declares an enum with the texts of its values.
macro_rules! texts {
    ($(#[$meta:meta])* $name:ident { $($value:ident = $text:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($value),+ }

        impl $name {
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $text),+ }
            }

            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$value),)+ _ => None }
            }
        }
    };
}

texts! {
    /// State of a workflow after a turn.
    State {
        Executing = "executing",
        Suspending = "suspending",
        Terminated = "terminated",
        Failed = "failed",
        Succeeded = "succeeded",
    }
}

texts! {
    StepPhase {
        Succeeded = "succeeded",
        Failed = "failed",
        Skipped = "skipped",
        Running = "running",
        Pending = "pending",
        Suspending = "suspending",
    }
}

texts! {
    StepReason {
        Wait = "Wait",
        Skip = "Skip",
        Rendering = "Rendering",
        Execute = "Execute",
        Suspend = "Suspend",
        Terminate = "Terminate",
        ProcessParameter = "ProcessParameter",
        Input = "Input",
        Output = "Output",
        FailedAfterRetries = "FailedAfterRetries",
        Timeout = "Timeout",
        Action = "Action",
    }
}

pub(super) type StepState = (StepPhase, Option<StepReason>);

impl WorkflowStatus {
    /// Returns true if a step has failed as often as it may.
    #[must_use]
    pub fn has_failed_after_retries(&self) -> bool {
        let mut steps = self
            .steps
            .iter()
            .flat_map(|step| [step].into_iter().chain(&step.sub_steps));
        steps.any(|step| step.has_reason(StepReason::FailedAfterRetries))
    }
}

impl StepStatus {
    /// Returns true if the step itself has suspended the workflow.
    pub(super) fn is_suspended(&self) -> bool {
        self.is(StepPhase::Suspending) && self.has_reason(StepReason::Suspend)
    }

    pub(super) fn last_execution(&self) -> Option<Timestamp> {
        self.last_execute_time.as_ref().map(|Time(time)| *time)
    }

    pub(super) fn is(&self, phase: StepPhase) -> bool {
        self.phase == phase.as_str()
    }

    pub(super) fn has_reason(&self, reason: StepReason) -> bool {
        self.reason == reason.as_str()
    }
}
