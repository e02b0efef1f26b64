//! Phases, reasons and states, as the status holds them.

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
    }
}

texts! {
    StepReason {
        Wait = "Wait",
        Skip = "Skip",
        Execute = "Execute",
        Terminate = "Terminate",
        Input = "Input",
        FailedAfterRetries = "FailedAfterRetries",
    }
}

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
    pub(super) fn is(&self, phase: StepPhase) -> bool {
        self.phase == phase.as_str()
    }

    pub(super) fn has_reason(&self, reason: StepReason) -> bool {
        self.reason == reason.as_str()
    }
}
