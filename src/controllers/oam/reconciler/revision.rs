//! The revision that an Application runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::PostParams;
use kube::{Api, ResourceExt};

use super::conditions::{self, Failure, phase};
use super::pass::{Pass, Stop};
use crate::api::NamespacedName;
use crate::api::oam::{Application, ApplicationRevision, ApplicationRevisionSpec, LatestRevision, labels};
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::parse::{Definitions, Parsed, parse, strict_violations};
use crate::controllers::oam::revisions::{
    Candidate, Decision, Recorded, compress, decide, expand, hash, is_release_of, metadata, names,
    recorded_application, refreshed,
};
use crate::runtime::kube_client::call;
use crate::runtime::watch::Cached;

/// A revision with its expanded contents.
#[derive(Clone, Debug)]
pub(super) struct Revision {
    pub(super) object: Arc<ApplicationRevision>,
    pub(super) contents: Arc<ApplicationRevisionSpec>,
}

/// The revision that an Application runs.
pub(super) struct Current {
    pub(super) revision: Revision,
    /// The Application that is deployed: that of the revision, if it is a published version.
    pub(super) app: Application,
}

impl Current {
    pub(super) fn name(&self) -> String {
        self.revision.object.name_any()
    }

    pub(super) fn hash(&self) -> &str {
        let hash = self.revision.object.labels().get(labels::APP_REVISION_HASH);
        hash.map_or("", String::as_str)
    }
}

impl Pass<'_> {
    /// Returns the revision that the status names. It may be newer than the cache.
    pub(super) async fn latest_revision(&self) -> Result<Option<Revision>, Stop> {
        let Some(latest) = self
            .status
            .latest_revision
            .as_ref()
            .filter(|latest| names::is_revision_of(&self.name.name, &latest.name))
        else {
            return Ok(None);
        };
        let name = NamespacedName::new(&self.name.namespace, &latest.name);
        let cached = self.reconciler.caches.revisions.get(&name);
        let object = match cached.as_ref().and_then(Cached::object) {
            Some(object) => Some(Arc::clone(object)),
            None => {
                let found = call(self.revisions().get_opt(&latest.name)).await;
                let found =
                    found.map_err(|error| Failure::new(conditions::REVISION, "FailedRevision", error.to_string()))?;
                found.map(Arc::new)
            }
        };
        object.map(|object| self.expand(object)).transpose().map_err(Stop::from)
    }

    fn expand(&self, object: Arc<ApplicationRevision>) -> Result<Revision, Failure> {
        let version = object.resource_version().unwrap_or_default();
        let known = self.memory.lock().revision.clone();
        let contents = match known.filter(|(known, _)| *known == version) {
            Some((_, contents)) => contents,
            None => {
                let contents = expand(&object.spec).map_err(|error| {
                    let message = format!("applicationrevision {}: {error}", object.name_any());
                    Failure::new(conditions::REVISION, "FailedRevision", message)
                })?;
                let contents = Arc::new(contents.into_owned());
                self.memory.lock().revision = Some((version, Arc::clone(&contents)));
                contents
            }
        };
        Ok(Revision { object, contents })
    }

    /// Parses the Application: from live definitions, or from the latest revision if that is the version it publishes.
    pub(super) fn parse(&self, latest: Option<&Revision>) -> Result<Parsed, Failure> {
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
                let definitions = Definitions::live(&self.reconciler.definitions, namespace, shared, auto_update);
                match (parse(&self.app, &definitions), latest) {
                    // What runs is kept, although a definition was deleted since.
                    (Err(_), Some(latest)) if self.is_revision_of_now(latest) => {
                        let name = latest.object.name_any();
                        parse(&self.app, &definitions.recorded_first(&name, &latest.contents))
                    }
                    (parsed, _) => parsed,
                }
            }
        };
        let parsed = parsed.map_err(|error| failed(error.to_string()))?;
        if options.is_strict {
            let violations = strict_violations(&parsed);
            if !violations.is_empty() {
                return Err(failed(violations.join("; ")));
            }
        }
        Ok(parsed)
    }

    /// Returns true if a revision records the Application as it is declared now.
    fn is_revision_of_now(&self, revision: &Revision) -> bool {
        let version = |annotations: &BTreeMap<String, String>| annotations.get(labels::PUBLISH_VERSION).cloned();
        revision.contents.application.spec == self.app.spec
            && version(revision.object.annotations()) == version(self.app.annotations())
    }

    /// Makes the revision of what is declared now current. Returns it with the Application as parsed from it.
    pub(super) async fn revise(&mut self, latest: Option<Revision>, parsed: Parsed) -> Result<(Current, Parsed), Stop> {
        if let Some(release) = latest
            .as_ref()
            .filter(|latest| is_release_of(&latest.object, &self.app))
        {
            self.set_true(conditions::REVISION, "Revisioned", "Revisioned successfully");
            let current = Current {
                app: recorded_application(&release.object, &release.contents),
                revision: release.clone(),
            };
            return Ok((current, parsed));
        }
        let contents = parsed.contents(&self.app);
        let revision = self.choose(latest, contents).await?;
        self.set_true(conditions::REVISION, "Revisioned", "Revisioned successfully");
        let name = revision.object.name_any();
        let options = &self.reconciler.options;
        let namespaces = (&self.name.namespace, &options.definition_namespace);
        let definitions = Definitions::live(&self.reconciler.definitions, namespaces.0, namespaces.1, false);
        let parsed = parse(&self.app, &definitions.recorded_first(&name, &revision.contents));
        let parsed = parsed.map_err(|error| Failure::new(conditions::PARSED, "FailedParse", error.to_string()))?;
        let current = Current {
            app: self.app.clone(),
            revision,
        };
        Ok((current, parsed))
    }

    async fn choose(&mut self, latest: Option<Revision>, contents: ApplicationRevisionSpec) -> Result<Revision, Stop> {
        let hash = hash(&contents);
        let hash = hash.map_err(|error| Failure::new(conditions::REVISION, "FailedRevision", error.to_string()))?;
        let decision = self.decide_revision(latest.as_ref(), &contents, &hash)?;
        let (name, number) = match (decision, latest) {
            (Decision::Unchanged, Some(latest)) => return self.refresh(latest, &contents).await,
            (Decision::Unchanged, None) => (names::revision_name(&self.name.name, 1), 1),
            (Decision::Restore { name, number } | Decision::Create { name, number }, _) => (name, number),
        };
        let name_in_namespace = NamespacedName::new(&self.name.namespace, &name);
        let cached = self.reconciler.caches.revisions.get(&name_in_namespace);
        let object = match cached.as_ref().and_then(Cached::object) {
            Some(existing) if self.owns(existing.owner_references()) => Arc::clone(existing),
            Some(_) => return Err(taken(&name).into()),
            None => self.create_revision(&name, &hash, contents).await?,
        };
        let revision = self.expand(object)?;
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

    fn decide_revision(
        &self,
        latest: Option<&Revision>,
        contents: &ApplicationRevisionSpec,
        hash: &str,
    ) -> Result<Decision, Failure> {
        let annotations = self.app.annotations();
        let candidate = Candidate {
            spec: contents,
            hash,
            publish_version: annotations.get(labels::PUBLISH_VERSION).map(String::as_str),
            auto_update: annotations.contains_key(labels::AUTO_UPDATE),
        };
        let status = self.status.latest_revision.as_ref();
        let only_latest: Vec<_> = latest.map(Recorded::from).into_iter().collect();
        let decision = decide(&self.name.name, status, candidate, &only_latest);
        if decision == Decision::Unchanged {
            return Ok(decision);
        }
        let others = self.reconciler.caches.revisions_of(self.name);
        let others = others
            .into_iter()
            .filter(|revision| latest.is_none_or(|latest| latest.object.name_any() != revision.name_any()));
        let mut revisions: Vec<Revision> = latest.cloned().into_iter().collect();
        for object in others {
            // One that can't be read is no candidate, and keeps its name.
            let contents = expand(&object.spec)
                .map(std::borrow::Cow::into_owned)
                .unwrap_or_default();
            revisions.push(Revision {
                object,
                contents: Arc::new(contents),
            });
        }
        let recorded: Vec<_> = revisions.iter().map(Recorded::from).collect();
        Ok(decide(&self.name.name, status, candidate, &recorded))
    }

    async fn create_revision(
        &self,
        name: &str,
        hash: &str,
        contents: ApplicationRevisionSpec,
    ) -> Result<Arc<ApplicationRevision>, Stop> {
        let failed =
            |message: String| Failure::new(conditions::REVISION, "FailedRevision", message).in_phase(phase::RENDERING);
        let spec = compress(contents, self.reconciler.options.revision_format);
        let revision = ApplicationRevision {
            metadata: metadata(&self.app, name, hash),
            spec: spec.map_err(|error| failed(error.to_string()))?,
            status: None,
        };
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let created = call(self.revisions().create(&parameters, &revision)).await;
        self.reconciler.metrics.count_write("create", "ApplicationRevision");
        match created {
            Ok(created) => {
                let created = Arc::new(created);
                self.reconciler.caches.assume_revision(&created);
                Ok(created)
            }
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
            Ok(written) => {
                let written = Arc::new(written);
                self.reconciler
                    .caches
                    .revisions
                    .assume(Cached::Object(Arc::clone(&written)));
                Ok(self.expand(written)?)
            }
            Err(error) if error.is_conflict() => Err(Stop::Stale),
            Err(error) => Err(failed(error.to_string()).into()),
        }
    }

    pub(super) fn revisions(&self) -> Api<ApplicationRevision> {
        Api::namespaced(self.reconciler.client.clone(), &self.name.namespace)
    }
}

fn taken(name: &str) -> Failure {
    let message = format!("applicationrevision {name} exists but controlled by another application");
    let failure = Failure::new(conditions::REVISION, "FailedRevision", message);
    failure.in_phase(phase::RENDERING)
}

impl<'r> From<&'r Revision> for Recorded<'r> {
    fn from(revision: &'r Revision) -> Self {
        Self {
            name: revision.object.metadata.name.as_deref().unwrap_or_default(),
            hash: revision
                .object
                .labels()
                .get(labels::APP_REVISION_HASH)
                .map_or("", String::as_str),
            publish_version: revision
                .object
                .annotations()
                .get(labels::PUBLISH_VERSION)
                .map(String::as_str),
            spec: &revision.contents,
        }
    }
}
