use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use kube::{Resource, ResourceExt};
use serde_json::json;

use super::apply::AppObjects;
use super::conditions::phase;
use super::env::Env;
use super::failure::{Failure, FailureKind, Stop};
use super::observed::{Observed, TRACKER_FINALIZER};
use super::outcome::{Outcome, OutcomeChange};
use super::pass::PassEnd;
use super::rollout::Rollout;
use super::rollout::assess::DeclaredObjects;
use super::rollout::render::Target;
use crate::api::oam::{ApplicationSpec, Component, StepOutput, labels};
use crate::controllers::oam::collect::{CollectProgress, Collector, Mark, Subject};
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::policies::Policies;
use crate::controllers::oam::revisions::{expendable, in_use};
use crate::controllers::oam::trackers::{Inventory, ResourceKey};

/// Time until a deletion that waits is looked at again, if no event comes first.
const WAIT: Duration = Duration::from_secs(3);
/// Annotation: the guard of garbage collection is lifted for a generation, set by `portolan vela gc --confirm`.
pub const CONFIRMED: &str = "portolan.dev/confirm-collection";

/// Deletes the objects of an Application that is being deleted, then its revisions, then its finalizers.
pub(super) async fn delete(
    observed: &mut Observed,
    objects: &mut AppObjects<'_>,
    outcome: &mut Outcome,
) -> Result<PassEnd, Stop> {
    let env = objects.env;
    let finalizers = observed.app.finalizers().to_vec();
    let is_ours = |finalizer: &String| [TRACKER_FINALIZER, labels::ORPHAN_FINALIZER].contains(&finalizer.as_str());
    if !finalizers.iter().any(is_ours) {
        return Ok(PassEnd::Gone);
    }
    outcome.in_phase(phase::DELETING);
    let (policies, components) = policies_of_deletion(observed, &objects.ledger.inventory)?;
    let progress = collect_marked(objects, observed, &policies, &components, Mark::All).await?;
    if outcome.waits_for_deletion(progress) {
        return Ok(PassEnd::Waiting);
    }
    if objects.ledger.has_any().await? {
        return Err(Stop::Stale);
    }
    let held = delete_revisions(env).await?;
    if let Some(first) = held.first() {
        let (namespace, count) = (&env.name.namespace, held.len());
        let message = format!(
            "Waiting for ApplicationRevision {first} (Namespace: {namespace}) to delete. \
             (At least {count} resources are deleting.)"
        );
        outcome.wait_for_deletion(message);
        outcome.look_again_in(WAIT);
        return Ok(PassEnd::Waiting);
    }
    let finalizers: Vec<String> = finalizers.into_iter().filter(|finalizer| !is_ours(finalizer)).collect();
    match observed.patch_metadata(env, json!({ "finalizers": finalizers })).await {
        Ok(()) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(Stop::of_write(&error)),
    }
    Ok(PassEnd::Gone)
}

/// If policies are invalid, the policies of the revision decide: they may keep objects. Without objects, any will do.
fn policies_of_deletion(observed: &Observed, inventory: &Inventory) -> Result<(Policies, Vec<Component>), Stop> {
    if inventory.is_empty() {
        return Ok((Policies::default(), Vec::new()));
    }
    let spec = &observed.app.spec;
    let with_components = |policies, spec: &ApplicationSpec| (policies, spec.components.clone());
    let is_release = observed.app.annotations().contains_key(labels::PUBLISH_VERSION);
    let declared = Policies::parse(&spec.policies, false);
    // A revision that can't be read must not keep an Application whose own policies are valid.
    if !is_release && let Ok(policies) = declared {
        return Ok(with_components(policies, spec));
    }
    if let Some(latest) = observed.latest_revision()? {
        let spec = &latest.contents.application.spec;
        if let Ok(policies) = Policies::parse(&spec.policies, false) {
            return Ok(with_components(policies, spec));
        }
    }
    let declared = declared.map(|policies| with_components(policies, spec));
    declared.map_err(|cause| {
        let message = format!("failed to parsePolicies: {cause}; fix the policies, which decide about objects to keep");
        Failure::new(FailureKind::Collect, message).into()
    })
}

/// Deletes the revisions of the Application. Returns the names of revisions that finalizers of others hold.
async fn delete_revisions(env: &Env<'_>) -> Result<Vec<String>, Stop> {
    let (names, mut held) = revision_names(env);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let deleted = env.reconciler.collector.delete_revisions(&env.name.namespace, &names);
    held.extend(
        deleted
            .await
            .map_err(|error| Failure::new(FailureKind::Collect, error.to_string()))?,
    );
    held.sort();
    Ok(held)
}

/// Returns the names of the revisions, and apart from them of revisions that are being deleted.
fn revision_names(env: &Env<'_>) -> (Vec<String>, Vec<String>) {
    let (mut names, mut deleting) = (Vec::new(), Vec::new());
    for revision in env.reconciler.caches.revisions_of(env.name) {
        match revision.meta().deletion_timestamp {
            None => names.push(revision.name_any()),
            Some(_) => deleting.push(revision.name_any()),
        }
    }
    (names, deleting)
}

async fn collect_marked(
    objects: &mut AppObjects<'_>,
    observed: &Observed,
    policies: &Policies,
    components: &[Component],
    mark: Mark<'_>,
) -> Result<CollectProgress, Stop> {
    let reconciler = objects.env.reconciler;
    let _timer = reconciler.metrics.time(PassStage::Collect);
    let dependents = dependents(components);
    let finalizers = observed.app.finalizers();
    let collector = Collector {
        objects: objects.cluster.objects.clone(),
        ..reconciler.collector.clone()
    };
    let ledger = &mut objects.ledger;
    let subject = Subject {
        app: &ledger.identity,
        rules: &policies.garbage_collect,
        read_only: &policies.read_only,
        orphans_all: finalizers.iter().any(|finalizer| finalizer == labels::ORPHAN_FINALIZER),
        is_deleting: observed.is_deleting(),
        dependents: &dependents,
    };
    let collected = collector.collect(&subject, &mut ledger.inventory, mark).await;
    collected.map_err(|error| Failure::new(FailureKind::Collect, error.to_string()).into())
}

pub(super) async fn collect_unmarked(rollout: &mut Rollout<'_, '_>, observed: &Observed) -> Result<(), Stop> {
    collect(rollout, observed, Mark::No).await
}

/// Collects objects of older versions that are not declared, and revisions beyond the limit.
pub(super) async fn collect_undeclared(
    rollout: &mut Rollout<'_, '_>,
    observed: &Observed,
    declared: &DeclaredObjects,
) -> Result<(), Stop> {
    let applied = match declared {
        DeclaredObjects::Complete(applied) => applied,
        DeclaredObjects::Unknown { cause } => {
            tracing::debug!(application = %rollout.env().name, cause, "nothing is collected");
            return collect_unmarked(rollout, observed).await;
        }
    };
    let generation = rollout.objects.ledger.identity.generation.to_string();
    let is_confirmed = observed.app.annotations().get(CONFIRMED) == Some(&generation);
    collect(rollout, observed, Mark::History { applied, is_confirmed }).await?;
    delete_old_revisions(rollout).await
}

/// Collects after a failed run, if all that is declared is recorded: objects of components that failed stay.
pub(super) async fn collect_after_failure(
    rollout: &mut Rollout<'_, '_>,
    observed: &Observed,
    declared: &DeclaredObjects,
) -> Result<(), Stop> {
    let recorded: HashSet<ResourceKey> = rollout.objects.ledger.current_entries().map(ResourceKey::of).collect();
    match declared {
        DeclaredObjects::Complete(keys) if keys.is_subset(&recorded) => {
            collect_undeclared(rollout, observed, declared).await
        }
        _ => collect_unmarked(rollout, observed).await,
    }
}

async fn collect(rollout: &mut Rollout<'_, '_>, observed: &Observed, mark: Mark<'_>) -> Result<(), Stop> {
    let parsed = rollout.target.parsed;
    let (policies, components) = (&parsed.rules, &parsed.spec.components);
    let progress = collect_marked(rollout.objects, observed, policies, components, mark).await?;
    rollout.outcome.waits_for_deletion(progress);
    Ok(())
}

async fn delete_old_revisions(rollout: &Rollout<'_, '_>) -> Result<(), Stop> {
    let Target { env, current, parsed } = rollout.target;
    let (names, _) = revision_names(env);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let current = current.name();
    let latest = rollout.outcome.latest_revision.as_ref();
    let mut used = in_use(latest, &rollout.objects.ledger.inventory);
    used.insert(&current);
    let limit = parsed.rules.garbage_collect.revision_limit();
    let old = expendable(&names, &used, limit.unwrap_or(env.options().revision_limit));
    if old.is_empty() {
        return Ok(());
    }
    let deleted = env.reconciler.collector.delete_revisions(&env.name.namespace, &old);
    // Only the deletion of the Application waits for revisions that are held.
    let deleted = deleted.await.map(drop);
    deleted.map_err(|error| Failure::new(FailureKind::Collect, error.to_string()).into())
}

impl Outcome {
    /// Returns true if objects remain.
    fn waits_for_deletion(&mut self, progress: CollectProgress) -> bool {
        let CollectProgress::Waiting {
            message,
            is_unreachable,
        } = progress
        else {
            return false;
        };
        self.wait_for_deletion(message);
        if !is_unreachable {
            self.look_again_in(WAIT);
        }
        true
    }

    fn wait_for_deletion(&mut self, message: String) {
        self.changes.push(OutcomeChange::Deleting(message));
        self.is_waiting_for_deletion = true;
    }
}

/// Returns the components that depend on each component, by `dependsOn` or by an input from its outputs.
fn dependents(components: &[Component]) -> BTreeMap<String, BTreeSet<String>> {
    let mut dependents: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for component in components {
        let provides = |other: &&Component| {
            let is_input = |output: &StepOutput| {
                let from = component
                    .inputs
                    .iter()
                    .map(|input| input.from.split('.').next().unwrap_or_default());
                from.into_iter().any(|from| from == output.name)
            };
            other.outputs.iter().any(is_input)
        };
        let providers = components.iter().filter(provides).map(|other| &other.name);
        for dependency in component.depends_on.iter().chain(providers) {
            dependents
                .entry(dependency.clone())
                .or_default()
                .insert(component.name.clone());
        }
    }
    dependents
}
