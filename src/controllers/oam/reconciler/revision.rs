//! The revision that an Application runs.

use std::sync::Arc;

use kube::api::{GetParams, PostParams};
use kube::core::Request;
use kube::{Api, Resource, ResourceExt};

use super::conditions::{self, Failure, phase};
use super::pass::{Pass, Stop};
use super::record::SMALL_BYTES;
use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationRevision, ApplicationRevisionSpec, LatestRevision, labels};
use crate::budget::Reservation;
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::metrics::PassStage;
use crate::controllers::oam::parse::{Definitions, Parsed, parse, strict_violations};
use crate::controllers::oam::references::has_redacted;
use crate::controllers::oam::render::release::Release;
use crate::controllers::oam::revisions::{
    Candidate, Packed, Recorded, RevisionError, can_match, compress, expand, hash, is_record_of, is_release_of,
    is_same, is_unchanged, metadata, names, next, recorded_application, refreshed,
};
use crate::runtime::kube_client::call;
use crate::runtime::watch::Cached;

/// A revision with its expanded contents.
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
}

/// The revision that an Application runs.
pub(super) struct Current {
    pub(super) revision: Revision,
    /// The Application that is deployed: that of the revision, if it is a published version.
    pub(super) app: Application,
    pub(super) release: Release,
}

impl Current {
    pub(super) fn name(&self) -> String {
        self.revision.object.name_any()
    }
}

impl Pass<'_> {
    /// Reads the revision that the status names, unless an earlier pass has. It may be newer than the cache.
    pub(super) async fn read_latest(&mut self) -> Result<Option<Arc<Packed>>, Stop> {
        let latest = self.status.latest_revision.as_ref();
        let Some(latest) = latest.filter(|latest| names::is_revision_of(&self.name.name, &latest.name)) else {
            return Ok(None);
        };
        let name = NamespacedName::new(&self.name.namespace, &latest.name);
        let cached = self.reconciler.caches.revisions.get(&name);
        let version = cached
            .as_ref()
            .and_then(|cached| cached.meta().resource_version.as_deref());
        let known = self.memory.lock().revision.clone();
        if let Some(known) = known.filter(|known| known.name == latest.name && Some(known.version.as_str()) == version)
        {
            return Ok(Some(known));
        }
        let read = self.read(&latest.name).await?.map(Arc::new);
        self.memory.lock().revision.clone_from(&read);
        if let Some(packed) = &read {
            let memory = self.memory_for(packed)?;
            self.decoded.extend(memory);
        }
        Ok(read)
    }

    /// Reads a revision.
    async fn read(&self, name: &str) -> Result<Option<Packed>, Failure> {
        let path = ApplicationRevision::url_path(&(), Some(&self.name.namespace));
        let request = Request::new(path).get(name, &GetParams::default());
        let request = request.map_err(|error| failed(error.to_string()))?;
        match call(self.reconciler.client.request_text(request)).await {
            Ok(text) => {
                let packed = Packed::of_text(&text).map_err(|error| undecodable(name, &error))?;
                Ok(Some(packed))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Returns the revision that the status names. Its memory is reserved.
    pub(super) fn latest_revision(&self) -> Result<Option<Revision>, Failure> {
        let latest = self.latest.as_ref().map_err(Clone::clone)?;
        latest.as_ref().map(|packed| unpack(packed)).transpose()
    }

    /// Reads a revision other than the latest one.
    async fn older_revision(&mut self, name: &str) -> Result<Option<Revision>, Stop> {
        let Some(packed) = self.read(name).await? else {
            return Ok(None);
        };
        let memory = self.memory_for(&packed)?;
        self.decoded.extend(memory);
        Ok(Some(unpack(&packed)?))
    }

    /// Reserves memory for a revision without waiting, unless the pass has reserved it before.
    fn memory_for(&self, packed: &Packed) -> Result<Option<Reservation>, Stop> {
        let bytes = packed.unpacked_bytes();
        if bytes <= SMALL_BYTES || bytes <= self.spare_bytes {
            return Ok(None);
        }
        let memory = &self.reconciler.budgets.memory;
        let memory = memory.try_reserve_more(&self.name.namespace, bytes);
        memory.ok_or(Stop::NeedsMemory(bytes)).map(Some)
    }

    /// Returns a revision as it was written, and remembers it for the next pass.
    fn written(&self, mut object: ApplicationRevision, is_created: bool) -> Result<Revision, Failure> {
        self.reconciler.caches.assume_revision(&object, is_created);
        let packed = Packed::of(&object).map_err(|error| undecodable(&object.name_any(), &error))?;
        self.memory.lock().revision = Some(Arc::new(packed));
        let spec = std::mem::take(&mut object.spec);
        let contents = match spec.compression.is_empty() {
            true => spec,
            false => expand(&spec)
                .map_err(|error| undecodable(&object.name_any(), &error))?
                .into_owned(),
        };
        Ok(Revision {
            object: Arc::new(object),
            contents: Arc::new(contents),
        })
    }

    /// Remembers the latest revision after a write of its status.
    pub(super) fn status_written(&self, object: &ApplicationRevision) {
        self.reconciler.caches.assume_revision(object, false);
        let mut memory = self.memory.lock();
        let is_known = memory
            .revision
            .as_ref()
            .is_some_and(|known| known.name == object.name_any());
        // Otherwise the next pass reads it.
        if is_known && let Ok(packed) = Packed::of(object) {
            memory.revision = Some(Arc::new(packed));
        }
    }

    /// Parses the Application: from live definitions, or from the latest revision if that is the version it publishes.
    pub(super) async fn parse(&self, latest: Option<&Revision>) -> Result<Parsed, Stop> {
        let _timer = self.reconciler.metrics.time(PassStage::Parse);
        let options = &self.reconciler.options;
        let failed =
            |message: String| Failure::new(conditions::PARSED, "FailedParse", message).in_phase(phase::RENDERING);
        let parsed = match latest.filter(|latest| is_release_of(&latest.object, &self.app)) {
            Some(release) => {
                let app = recorded_application(&release.object, &release.contents);
                parse(
                    &app,
                    &Definitions::frozen(&release.object.name_any(), &release.contents),
                )
            }
            None => {
                let auto_update = self
                    .app
                    .annotations()
                    .get(labels::AUTO_UPDATE)
                    .is_some_and(|value| value == "true");
                let (namespace, shared) = (&self.name.namespace, &options.definition_namespace);
                self.with_definitions(|lookup| {
                    let definitions = Definitions::live(lookup, namespace, shared, auto_update);
                    match (parse(&self.app, &definitions), latest) {
                        // What runs is kept, although a definition was deleted since.
                        (Err(_), Some(latest)) if is_record_of(&latest.object, &latest.contents, &self.app) => {
                            let name = latest.object.name_any();
                            parse(&self.app, &definitions.recorded_first(&name, &latest.contents))
                        }
                        (parsed, _) => parsed,
                    }
                })
                .await?
            }
        };
        let parsed = parsed.map_err(|error| failed(error.to_string()))?;
        if options.is_strict {
            let violations = strict_violations(&parsed);
            if !violations.is_empty() {
                return Err(failed(violations.join("; ")).into());
            }
        }
        Ok(parsed)
    }

    /// Makes the revision of what is declared now current. Returns it with the Application as parsed from it.
    pub(super) async fn revise(&mut self, latest: Option<Revision>, parsed: Parsed) -> Result<(Current, Parsed), Stop> {
        let _timer = self.reconciler.metrics.time(PassStage::Revision);
        if let Some(release) = latest
            .as_ref()
            .filter(|latest| is_release_of(&latest.object, &self.app))
        {
            self.set_true(conditions::REVISION, "Revisioned", "Revisioned successfully");
            let app = recorded_application(&release.object, &release.contents);
            return Ok((self.current(app, release.clone()).await, parsed));
        }
        let contents = parsed.contents(&self.app);
        let revision = self.choose(latest, contents).await?;
        self.set_true(conditions::REVISION, "Revisioned", "Revisioned successfully");
        let name = revision.object.name_any();
        let options = &self.reconciler.options;
        let namespaces = (&self.name.namespace, &options.definition_namespace);
        let parsed = self.with_definitions(|lookup| {
            let definitions = Definitions::live(lookup, namespaces.0, namespaces.1, false);
            parse(&self.app, &definitions.recorded_first(&name, &revision.contents))
        });
        let parsed = parsed
            .await?
            .map_err(|error| Failure::new(conditions::PARSED, "FailedParse", error.to_string()))?;
        Ok((self.current(self.app.clone(), revision).await, parsed))
    }

    async fn current(&self, app: Application, revision: Revision) -> Current {
        let latest = self.status.latest_revision.as_ref();
        let hash = revision.object.labels().get(labels::APP_REVISION_HASH);
        let identity = LatestRevision {
            name: revision.object.name_any(),
            revision: latest.map_or(0, |latest| latest.revision),
            revision_hash: hash.cloned().unwrap_or_default(),
        };
        let settings = self.template_settings();
        let version = self.reconciler.cluster_version().await;
        Current {
            release: Release::new(self.name.clone(), &app, identity, version, settings),
            revision,
            app,
        }
    }

    async fn choose(&mut self, latest: Option<Revision>, contents: ApplicationRevisionSpec) -> Result<Revision, Stop> {
        let hash = hash(&contents);
        let hash = hash.map_err(|error| Failure::new(conditions::REVISION, "FailedRevision", error.to_string()))?;
        let annotations = self.app.annotations();
        let candidate = Candidate {
            spec: &contents,
            hash: &hash,
            publish_version: annotations.get(labels::PUBLISH_VERSION).map(String::as_str),
            auto_update: annotations.contains_key(labels::AUTO_UPDATE),
        };
        let latest = match latest {
            Some(latest) if is_unchanged(&latest.recorded(), &candidate) => {
                return self.refresh(latest, &contents).await;
            }
            latest => latest,
        };
        let (name, number) = self.next_revision(latest.as_ref(), &candidate).await?;
        let name_in_namespace = NamespacedName::new(&self.name.namespace, &name);
        let cached = self.reconciler.caches.revisions.get(&name_in_namespace);
        let revision = match cached.as_ref().and_then(Cached::object) {
            Some(existing) if self.owns(existing.owner_references()) => {
                self.older_revision(&name).await?.ok_or(Stop::Stale)?
            }
            Some(_) => return Err(taken(&name).into()),
            None => self.create_revision(&name, &hash, contents).await?,
        };
        let recorded_hash = revision.object.labels().get(labels::APP_REVISION_HASH);
        self.status.latest_revision = Some(LatestRevision {
            name,
            revision: number,
            revision_hash: recorded_hash.cloned().unwrap_or_default(),
        });
        phase::RENDERING.clone_into(&mut self.status.phase);
        // A crash later must know the revision.
        self.write_status().await.map_err(|error| self.stop(&error))?;
        Ok(revision)
    }

    /// Returns name and number of the revision that becomes current.
    async fn next_revision(&self, latest: Option<&Revision>, candidate: &Candidate<'_>) -> Result<(String, i64), Stop> {
        let others = self.reconciler.caches.revisions_of(self.name);
        let others = others
            .into_iter()
            .filter(|revision| latest.is_none_or(|latest| latest.object.name_any() != revision.name_any()));
        let others: Vec<_> = others.map(|revision| (revision.name_any(), revision)).collect();
        let unlike = ApplicationRevisionSpec::default();
        let mut recorded: Vec<_> = latest.map(Revision::recorded).into_iter().collect();
        for (name, revision) in &others {
            let mut other = Recorded {
                name,
                hash: revision.hash(),
                publish_version: revision.publish_version(),
                spec: &unlike,
            };
            // One at a time is in memory. One that can't be decoded is no candidate, and keeps its name.
            if can_match(other.publish_version, other.hash, candidate)
                && let Some(packed) = self.read(name).await?
            {
                let _memory = self.memory_for(&packed)?;
                if unpack(&packed).is_ok_and(|found| is_same(&found.recorded(), candidate)) {
                    other.spec = candidate.spec;
                }
            }
            recorded.push(other);
        }
        let latest = self.status.latest_revision.as_ref();
        Ok(next(&self.name.name, latest, candidate, &recorded))
    }

    async fn create_revision(
        &self,
        name: &str,
        hash: &str,
        contents: ApplicationRevisionSpec,
    ) -> Result<Revision, Stop> {
        let failed =
            |message: String| Failure::new(conditions::REVISION, "FailedRevision", message).in_phase(phase::RENDERING);
        let is_redacted = has_redacted(&contents.referred_objects);
        let spec = compress(contents, self.reconciler.options.revision_format);
        let spec = spec.map_err(|error| failed(error.to_string()))?;
        let crd = &self.reconciler.revision_crd;
        let checked = crd.check(self.revisions(), &spec.compression).await;
        checked.map_err(failed)?;
        let revision = ApplicationRevision {
            metadata: metadata(&self.app, name, hash, is_redacted),
            spec,
            status: None,
        };
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let created = call(self.revisions().create(&parameters, &revision)).await;
        self.reconciler.metrics.count_write("create", "ApplicationRevision");
        match created {
            Ok(created) => Ok(self.written(created, true)?),
            Err(error) if error.is_conflict() => {
                let found = call(self.revisions().get_opt(name)).await;
                let found = found.map_err(|error| failed(error.to_string()))?;
                match found {
                    // Created before a crash; the cache will have it.
                    Some(found) if self.owns(found.owner_references()) => Err(Stop::Stale),
                    Some(_) => Err(taken(name).into()),
                    None => Err(Stop::Stale),
                }
            }
            Err(error) => Err(failed(error.to_string()).into()),
        }
    }

    /// Brings what may change in the current revision up to date.
    async fn refresh(&self, latest: Revision, contents: &ApplicationRevisionSpec) -> Result<Revision, Stop> {
        let Some(mut wanted) = refreshed(&latest.object, &latest.contents, &self.app, contents) else {
            return Ok(latest);
        };
        let failed = |message: String| Failure::new(conditions::REVISION, "FailedRevision", message);
        let spec = compress(wanted.spec, self.reconciler.options.revision_format);
        wanted.spec = spec.map_err(|error| failed(error.to_string()))?;
        let crd = &self.reconciler.revision_crd;
        let checked = crd.check(self.revisions(), &wanted.spec.compression).await;
        checked.map_err(failed)?;
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let written = call(
            self.revisions()
                .replace(&latest.object.name_any(), &parameters, &wanted),
        )
        .await;
        self.reconciler.metrics.count_write("update", "ApplicationRevision");
        match written {
            Ok(written) => Ok(self.written(written, false)?),
            Err(error) if error.is_conflict() => Err(Stop::Stale),
            Err(error) => Err(failed(error.to_string()).into()),
        }
    }

    pub(super) fn revisions(&self) -> Api<ApplicationRevision> {
        Api::namespaced(self.reconciler.client.clone(), &self.name.namespace)
    }
}

fn unpack(packed: &Packed) -> Result<Revision, Failure> {
    let (object, contents) = packed.unpack().map_err(|error| undecodable(&packed.name, &error))?;
    Ok(Revision {
        object: Arc::new(object),
        contents: Arc::new(contents),
    })
}

fn failed(message: String) -> Failure {
    Failure::new(conditions::REVISION, "FailedRevision", message)
}

fn undecodable(name: &str, error: &RevisionError) -> Failure {
    failed(format!("applicationrevision {name}: {error}"))
}

fn taken(name: &str) -> Failure {
    let message = format!("applicationrevision {name} exists but controlled by another application");
    let failure = Failure::new(conditions::REVISION, "FailedRevision", message);
    failure.in_phase(phase::RENDERING)
}
