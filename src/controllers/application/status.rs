//! Computes the status of an Application from the state of its components, without I/O.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::index::{Index, is_component};
use super::kinds::{application_kind, to_watch};
use super::readiness::{ComponentState, Readiness};
use super::spec::{AppSpec, MAX_KINDS};
use crate::api::conditions::{find, since};
use crate::api::{ApplicationCondition, ApplicationStatus, ComponentStatus};
use crate::runtime::watch::{GroupKind, KindState, KindView};
use crate::text::{json_size, sanitize};

pub const READY: &str = "Ready";
/// Condition type: something could not be read, evaluated or adopted.
pub const ERROR: &str = "Error";

/// Maximum size of the components in a status, in bytes.
const MAX_COMPONENTS: usize = 1024 * 1024;
/// Maximum size of an Application whose status is written, in bytes. etcd accepts requests of 1.5 MiB; the rest is for our
/// entry in `managedFields` and for the part of the object that has not been seen yet.
const MAX_OBJECT: usize = 1_500_000;
const MAX_NAMES: usize = 20;

/// A problem apart from the readiness of components.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub text: String,
    /// Makes the readiness of the application unknown.
    pub hides_readiness: bool,
}

impl Problem {
    pub(super) fn minor(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hides_readiness: false,
        }
    }

    fn blocking(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            hides_readiness: true,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assessment {
    /// Sorted by the order of kinds, then by name.
    pub components: Vec<ComponentStatus>,
    pub ready: usize,
    pub not_ready: Vec<String>,
    pub problems: Vec<Problem>,
}

#[must_use]
pub fn assess(spec: &AppSpec, kinds: &[(GroupKind, KindState<Readiness>)], index: &Index) -> Assessment {
    let mut assessment = Assessment::default();
    if let Err(error) = &spec.selection {
        let text = format!("invalid selector: {error}");
        assessment.problems.push(Problem::blocking(text));
        return assessment;
    }
    if spec.omitted_kinds > 0 {
        assessment.problems.push(Problem::blocking(format!(
            "spec.componentKinds has more than {MAX_KINDS} kinds, the last {} are ignored; split them among several Applications",
            spec.omitted_kinds
        )));
    }
    for (kind, state) in kinds {
        match state {
            KindState::Pending => assessment
                .problems
                .push(Problem::blocking(format!("{kind} not listed yet"))),
            KindState::Unknown => assessment.problems.push(Problem::minor(format!(
                "kind {kind} not found: install its CRD or fix spec.componentKinds (the group of \
                 Pods and Services is empty)"
            ))),
            KindState::Excluded => assessment.problems.push(Problem::minor(format!(
                "kind {kind} is not watched: if it exists, {}",
                to_watch(kind)
            ))),
            KindState::Failed(error) => assessment.problems.push(Problem::blocking(error.clone())),
            KindState::Objects(view) => {
                assessment.problems.extend(view.polled.clone().map(Problem::minor));
                assessment.add_kind(spec, kind, view, index);
            }
        }
    }
    assessment
}

impl Assessment {
    fn add_kind(&mut self, spec: &AppSpec, kind: &GroupKind, view: &KindView<Readiness>, index: &Index) {
        // Applications that select each other would wait for each other.
        let cycle = if *kind == application_kind() {
            index.selectors_of(spec, view)
        } else {
            BTreeSet::new()
        };
        let mut in_cycle = Vec::new();
        for object in view.objects.iter().filter(|object| is_component(spec, kind, object)) {
            let is_in_cycle = cycle.contains(&*object.name);
            if is_in_cycle {
                in_cycle.push(&*object.name);
            }
            let is_self = *object.uid == *spec.uid;
            let readiness = if is_self || is_in_cycle {
                Readiness::READY
            } else {
                object.projection.clone()
            };
            let name = format!("{}/{}", kind.kind, object.name);
            let message = readiness.message.as_deref().unwrap_or_default();
            match readiness.state {
                ComponentState::Ready => self.ready += 1,
                // Transient reasons are omitted: their numbers change with every pod.
                ComponentState::InProgress if message.starts_with("failed") => {
                    self.not_ready.push(format!("{name} ({message})"))
                }
                ComponentState::InProgress => self.not_ready.push(name),
                ComponentState::Unknown => {
                    self.problems.push(Problem::blocking(format!("{name}: {message}")));
                    self.not_ready.push(name);
                }
            }
            self.components.push(ComponentStatus {
                link: None,
                name: Some(object.name.to_string()),
                kind: Some(kind.kind.to_string()),
                group: Some(kind.group.to_string()).filter(|group| !group.is_empty()),
                status: Some(readiness.state.to_string()),
            });
        }
        if !in_cycle.is_empty() {
            self.problems.push(Problem::minor(format!(
                "counted as ready, as they select this Application themselves: {}",
                in_cycle.join(", ")
            )));
        }
    }

    /// `size` is the size of the object without the status, in bytes. Unchanged conditions keep the times of `before`.
    #[must_use]
    pub fn status(
        &self,
        generation: Option<i64>,
        size: usize,
        before: &[ApplicationCondition],
        now: Timestamp,
    ) -> ApplicationStatus {
        let (components, omitted) = self.listed_components(size + others(before).map(json_size).sum::<usize>());
        let mut problems: Vec<_> = self.problems.iter().map(|problem| problem.text.as_str()).collect();
        let omitted = (omitted > 0).then(|| format!("{omitted} components omitted from status: size limit reached"));
        problems.extend(omitted.as_deref());
        let error = match &problems[..] {
            [] => condition(ERROR, "False", "NoError", "No error seen"),
            problems => condition(ERROR, "True", "ErrorSeen", &problems.join("; ")),
        };
        let ours = [self.readiness(), error].map(|condition| with_times(condition, before, now));
        ApplicationStatus {
            observed_generation: generation,
            conditions: ours.into_iter().chain(others(before).cloned()).collect(),
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
        let named: Vec<_> = self.not_ready.iter().take(MAX_NAMES).map(String::as_str).collect();
        let more = match count - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!("{count} components not ready: {}{more}", named.join(", "));
        condition(READY, "False", "ComponentsNotReady", &message)
    }

    /// Returns the components that fit beside `size` bytes, and the number of the others.
    fn listed_components(&self, size: usize) -> (Vec<ComponentStatus>, usize) {
        /// Our conditions and the rest of the status: two messages of at most 1,024 bytes, escaped.
        const CONDITIONS: usize = 8 * 1024;
        /// Overhead of a component in JSON: braces, keys, quotes and commas.
        const OVERHEAD: usize = 64;
        let length = |part: &Option<String>| part.as_ref().map_or(0, String::len);
        let mut budget = MAX_OBJECT.saturating_sub(size + CONDITIONS).min(MAX_COMPONENTS);
        let fits = |component: &&ComponentStatus| {
            let ComponentStatus {
                name,
                kind,
                group,
                status,
                ..
            } = component;
            let bytes = OVERHEAD + length(name) + length(kind) + length(group) + length(status);
            budget.checked_sub(bytes).inspect(|left| budget = *left).is_some()
        };
        let listed: Vec<_> = self.components.iter().take_while(fits).cloned().collect();
        let omitted = self.components.len() - listed.len();
        (listed, omitted)
    }
}

/// Returns the conditions of other writers.
fn others(before: &[ApplicationCondition]) -> impl Iterator<Item = &ApplicationCondition> {
    before
        .iter()
        .filter(|condition| condition.type_ != READY && condition.type_ != ERROR)
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> ApplicationCondition {
    ApplicationCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(sanitize(message)),
        last_update_time: None,
        last_transition_time: None,
    }
}

/// Keeps an unchanged condition as it was, and the transition time while the status is the same.
fn with_times(new: ApplicationCondition, before: &[ApplicationCondition], now: Timestamp) -> ApplicationCondition {
    let old = find(before, &new.type_);
    if let Some(old) = old
        && (&old.status, &old.reason, &old.message) == (&new.status, &new.reason, &new.message)
    {
        return old.clone();
    }
    let updated = ApplicationCondition {
        last_update_time: Some(Time(now)),
        ..new
    };
    since(updated, old, Time(now))
}
