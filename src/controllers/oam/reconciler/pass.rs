//! The sequence of a pass, and the write of the status at its end.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::timeout;

use super::Reconciler;
use super::conditions::{self, Failure, phase};
use super::evaluations::Answers;
use super::memory::Memory;
use super::record::TAKEN_RETRY;
use super::revision::Current;
use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationStatus, AppliedResource, ServiceStatus, WorkflowStatus, labels};
use crate::budget::{Reservation, leave_runtime_if_large};
use crate::controllers::oam::cache::Decoded;
use crate::controllers::oam::definitions::Loaded;
use crate::controllers::oam::objects::{ObjectId, Objects};
use crate::controllers::oam::parse::{
    Parsed, Unsupported, unsupported_application, unsupported_definitions, unsupported_overrides, unsupported_trackers,
};
use crate::controllers::oam::placement::ServiceKey;
use crate::controllers::oam::revisions::Packed;
use crate::controllers::oam::trackers::{AppIdentity, Inventory, ResourceKey};
use crate::controllers::oam::workflow::State;
use crate::controllers::oam::workflow::operations::logs::LogConfig;
use crate::cue::turn::Turn;
use crate::runtime::controller::{Action, ReconcileError};
use crate::runtime::events::Event;
use crate::runtime::jitter::jitter;
use crate::runtime::kube_client::ApiError;
use crate::runtime::watch::{GroupKind, MAX_DECODED_BYTES, too_large};
use crate::runtime::workqueue::{Backoff, Priority};

pub(super) const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(500),
    cap: Duration::from_secs(5 * 60),
};
/// Delay after objects could not be restored, if no event comes first.
const KEEP_RETRY: Duration = Duration::from_mins(1);
/// Delay after an Application was refused. Its change comes first.
const REFUSED_RETRY: Duration = Duration::from_mins(10);
/// Delay after a conflict: the cache will have the newer version.
const STALE_RETRY: Duration = Duration::from_millis(100);

/// One pass over an Application.
pub(super) struct Pass<'a> {
    pub(super) reconciler: &'a Reconciler,
    pub(super) name: &'a NamespacedName,
    /// As last read or written.
    pub(super) app: Application,
    /// The memory that it would take with its spec, if that is too much.
    pub(super) too_large: Option<u64>,
    /// The status to write.
    pub(super) status: ApplicationStatus,
    /// With the rights of the Application.
    pub(super) objects: Objects,
    pub(super) inventory: Inventory,
    /// The revision that the status names, or the reason why it can't be read.
    pub(super) latest: Result<Option<Arc<Packed>>, Failure>,
    /// Memory of what is decoded.
    pub(super) decoded: Vec<Reservation>,
    /// The part of it that is left for revisions besides the latest.
    pub(super) spare_bytes: u64,
    /// Definitions that the cache does not hold decoded.
    pub(super) loaded: Loaded,
    pub(super) memory: Arc<Mutex<Memory>>,
    pub(super) turn: Arc<Turn>,
    /// The answers to calls of steps that have not ended.
    pub(super) answers: Answers,
    pub(super) events: Vec<Event>,
    /// Warnings about a spec that is deployed all the same, by reason; empty if there is none.
    pub(super) notices: BTreeMap<&'static str, String>,
    /// The statuses of components as found in this pass, by their replica.
    pub(super) replicas: BTreeMap<ServiceKey, BTreeMap<String, ServiceStatus>>,
    /// The logs that steps declare, by the name of the step.
    pub(super) logs: BTreeMap<String, LogConfig>,
    /// Objects as written in this pass.
    pub(super) written: HashMap<ObjectId, Value>,
    pub(super) now: Timestamp,
    /// The time until the next pass, if something waits for the clock.
    pub(super) next: Option<Duration>,
    /// True if Ready says which objects are still being deleted.
    pub(super) waits_for_collection: bool,
    /// The objects that the components consist of; `None` if one of them can't be rendered.
    pub(super) declared: Option<HashSet<ResourceKey>>,
    /// The objects that come from policies.
    pub(super) of_policies: HashSet<ResourceKey>,
}

/// The end of a pass without a failure.
pub(super) enum End {
    /// The Application waits for events, and for the time that the pass asks for.
    Waiting,
    /// The finalizers are removed.
    Gone,
}

/// The end of a pass before all is done.
pub(super) enum Stop {
    Failed(Failure),
    /// An object or the Application has changed since it was read.
    Stale,
    /// The Application is left as it is.
    Unsupported(Vec<Unsupported>),
    /// A pass that holds memory never waits for more: the next one reserves these bytes at once.
    NeedsMemory(u64),
    /// The worker is needed by Applications with fast templates.
    NeedsEvaluator,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        reconciler: &'a Reconciler,
        name: &'a NamespacedName,
        Decoded { app, too_large }: Decoded,
        decoded: Option<Reservation>,
        spare_bytes: u64,
    ) -> Self {
        // The API server stores whole seconds.
        let now = Timestamp::now();
        let memory = reconciler.memories.of(name);
        let answers = std::mem::take(&mut memory.lock().answers);
        Self {
            reconciler,
            name,
            status: app.status.clone().unwrap_or_default(),
            app,
            too_large,
            objects: reconciler.objects.clone(),
            inventory: Inventory::default(),
            latest: Ok(None),
            decoded: decoded.into_iter().collect(),
            spare_bytes,
            loaded: Loaded::default(),
            turn: Arc::new(reconciler.turn(name)),
            answers,
            memory,
            events: Vec::new(),
            notices: BTreeMap::new(),
            replicas: BTreeMap::new(),
            logs: BTreeMap::new(),
            written: HashMap::new(),
            now: Timestamp::from_second(now.as_second()).unwrap_or(now),
            next: None,
            waits_for_collection: false,
            declared: Some(HashSet::new()),
            of_policies: HashSet::new(),
        }
    }

    pub(super) async fn run(mut self) -> Result<Action, ReconcileError> {
        let options = &self.reconciler.options;
        let steps = timeout(options.pass_timeout, self.steps()).await;
        let has_timed_out = steps.is_err();
        let result = steps.unwrap_or_else(|_| {
            let message = format!("reconcile exceeded {:?}", options.pass_timeout);
            Err(Failure::new(conditions::READY, "FailedApply", message).into())
        });
        self.reconciler.metrics.count_pass(match &result {
            Ok(_) => "success",
            Err(Stop::Failed(_)) => "error",
            Err(Stop::Stale) => "conflict",
            Err(Stop::Unsupported(_)) => "unsupported",
            Err(Stop::NeedsMemory(_)) => "memory",
            Err(Stop::NeedsEvaluator) => "evaluator",
        });
        self.memory.lock().missing_bytes = match &result {
            Err(Stop::NeedsMemory(bytes)) => *bytes,
            _ => 0,
        };
        let failure = match result {
            Ok(End::Gone) => {
                self.publish_events().await;
                return Ok(Action::Done);
            }
            Err(Stop::Stale | Stop::NeedsMemory(_)) => return Ok(Action::requeue_after(STALE_RETRY)),
            Ok(End::Waiting) => None,
            // What steps have done is recorded: those that have ended must not run again.
            Err(Stop::NeedsEvaluator) => {
                conditions::start(&mut self.status);
                self.next = Some(self.keep_evaluations());
                None
            }
            Err(Stop::Unsupported(found)) => {
                self.refuse(&found);
                self.next = None;
                None
            }
            Err(Stop::Failed(failure)) => {
                self.warn(failure.event, &failure.message);
                conditions::fail(&mut self.status, &failure, self.now);
                self.status.observed_generation = self.app.metadata.generation;
                Some(failure)
            }
        };
        let grace_period = options.grace_period;
        let written = match has_timed_out {
            true => timeout(grace_period, self.write_status())
                .await
                .unwrap_or_else(|_| Err(ApiError::unavailable(format!("no response within {grace_period:?}")))),
            false => self.write_status().await,
        };
        match written {
            Ok(()) => {}
            Err(error) if error.is_conflict() => return Ok(Action::requeue_after(STALE_RETRY)),
            Err(error) if error.is_not_found() => return Ok(Action::Done),
            Err(error) => {
                let message = format!("failed to update status: {error}");
                return Err(ReconcileError::transient(message, BACKOFF));
            }
        }
        let resync = self.resync_period();
        self.publish_events().await;
        match failure {
            None => {
                // Passes of Applications that started together are spread.
                let resync = jitter(resync, 0.9..1.1);
                let delay = self.next.map_or(resync, |next| next.min(resync));
                Ok(Action::RequeueAfter {
                    delay,
                    priority: Some(Priority::LOW),
                })
            }
            Some(failure) => match failure.retry_after {
                Some(delay) => Err(ReconcileError::Terminal {
                    message: failure.message,
                    retry_after: Some(delay),
                }),
                None => Err(ReconcileError::transient(failure.message, BACKOFF)),
            },
        }
    }

    /// Asks for the next pass.
    pub(super) fn look_again_in(&mut self, delay: Duration) {
        self.next = Some(self.next.map_or(delay, |next| next.min(delay)));
    }

    async fn steps(&mut self) -> Result<End, Stop> {
        self.load().await?;
        self.check_support()?;
        self.subscribe().await;
        self.take_identity().await?;
        if self.app.metadata.deletion_timestamp.is_some() {
            return self.delete().await;
        }
        if let Some(bytes) = self.too_large {
            let message = format!("the Application {}", too_large(bytes, MAX_DECODED_BYTES));
            return Err(Failure::new(conditions::PARSED, "FailedParse", message)
                .in_phase(phase::RENDERING)
                .retried_after(REFUSED_RETRY)
                .into());
        }
        let latest = self.latest_revision()?;
        let parsed = self.parse(latest.as_ref()).await;
        let parsed = match parsed {
            Ok(parsed) => Ok(parsed),
            Err(Stop::Failed(failure)) => Err(failure),
            Err(stop) => return Err(stop),
        };
        if let Ok(parsed) = &parsed {
            let mut unsupported = unsupported_definitions(&parsed.components);
            unsupported.extend(unsupported_overrides(&parsed.overrides));
            // What is deployed goes on while clusters are joined, or unknown.
            if !self.is_deployed() {
                unsupported.extend(self.unsupported_clusters(parsed).await?);
            }
            if !unsupported.is_empty() {
                return Err(Stop::Unsupported(unsupported));
            }
        }
        self.write_metadata().await?;
        self.status.observed_generation = self.app.metadata.generation;
        let mut parsed = parsed?;
        let components = self.resolve_references(latest.as_ref(), &mut parsed).await?;
        self.set_true(conditions::PARSED, "Parsed", "Parsed successfully");
        self.notice_policies_without_effect(&parsed);
        let (current, mut parsed) = self.revise(latest, parsed).await?;
        if let Some(components) = components {
            parsed.replace_components(components);
        }
        self.wait_for_name(&parsed).await?;
        self.remove_creators().await?;
        self.apply_policies(&current, &parsed).await?;
        self.run_workflow(&current, &parsed).await
    }

    /// Waits until a tracker that is being deleted, and has the name of the current one, is gone.
    async fn wait_for_name(&mut self, parsed: &Parsed) -> Result<(), Stop> {
        let identity = self.identity();
        let Some(name) = self
            .inventory
            .blocking(&identity)
            .map(|tracker| tracker.name().to_owned())
        else {
            return Ok(());
        };
        self.collect_unmarked(parsed).await?;
        let message = format!("resourcetracker {name} of this version is still being deleted");
        Err(Failure::synced("FailedApply", message)
            .retried_after(TAKEN_RETRY)
            .into())
    }

    pub(super) fn identity(&self) -> AppIdentity {
        let version = self.app.annotations().get(labels::PUBLISH_VERSION);
        AppIdentity {
            name: self.name.clone(),
            uid: self.app.uid().unwrap_or_default(),
            generation: self.app.metadata.generation.unwrap_or_default(),
            publish_version: version.filter(|version| !version.is_empty()).cloned(),
        }
    }

    fn check_support(&self) -> Result<(), Stop> {
        let mut found = unsupported_application(&self.app);
        found.extend(unsupported_trackers(&self.inventory));
        match found.is_empty() {
            true => Ok(()),
            false => Err(Stop::Unsupported(found)),
        }
    }

    /// Says that the Application is left alone. Everything else in its status stays, unless it is that of another
    /// generation, which would seem to run.
    fn refuse(&mut self, found: &[Unsupported]) {
        self.status = self.app.status.clone().unwrap_or_default();
        if conditions::refuse(&mut self.status, self.app.metadata.generation, found, self.now) {
            let parsed = self
                .status
                .conditions
                .iter()
                .find(|one| one.type_ == conditions::PARSED);
            let message = parsed.map_or("", |parsed| parsed.message.as_str());
            self.events.push(Event::warning("FailedParse", message));
        }
    }

    /// Sets a condition to true, and announces it if it was not.
    pub(super) fn set_true(&mut self, condition: &'static str, reason: &str, note: &str) {
        if conditions::succeed(&mut self.status, condition, self.now) {
            self.announce(reason, note);
        }
    }

    /// Watches the kinds of all objects of the Application, and waits until the watches are complete.
    async fn subscribe(&self) {
        let kinds = self.watch_kinds();
        self.objects.wait_until_settled(&kinds).await;
        // They are decoded and compared with their manifests. Others may have made them much larger.
        let entries = self.inventory.in_order().flat_map(|tracker| &tracker.entries);
        let bytes = entries.map(|entry| self.objects.cached_bytes(&ObjectId::of_entry(entry)));
        leave_runtime_if_large(bytes.sum()).await;
    }

    /// Watches the kinds of all recorded objects.
    pub(super) fn watch_kinds(&self) -> BTreeSet<GroupKind> {
        let entries = self.inventory.in_order().flat_map(|tracker| &tracker.entries);
        let kinds: BTreeSet<GroupKind> = entries.map(|entry| ObjectId::of_entry(entry).group_kind()).collect();
        self.objects.subscribe(self.name, kinds.clone());
        kinds
    }

    /// Continues after the workflow has reached a state.
    pub(super) async fn finish(&mut self, state: State, current: &Current, parsed: &Parsed) -> Result<End, Stop> {
        match state {
            State::Executing => {
                phase::RUNNING_WORKFLOW.clone_into(&mut self.status.phase);
                self.dispatch_post_traits(current, parsed).await?;
                self.collect_unmarked(parsed).await?;
            }
            State::Suspending => {
                phase::SUSPENDING.clone_into(&mut self.status.phase);
                self.dispatch_post_traits(current, parsed).await?;
                if !self.is_suspended_by_failure() {
                    self.keep_state(parsed).await?;
                }
                self.collect_unmarked(parsed).await?;
            }
            State::Terminated | State::Failed => {
                let (phase, is_failed) = match state {
                    State::Failed => (phase::FAILED, true),
                    _ => (phase::TERMINATED, false),
                };
                phase.clone_into(&mut self.status.phase);
                self.finish_run(current, false).await?;
                match is_failed && parsed.rules.garbage_collect.continue_on_failure {
                    true => self.collect_after_failure(current, parsed).await?,
                    false => self.collect_unmarked(parsed).await?,
                }
            }
            State::Succeeded => {
                self.finish_run(current, true).await?;
                self.set_true(conditions::WORKFLOW, "Applied", "Workflow finished");
                return self.keep(current, parsed).await;
            }
        }
        self.list_applied();
        Ok(End::Waiting)
    }

    /// Returns true if a failed step, and not a user, has suspended the workflow. Its objects may be half changed.
    fn is_suspended_by_failure(&self) -> bool {
        let workflow = self.status.workflow.as_ref();
        let has_failed = workflow.is_some_and(WorkflowStatus::has_failed_after_retries);
        has_failed && self.reconciler.options.workflow.suspend_on_failure
    }

    /// Keeps a deployed Application: health, state, and collection of what it no longer contains.
    async fn keep(&mut self, current: &Current, parsed: &Parsed) -> Result<End, Stop> {
        self.set_health(current, parsed).await?;
        self.dispatch_post_traits(current, parsed).await?;
        self.set_phase(parsed);
        self.list_applied();
        let kept = self.keep_state(parsed).await;
        self.collect_marked(current, parsed).await?;
        match kept {
            Ok(()) => conditions::remove(&mut self.status, conditions::STATE_KEEP),
            Err(Stop::Failed(failure)) => {
                self.warn(failure.event, &failure.message);
                let message = failure.message.clone();
                conditions::fail_condition(&mut self.status, conditions::STATE_KEEP, &message, self.now);
                self.look_again_in(KEEP_RETRY);
            }
            Err(stop) => return Err(stop),
        }
        conditions::remove(&mut self.status, conditions::SYNCED);
        self.memory.lock().succeeded_if(kept_all(&self.status));
        if !self.waits_for_collection {
            self.set_true(conditions::READY, "Deployed", "Deployed successfully");
        }
        Ok(End::Waiting)
    }

    /// Lists the objects of the current version in the status.
    pub(super) fn list_applied(&mut self) {
        let current = self.inventory.current.iter().chain(&self.inventory.root);
        let entries = current
            .flat_map(|tracker| &tracker.entries)
            .filter(|entry| !entry.deleted);
        let resources = entries.map(|entry| AppliedResource {
            cluster: entry.cluster.clone(),
            creator: match self.of_policies.contains(&ResourceKey::of(entry)) {
                true => "policy".to_owned(),
                false => "workflow".to_owned(),
            },
            api_version: entry.api_version.clone(),
            kind: entry.kind.clone(),
            namespace: entry.namespace.clone(),
            name: entry.name.clone(),
            uid: String::new(),
        });
        self.status.applied_resources = resources.collect();
    }
}

fn kept_all(status: &ApplicationStatus) -> bool {
    status.conditions.iter().all(|condition| condition.status == "True")
}
