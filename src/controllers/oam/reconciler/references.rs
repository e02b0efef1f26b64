//! Existing objects that components refer to.
//!
//! A revision records them. They are read for a new revision and at a restart of the workflow; a published version stays as
//! it is.

use std::collections::BTreeMap;

use kube::ResourceExt;
use serde_json::Value;

use super::conditions::{self, Failure, phase};
use super::pass::{Pass, Stop};
use super::revision::Revision;
use crate::api::oam::{Component, labels};
use crate::controllers::oam::objects::{ObjectError, ObjectId};
use crate::controllers::oam::parse::Parsed;
use crate::controllers::oam::references::{
    FetchObjects, ObjectKind, ObjectRequest, ObjectSelector, ReferenceError, References, Scope, complete, redacted,
};
use crate::controllers::oam::revisions::{Candidate, is_release_of, is_unchanged};
use crate::runtime::manifests::document;

/// Maximum number of values of a manifest at a URL, and bytes of its text, with aliases expanded.
const MAX_VALUES: usize = 100_000;
const MAX_TEXT: usize = 2 << 20;

impl Pass<'_> {
    /// Adds the objects that components refer to, for the revision. Returns the components with these objects as their
    /// properties, or `None` if no component refers to any.
    pub(super) async fn resolve_references(
        &self,
        latest: Option<&Revision>,
        parsed: &mut Parsed,
    ) -> Result<Option<Vec<Component>>, Stop> {
        let failed = |error: ReferenceError| {
            let message = format!("failed to parseReferredObjects: {error}");
            Failure::new(conditions::PARSED, "FailedParse", message).in_phase(phase::RENDERING)
        };
        let references = self.references(&parsed.spec.components).await.map_err(failed)?;
        if references.is_empty() {
            return Ok(None);
        }
        // What a published version has recorded needs no request.
        let is_published = latest.is_some_and(|latest| is_release_of(&latest.object, &self.app));
        if references.has_urls() && !is_published && !self.reconciler.options.allows_urls {
            return Err(failed(ReferenceError::UrlsDisabled).into());
        }
        let objects = match latest.filter(|latest| self.keeps_objects(latest, parsed)) {
            Some(latest) => complete(&latest.contents.referred_objects, &Fetch(self)).await,
            None => references.fetch(&Fetch(self)).await,
        };
        let objects = objects.map_err(failed)?;
        let resolved = references.resolve(&parsed.spec.components, &objects);
        parsed.referred_objects = match self.reconciler.options.redacts_secrets {
            true => redacted(objects),
            false => objects,
        };
        Ok(Some(resolved.map_err(failed)?))
    }

    async fn references(&self, components: &[Component]) -> Result<References, ReferenceError> {
        let options = &self.reconciler.options;
        let scope = match options.admission.allow_cross_namespace {
            true => options.reference_scope,
            // An Application that may not write to other namespaces must not read there either.
            false => Scope::Namespace,
        };
        let mut kinds = BTreeMap::new();
        for (group, resource) in References::resources(components) {
            let kind = self.objects.kind_of(&group, &resource).await;
            let kind = kind.map_err(|error| ReferenceError::Fetch {
                object: resource.clone(),
                cause: error.to_string(),
            })?;
            if let Some((api_version, kind)) = kind {
                kinds.insert((group, resource), ObjectKind { api_version, kind });
            }
        }
        let kind_of = |group: &str, resource: &str| kinds.get(&(group.to_owned(), resource.to_owned())).cloned();
        References::parse(components, &self.name.namespace, scope, kind_of)
    }

    /// Returns true if the latest revision stays, with the objects that it records.
    fn keeps_objects(&self, latest: &Revision, parsed: &Parsed) -> bool {
        if is_release_of(&latest.object, &self.app) {
            return true;
        }
        let annotations = self.app.annotations();
        if annotations.contains_key(labels::AUTO_UPDATE) || self.is_restart_due() {
            return false;
        }
        let candidate = Candidate {
            spec: &parsed.contents(&self.app),
            hash: "",
            publish_version: annotations.get(labels::PUBLISH_VERSION).map(String::as_str),
            auto_update: false,
        };
        is_unchanged(&latest.recorded(), &candidate)
    }

    /// Returns true if the trackers of this version record an object with this manifest.
    pub(super) async fn records_manifest(&self, manifest: &Value) -> bool {
        let (id, mut manifest) = (self.id_of(manifest).await, manifest.clone());
        if id.namespace.is_empty()
            && let Some(metadata) = manifest.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("namespace");
        }
        let trackers = self.inventory.current.iter().chain(&self.inventory.root);
        let mut entries = trackers.flat_map(|tracker| &tracker.entries);
        let entry = entries.find(|entry| !entry.deleted && id.is_of(entry));
        entry.is_some_and(|entry| match &entry.raw {
            Some(raw) => raw.parse().is_ok_and(|recorded: Value| recorded == manifest),
            // Applied once.
            None => true,
        })
    }
}

impl Parsed {
    /// Replaces components by those with the same name.
    pub(super) fn replace_components(&mut self, components: Vec<Component>) {
        for parsed in &mut self.components {
            let replaced = components.iter().find(|one| one.name == parsed.component.name);
            if let Some(component) = replaced {
                parsed.component = component.clone();
            }
        }
        self.spec.components = components;
    }
}

/// Reads objects with the rights of the Application.
struct Fetch<'x, 'a>(&'x Pass<'a>);

impl FetchObjects for Fetch<'_, '_> {
    async fn fetch(&self, request: &ObjectRequest) -> Result<Vec<Value>, String> {
        let mut id = ObjectId {
            api_version: request.kind.api_version.clone(),
            kind: request.kind.kind.clone(),
            namespace: request.namespace.clone(),
            name: String::new(),
        };
        let text = |error: ObjectError| error.to_string();
        let objects = &self.0.objects;
        if !objects.is_namespaced(&id).await.map_err(text)? {
            id.namespace.clear();
        }
        self.0.check_read(&id).await?;
        match &request.selector {
            ObjectSelector::Name(name) => {
                id.name.clone_from(name);
                let found = objects.read(&id).await.map_err(text)?;
                found.iter().try_for_each(|live| self.0.check_record(live))?;
                Ok(found.into_iter().collect())
            }
            ObjectSelector::Labels(labels) => {
                let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let listed = objects.list(&id, &labels.join(",")).await.map_err(text)?;
                Ok(self.0.without_records(listed))
            }
        }
    }

    async fn load(&self, url: &str) -> Result<Vec<Value>, String> {
        let requests = &self.0.reconciler.step_requests;
        let content = requests.download(&self.0.name.namespace, url).await?;
        let documents = document::parse_yaml(&content, MAX_VALUES, MAX_TEXT)?;
        Ok(documents.into_iter().flat_map(document::objects).collect())
    }
}
