//! From what is known of the components to a status: pure.
//!
//! ```text
//!  kinds, each with its objects ──assess──► Assessment ──status──► conditions, components, ready/total
//!                                              ▲
//!                 what adoption could not do ──┘
//! ```

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::index::is_component;
use super::readiness::{ComponentState, Readiness};
use super::spec::{AppSpec, MAX_KINDS};
use crate::api::{ApplicationCondition, ApplicationStatus, ComponentStatus};
use crate::runtime::watch::{GroupKind, KindState, Object, View};
use crate::text::truncate;

/// Ready: all components are.
pub const READY: &str = "Ready";
/// Error: something could not be read, judged or adopted.
pub const ERROR: &str = "Error";

/// Bytes of the components in a status. The API server stores no object of more than one and a half megabytes.
const MAX_COMPONENTS: usize = 1024 * 1024;
/// Components that are not ready whose names stand in the message.
const NAMED: usize = 20;
/// Bytes of a message.
const MAX_MESSAGE: usize = 4096;

/// Something that is wrong beside what components say of themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What, and what to do about it.
    pub text: String,
    /// Whether nobody can tell how ready the application is.
    pub hides_readiness: bool,
}

impl Problem {
    /// One that leaves the readiness as it is counted.
    pub(super) fn aside(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hides_readiness: false,
        }
    }

    fn hiding(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hides_readiness: true,
        }
    }
}

/// How an application stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assessment {
    /// The components by kind, in the order of the kinds, and by name.
    pub components: Vec<ComponentStatus>,
    /// How many of them are ready.
    pub ready: usize,
    /// Those that are not, for the message.
    pub not_ready: Vec<String>,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// Assesses an application by what is known of its kinds, each of which has been settled.
#[must_use]
pub fn assess(declared: &AppSpec, kinds: &[(GroupKind, KindState<Readiness>)]) -> Assessment {
    let mut assessment = Assessment::default();
    if let Err(error) = &declared.selection {
        let text = format!("the selector can't be used, so that no components are known: {error}");
        assessment.problems.push(Problem::hiding(text));
        return assessment;
    }
    if declared.left_out > 0 {
        assessment.problems.push(Problem::hiding(format!(
            "spec.componentKinds names more than {MAX_KINDS} kinds; the last {} are left out: spread them over several Applications",
            declared.left_out
        )));
    }
    for (kind, look) in kinds {
        match look {
            KindState::Pending => assessment.problems.push(Problem::hiding(format!("{kind} was not listed yet"))),
            KindState::Unknown => assessment.problems.push(Problem::aside(format!(
                "the cluster has no kind {kind}: install its definition, or put spec.componentKinds right (the group of \
                 Pods and Services is empty)"
            ))),
            KindState::Failed(error) => assessment.problems.push(Problem::hiding(error.clone())),
            KindState::Objects(view) => {
                assessment.problems.extend(view.polled.clone().map(Problem::aside));
                assessment.count(declared, kind, view);
            }
        }
    }
    assessment
}

impl Assessment {
    fn count(&mut self, declared: &AppSpec, kind: &GroupKind, view: &View<Readiness>) {
        for object in view
            .objects
            .iter()
            .filter(|object| is_component(declared, kind, object))
        {
            let judgement = judged(declared, object);
            let name = format!("{}/{}", kind.kind, object.name);
            let why = judgement.why.as_deref().unwrap_or_default();
            match judgement.state {
                ComponentState::Ready => self.ready += 1,
                // What passes by itself is not told in numbers that change with every pod.
                ComponentState::InProgress if why.starts_with("failed") => {
                    self.not_ready.push(format!("{name} ({why})"))
                }
                ComponentState::InProgress => self.not_ready.push(name),
                ComponentState::Unknown => {
                    self.problems.push(Problem::hiding(format!("{name}: {why}")));
                    self.not_ready.push(name);
                }
            }
            self.components.push(ComponentStatus {
                link: None,
                name: Some(object.name.to_string()),
                kind: Some(kind.kind.to_string()),
                group: Some(kind.group.to_string()).filter(|group| !group.is_empty()),
                status: Some(judgement.state.to_string()),
            });
        }
    }

    /// The status that says all that, with the times of the conditions `before` that stay.
    #[must_use]
    pub fn status(
        &self,
        generation: Option<i64>,
        before: &[ApplicationCondition],
        now: Timestamp,
    ) -> ApplicationStatus {
        let (components, left_out) = self.shown();
        let mut problems: Vec<_> = self.problems.iter().map(|problem| problem.text.as_str()).collect();
        let left_out = (left_out > 0).then(|| {
            format!(
                "{left_out} components are counted but not listed, since the object would become too large to be stored"
            )
        });
        problems.extend(left_out.as_deref());
        let error = match &problems[..] {
            [] => condition(ERROR, "False", "NoError", "No error seen"),
            problems => condition(ERROR, "True", "ErrorSeen", &problems.join("; ")),
        };
        let ours = [self.readiness(), error].map(|condition| with_times(condition, before, now));
        let others = before
            .iter()
            .filter(|condition| condition.type_ != READY && condition.type_ != ERROR);
        ApplicationStatus {
            observed_generation: generation,
            conditions: ours.into_iter().chain(others.cloned()).collect(),
            components,
            components_ready: Some(format!("{}/{}", self.ready, self.components.len())),
        }
    }

    fn readiness(&self) -> ApplicationCondition {
        if self.problems.iter().any(|problem| problem.hides_readiness) {
            let message = "failed to aggregate all components' statuses, check the Error condition for details";
            return condition(READY, "Unknown", "ComponentsReadyUnknown", message);
        }
        if self.not_ready.is_empty() {
            return condition(READY, "True", "ComponentsReady", "all components ready");
        }
        let count = self.not_ready.len();
        let named: Vec<_> = self.not_ready.iter().take(NAMED).map(String::as_str).collect();
        let more = match count - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!("{count} components not ready: {}{more}", named.join(", "));
        condition(READY, "False", "ComponentsNotReady", &message)
    }

    /// The components as far as there is room for them, and how many there is none for.
    fn shown(&self) -> (Vec<ComponentStatus>, usize) {
        /// Braces, keys, quotes and commas of a component in JSON.
        const AROUND: usize = 64;
        let length = |part: &Option<String>| part.as_ref().map_or(0, String::len);
        let mut room = MAX_COMPONENTS;
        let fits = |component: &&ComponentStatus| {
            let ComponentStatus {
                name,
                kind,
                group,
                status,
                ..
            } = component;
            let bytes = AROUND + length(name) + length(kind) + length(group) + length(status);
            room.checked_sub(bytes).inspect(|rest| room = *rest).is_some()
        };
        let shown: Vec<_> = self.components.iter().take_while(fits).cloned().collect();
        let left_out = self.components.len() - shown.len();
        (shown, left_out)
    }
}

/// How a component stands. The Application itself counts as ready: it would wait for itself for ever.
fn judged(declared: &AppSpec, object: &Object<Readiness>) -> Readiness {
    if *object.uid == *declared.uid {
        Readiness::READY
    } else {
        object.kept.clone()
    }
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> ApplicationCondition {
    ApplicationCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(truncate(message, MAX_MESSAGE)),
        last_update_time: None,
        last_transition_time: None,
    }
}

/// A condition that says what it said before stays as it was; the time of its transition stays while its status does.
fn with_times(new: ApplicationCondition, before: &[ApplicationCondition], now: Timestamp) -> ApplicationCondition {
    let old = before.iter().find(|old| old.type_ == new.type_);
    if let Some(old) = old
        && (&old.status, &old.reason, &old.message) == (&new.status, &new.reason, &new.message)
    {
        return old.clone();
    }
    let transition = old
        .filter(|old| old.status == new.status)
        .and_then(|old| old.last_transition_time.clone());
    ApplicationCondition {
        last_update_time: Some(Time(now)),
        last_transition_time: transition.or(Some(Time(now))),
        ..new
    }
}
