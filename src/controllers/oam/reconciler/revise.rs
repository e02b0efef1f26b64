use std::sync::Arc;

use kube::api::{GetParams, Patch, PatchParams};
use kube::core::Request;
use kube::{Api, Resource, ResourceExt};
use serde_json::json;

use super::conditions::phase;
use super::env::{Env, post_parameters};
use super::failure::{Failure, FailureKind, Stop};
use super::observed::Observed;
use crate::api::NamespacedName;
use crate::api::oam::{
    Application, ApplicationRevision, ApplicationRevisionSpec, LatestRevision, WorkflowStatus, labels,
};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::references::has_redacted;
use crate::controllers::oam::render::release::Release;
use crate::controllers::oam::revisions::{
    Candidate, Packed, Recorded, RevisionError, can_match, compress, expand, hash, is_release_of, is_same,
    is_unchanged, metadata, names, next, recorded_application, refreshed,
};
use crate::runtime::kube_client::call;
use crate::runtime::watch::Cached;

#[derive(Clone, Debug)]
pub(super) struct Revision {
    /// Without its contents.
    pub(super) object: Arc<ApplicationRevision>,
    pub(super) contents: Arc<ApplicationRevisionSpec>,
}

impl Revision {
    pub(super) fn recorded(&self) -> Recorded<'_> {
        Recorded::of(&self.object, &self.contents)
    }

    pub(super) fn unpack(packed: &Packed) -> Result<Self, Failure> {
        let (object, contents) = packed.unpack().map_err(|error| undecodable(&packed.name, &error))?;
        Ok(Self {
            object: Arc::new(object),
            contents: Arc::new(contents),
        })
    }
}

pub(super) struct Current {
    pub(super) revision: Revision,
    /// The Application that is deployed. A published version is deployed as its revision records it.
    pub(super) app: Application,
    pub(super) release: Release,
}

impl Current {
    pub(super) fn name(&self) -> String {
        self.revision.object.name_any()
    }
}

/// The revision of what is declared, with what the status then says of it, if another revision was current before.
pub(super) struct Chosen {
    pub(super) revision: Revision,
    pub(super) latest: Option<LatestRevision>,
}

/// Reads the revision that the status names, unless an earlier pass has. It may be newer than the cache.
pub(super) async fn read_named(env: &Env<'_>, latest: &LatestRevision) -> Result<Option<Arc<Packed>>, Stop> {
    if !names::is_revision_of(&env.name.name, &latest.name) {
        return Ok(None);
    }
    let name = NamespacedName::new(&env.name.namespace, &latest.name);
    let cached = env.reconciler.caches.revisions.get(&name);
    let version = cached
        .as_ref()
        .and_then(|cached| cached.meta().resource_version.as_deref());
    let remembered = env.memory.lock().revision.clone();
    let is_current = |packed: &Arc<Packed>| packed.name == latest.name && Some(packed.version.as_str()) == version;
    if let Some(packed) = remembered.filter(is_current) {
        return Ok(Some(packed));
    }
    let read = read(env, &latest.name).await?.map(Arc::new);
    env.memory.lock().revision.clone_from(&read);
    if let Some(packed) = &read {
        env.hold(env.memory_for_revision(packed.unpacked_bytes())?);
    }
    Ok(read)
}

async fn read(env: &Env<'_>, name: &str) -> Result<Option<Packed>, Failure> {
    let path = ApplicationRevision::url_path(&(), Some(&env.name.namespace));
    let request = Request::new(path)
        .get(name, &GetParams::default())
        .map_err(|error| failed(error.to_string()))?;
    match call(env.reconciler.client.request_text(request)).await {
        Ok(text) => {
            let packed = Packed::of_text(&text).map_err(|error| undecodable(name, &error))?;
            Ok(Some(packed))
        }
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// Returns the revision of the version that the Application publishes, if it is there.
pub(super) fn published_revision<'r>(observed: &Observed, latest: Option<&'r Revision>) -> Option<&'r Revision> {
    latest.filter(|latest| is_release_of(&latest.object, &observed.app))
}

/// Makes the revision of what is declared now. `number` has the number of the latest revision.
pub(super) async fn choose_revision(
    env: &Env<'_>,
    observed: &Observed,
    latest: Option<Revision>,
    contents: ApplicationRevisionSpec,
    number: Option<&LatestRevision>,
) -> Result<Chosen, Stop> {
    let _timer = env.reconciler.metrics.time(PassStage::Revision);
    let hash = hash(&contents).map_err(|error| failed(error.to_string()))?;
    let annotations = observed.app.annotations();
    let candidate = Candidate {
        spec: &contents,
        hash: &hash,
        publish_version: annotations.get(labels::PUBLISH_VERSION).map(String::as_str),
        auto_update: annotations.contains_key(labels::AUTO_UPDATE),
    };
    let latest = match latest {
        Some(latest) if is_unchanged(&latest.recorded(), &candidate) => {
            let revision = refresh(env, observed, latest, &contents).await?;
            return Ok(Chosen { revision, latest: None });
        }
        latest => latest,
    };
    let (name, number) = next_revision(env, latest.as_ref(), number, &candidate).await?;
    let name_in_namespace = NamespacedName::new(&env.name.namespace, &name);
    let cached = env.reconciler.caches.revisions.get(&name_in_namespace);
    let revision = match cached.as_ref().and_then(Cached::object) {
        Some(existing) if observed.owns(existing.owner_references()) => {
            older_revision(env, &name).await?.ok_or(Stop::Stale)?
        }
        Some(_) => return Err(taken(&name).into()),
        None => create_revision(env, observed, &name, &hash, contents).await?,
    };
    let recorded_hash = revision.object.labels().get(labels::APP_REVISION_HASH);
    let latest = LatestRevision {
        name,
        revision: number,
        revision_hash: recorded_hash.cloned().unwrap_or_default(),
    };
    Ok(Chosen {
        revision,
        latest: Some(latest),
    })
}

/// Returns what runs: `app`, from its revision. `number` has the number of the latest revision.
pub(super) async fn current_of(
    env: &Env<'_>,
    app: Application,
    revision: Revision,
    number: Option<&LatestRevision>,
) -> Current {
    let hash = revision.object.labels().get(labels::APP_REVISION_HASH);
    let identity = LatestRevision {
        name: revision.object.name_any(),
        revision: number.map_or(0, |latest| latest.revision),
        revision_hash: hash.cloned().unwrap_or_default(),
    };
    let settings = env.template_settings();
    let version = env.reconciler.cluster_version().await;
    Current {
        release: Release::new(env.name.clone(), &app, identity, version, settings),
        revision,
        app,
    }
}

async fn older_revision(env: &Env<'_>, name: &str) -> Result<Option<Revision>, Stop> {
    let Some(packed) = read(env, name).await? else {
        return Ok(None);
    };
    env.hold(env.memory_for_revision(packed.unpacked_bytes())?);
    Ok(Some(Revision::unpack(&packed)?))
}

async fn next_revision(
    env: &Env<'_>,
    latest: Option<&Revision>,
    number: Option<&LatestRevision>,
    candidate: &Candidate<'_>,
) -> Result<(String, i64), Stop> {
    let others: Vec<_> = (env.reconciler.caches.revisions_of(env.name).into_iter())
        .map(|revision| (revision.name_any(), revision))
        .filter(|(name, _)| latest.is_none_or(|latest| latest.object.name_any() != *name))
        .collect();
    let unlike = ApplicationRevisionSpec::default();
    let mut recorded: Vec<_> = latest.map(Revision::recorded).into_iter().collect();
    for (name, revision) in &others {
        let mut other = Recorded {
            name,
            hash: revision.hash(),
            publish_version: revision.publish_version(),
            spec: &unlike,
        };
        // Only one revision at a time is in memory. Undecodable revisions never match; their names stay taken.
        if can_match(other.publish_version, other.hash, candidate)
            && let Some(packed) = read(env, name).await?
        {
            let _memory = env.memory_for_revision(packed.unpacked_bytes())?;
            if Revision::unpack(&packed).is_ok_and(|unpacked| is_same(&unpacked.recorded(), candidate)) {
                other.spec = candidate.spec;
            }
        }
        recorded.push(other);
    }
    Ok(next(&env.name.name, number, candidate, &recorded))
}

async fn create_revision(
    env: &Env<'_>,
    observed: &Observed,
    name: &str,
    hash: &str,
    contents: ApplicationRevisionSpec,
) -> Result<Revision, Stop> {
    let failed = |message: String| failed(message).in_phase(phase::RENDERING);
    let is_redacted = has_redacted(&contents.referred_objects);
    let spec = compress(contents, env.options().revision_format).map_err(|error| failed(error.to_string()))?;
    let crd = &env.reconciler.revision_crd;
    let checked = crd.check(revisions(env), &spec.compression).await;
    checked.map_err(failed)?;
    let revision = ApplicationRevision {
        metadata: metadata(&observed.app, name, hash, is_redacted),
        spec,
        status: None,
    };
    let created = call(revisions(env).create(&post_parameters(), &revision)).await;
    env.reconciler.metrics.count_write("create", "ApplicationRevision");
    match created {
        Ok(created) => Ok(remember_written(env, created, true)?),
        Err(error) if error.is_conflict() => {
            let existing = call(revisions(env).get_opt(name))
                .await
                .map_err(|error| failed(error.to_string()))?;
            match existing {
                // Created before a crash; the cache will have it.
                Some(existing) if observed.owns(existing.owner_references()) => Err(Stop::Stale),
                Some(_) => Err(taken(name).into()),
                None => Err(Stop::Stale),
            }
        }
        Err(error) => Err(failed(error.to_string()).into()),
    }
}

async fn refresh(
    env: &Env<'_>,
    observed: &Observed,
    latest: Revision,
    contents: &ApplicationRevisionSpec,
) -> Result<Revision, Stop> {
    let Some(mut wanted) = refreshed(&latest.object, &latest.contents, &observed.app, contents) else {
        return Ok(latest);
    };
    let spec = compress(wanted.spec, env.options().revision_format);
    wanted.spec = spec.map_err(|error| failed(error.to_string()))?;
    let crd = &env.reconciler.revision_crd;
    let checked = crd.check(revisions(env), &wanted.spec.compression).await;
    checked.map_err(failed)?;
    let name = latest.object.name_any();
    let written = call(revisions(env).replace(&name, &post_parameters(), &wanted)).await;
    env.reconciler.metrics.count_write("update", "ApplicationRevision");
    match written {
        Ok(written) => Ok(remember_written(env, written, false)?),
        Err(error) if error.is_conflict() => Err(Stop::Stale),
        Err(error) => Err(failed(error.to_string()).into()),
    }
}

fn remember_written(env: &Env<'_>, mut object: ApplicationRevision, is_created: bool) -> Result<Revision, Failure> {
    env.reconciler.caches.assume_revision(&object.metadata, is_created);
    let packed = Packed::of(&object).map_err(|error| undecodable(&object.name_any(), &error))?;
    env.memory.lock().revision = Some(Arc::new(packed));
    let spec = std::mem::take(&mut object.spec);
    let contents = if spec.compression.is_empty() {
        spec
    } else {
        let expanded = expand(&spec).map_err(|error| undecodable(&object.name_any(), &error))?;
        expanded.into_owned()
    };
    Ok(Revision {
        object: Arc::new(object),
        contents: Arc::new(contents),
    })
}

/// Records a run of the workflow in a revision, with the values that it has stored.
pub(super) async fn record_run(
    env: &Env<'_>,
    revision: &str,
    has_succeeded: bool,
    workflow: &WorkflowStatus,
) -> Result<(), Stop> {
    let context = super::values::stored(env);
    let patch = Patch::Merge(json!({
        "status": { "succeeded": has_succeeded, "workflow": workflow, "workflowContext": context },
    }));
    let written = call(revisions(env).patch_status(revision, &PatchParams::apply(FIELD_MANAGER), &patch)).await;
    let metrics = &env.reconciler.metrics;
    metrics.count_write("patch", "ApplicationRevision/status");
    match written {
        Ok(written) => {
            remember_status(env, &written);
            Ok(())
        }
        // Deleted, or named by a version that has no revision.
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => {
            let message = format!("failed to record the workflow in applicationrevision {revision}: {error}");
            Err(Failure::new(FailureKind::RecordRun, message).into())
        }
    }
}

fn remember_status(env: &Env<'_>, object: &ApplicationRevision) {
    env.reconciler.caches.assume_revision(&object.metadata, false);
    let mut memory = env.memory.lock();
    let is_known = memory
        .revision
        .as_ref()
        .is_some_and(|packed| packed.name == object.name_any());
    // Otherwise the next pass reads it.
    if is_known && let Ok(packed) = Packed::of(object) {
        memory.revision = Some(Arc::new(packed));
    }
}

pub(super) fn application_of(revision: &Revision) -> Application {
    recorded_application(&revision.object, &revision.contents)
}

fn revisions(env: &Env<'_>) -> Api<ApplicationRevision> {
    Api::namespaced(env.reconciler.client.clone(), &env.name.namespace)
}

fn failed(message: String) -> Failure {
    Failure::new(FailureKind::Revision, message)
}

fn undecodable(name: &str, error: &RevisionError) -> Failure {
    failed(format!("applicationrevision {name}: {error}"))
}

fn taken(name: &str) -> Failure {
    let message = format!("applicationrevision {name} exists but controlled by another application");
    failed(message).in_phase(phase::RENDERING)
}
