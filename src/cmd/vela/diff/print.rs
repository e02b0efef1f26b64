use std::collections::HashSet;

use serde_json::{Map, Value};

use super::outcome::{Cluster, Outcome};
use super::target::Target;
use crate::cmd::vela::manifests;
use crate::cmd::vela::render::plan::Planned;
use crate::cmd::vela::render::{RenderError, Renderer};
use crate::cmd::{Error, output};
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::parse::calls_functions;
use crate::controllers::oam::render::release::{ComponentObjects, ReleaseObject};
use crate::controllers::oam::trackers::ResourceKey;
use crate::text::sanitize;

/// The objects that were printed.
struct Seen {
    wanted: HashSet<ResourceKey>,
    lists_unchanged: bool,
    unlisted: usize,
}

impl Target {
    /// Returns the number of objects that are not listed because they do not change.
    pub async fn print(
        &self,
        cluster: &Cluster,
        renderer: &Renderer<'_>,
        lists_unchanged: bool,
    ) -> Result<usize, Error> {
        let mut seen = Seen {
            wanted: HashSet::new(),
            lists_unchanged,
            unlisted: 0,
        };
        self.print_batch(cluster, "the policies", renderer.policies().await?, &mut seen)
            .await?;
        let mut is_complete = true;
        for planned in &self.plan.components {
            if calls_functions(&planned.component) {
                print("unknown", &format!("changes: {planned} calls functions"))?;
                is_complete = false;
                continue;
            }
            let rendered = renderer.component(&planned.component, &planned.place).await?;
            let post = self.post_traits(cluster, renderer, planned, &rendered).await?;
            let objects = rendered.objects.into_iter().chain(post).collect();
            self.print_batch(cluster, &planned.to_string(), objects, &mut seen)
                .await?;
        }
        for note in self.plan.notes() {
            print("later", &note)?;
        }
        if is_complete {
            let removed = self.collected(cluster, &seen.wanted).await;
            output::print(&output::section("", removed))?;
        }
        Ok(seen.unlisted)
    }

    /// Renders the traits that wait until the component is healthy, if it is.
    async fn post_traits(
        &self,
        cluster: &Cluster,
        renderer: &Renderer<'_>,
        planned: &Planned,
        objects: &ComponentObjects,
    ) -> Result<Vec<ReleaseObject>, Error> {
        let component = &planned.component;
        if !renderer.has_post_traits(component) {
            return Ok(Vec::new());
        }
        if !self.healthy.contains(&planned.service_key(&self.name.namespace)) {
            print("later", &format!("{planned}: traits that wait until it is healthy"))?;
            return Ok(Vec::new());
        }
        let live = self.live_context(cluster, objects).await;
        match renderer.post_traits(component, objects, &live).await {
            Ok(post) => Ok(post),
            Err(RenderError::Failed(error)) => Err(error),
            Err(RenderError::Invalid(message)) => {
                print("blocked", &message)?;
                Ok(Vec::new())
            }
        }
    }

    /// Returns the live objects of a component, as `output` and `outputs` of the context.
    async fn live_context(&self, cluster: &Cluster, objects: &ComponentObjects) -> Map<String, Value> {
        let mut context = Map::new();
        let mut outputs = Map::new();
        if let Some(live) = self.live(cluster, &objects.workload).await {
            context.insert("output".to_owned(), live);
        }
        for object in objects.objects.iter().filter(|object| !object.key.is_empty()) {
            if let Some(live) = self.live(cluster, &object.manifest).await {
                outputs.insert(object.key.clone(), live);
            }
        }
        if !outputs.is_empty() {
            context.insert("outputs".to_owned(), outputs.into());
        }
        context
    }

    /// Returns the live object of a manifest, if it is recorded.
    async fn live(&self, cluster: &Cluster, manifest: &Value) -> Option<Value> {
        let mut id = ObjectId::of(manifest);
        if cluster.objects.is_namespaced(&id).await == Ok(false) {
            id.namespace.clear();
        }
        let mut entries = self.inventory.in_order().flat_map(|tracker| &tracker.entries);
        if !entries.any(|entry| ObjectId::of_entry(entry) == id) {
            return None;
        }
        cluster.objects.read(&id).await.ok().flatten()
    }

    async fn print_batch(
        &self,
        cluster: &Cluster,
        batch: &str,
        objects: Vec<ReleaseObject>,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let (count, mut blocked) = (objects.len(), 0);
        for object in objects {
            let mut manifest = object.manifest;
            let mut id = ObjectId::of(&manifest);
            let outcome = match cluster.objects.is_namespaced(&id).await {
                // The Application may create the kind itself, or else fails when it is applied.
                Err(error) => Outcome::Blocked(error.to_string()),
                Ok(is_namespaced) => {
                    if !is_namespaced && let Some(metadata) = manifest["metadata"].as_object_mut() {
                        metadata.remove("namespace");
                        id.namespace.clear();
                    }
                    let outcome = self.outcome(cluster, &id, &manifest).await;
                    outcome.unwrap_or_else(Outcome::Blocked)
                }
            };
            blocked += usize::from(matches!(outcome, Outcome::Blocked(_)));
            seen.wanted.insert(id.key());
            if !seen.lists_unchanged && matches!(outcome, Outcome::Unchanged | Outcome::ReadOnly) {
                seen.unlisted += 1;
                continue;
            }
            output::print(&outcome.text(&manifests::display(&manifest)))?;
        }
        if blocked > 0 && blocked < count {
            print("blocked", &format!("{batch}: none of its objects is applied"))?;
        }
        Ok(())
    }
}

/// Prints a line about an Application.
pub fn print(word: &str, text: &str) -> Result<(), Error> {
    output::print(&(sanitize(&format!("{word:<9} {text}")) + "\n"))
}
