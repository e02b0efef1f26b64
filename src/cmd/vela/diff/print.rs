use std::collections::HashSet;

use serde_json::{Map, Value};

use super::clusters::{ComparedCluster, ComparedClusters};
use super::outcome::DiffOutcome;
use super::target::DiffTarget;
use crate::cmd::vela::joined::suffix;
use crate::cmd::vela::manifests;
use crate::cmd::vela::render::plan::PlannedComponent;
use crate::cmd::vela::render::{RenderFailure, Renderer};
use crate::cmd::{Error, output};
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::parse::calls_functions;
use crate::controllers::oam::render::release::{ComponentObjects, ReleaseObject};
use crate::controllers::oam::trackers::{LOCAL, ResourceKey};
use crate::cue::Evaluator;
use crate::text::sanitize;

/// The objects that were printed.
struct Seen {
    wanted: HashSet<ResourceKey>,
    lists_unchanged: bool,
    unlisted: usize,
}

impl DiffTarget {
    /// Returns the number of objects that are not listed because they do not change.
    pub async fn print(
        &self,
        clusters: &ComparedClusters,
        evaluator: &Evaluator,
        lists_unchanged: bool,
    ) -> Result<usize, Error> {
        let mut seen = Seen {
            wanted: HashSet::new(),
            lists_unchanged,
            unlisted: 0,
        };
        let own = clusters.of(LOCAL).await.map_err(Error::Failed)?;
        let policies = self.renderer(evaluator, &own).policies().await?;
        let policies = policies.into_iter().map(|object| (LOCAL, object)).collect();
        self.print_batch(clusters, "the policies", policies, &mut seen).await?;
        let mut is_complete = true;
        for planned in &self.plan.components {
            is_complete &= self.print_component(clusters, evaluator, planned, &mut seen).await?;
        }
        for note in self.plan.notes() {
            print("later", &note)?;
        }
        if is_complete {
            let removed = self.collected(clusters, &seen.wanted).await;
            output::print(&output::section("", removed))?;
        }
        Ok(seen.unlisted)
    }

    /// Returns a renderer of objects in a cluster.
    fn renderer<'a>(&'a self, evaluator: &'a Evaluator, cluster: &ComparedCluster) -> Renderer<'a> {
        let revision = self.revision.clone();
        Renderer::new(evaluator, &cluster.version, &self.application, revision, &self.parsed)
    }

    /// Returns false if the objects of the component are not known.
    async fn print_component(
        &self,
        clusters: &ComparedClusters,
        evaluator: &Evaluator,
        planned: &PlannedComponent,
        seen: &mut Seen,
    ) -> Result<bool, Error> {
        if calls_functions(&planned.component) {
            print("unknown", &format!("changes: {planned} calls functions"))?;
            return Ok(false);
        }
        // Templates see the version of the cluster.
        let cluster = match clusters.of(&planned.place.cluster).await {
            Ok(cluster) => cluster,
            Err(problem) => {
                print("unknown", &format!("changes: {planned}: {problem}"))?;
                return Ok(false);
            }
        };
        let renderer = self.renderer(evaluator, &cluster);
        let rendered = renderer.component(&planned.component, &planned.place).await?;
        let post = self.post_traits(clusters, &renderer, planned, &rendered).await?;
        let objects = rendered.objects.into_iter().chain(post);
        let objects = objects.map(|object| (object.cluster(&planned.place), object)).collect();
        self.print_batch(clusters, &planned.to_string(), objects, seen).await?;
        Ok(true)
    }

    /// Renders the traits that wait until the component is healthy, if it is.
    async fn post_traits(
        &self,
        clusters: &ComparedClusters,
        renderer: &Renderer<'_>,
        planned: &PlannedComponent,
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
        let live = self.live_context(clusters, planned, objects).await;
        match renderer.post_traits(component, objects, &live).await {
            Ok(post) => Ok(post),
            Err(RenderFailure::Failed(error)) => Err(error),
            Err(RenderFailure::Invalid(message)) => {
                print("blocked", &message)?;
                Ok(Vec::new())
            }
        }
    }

    /// Returns the live objects of a component, as `output` and `outputs` of the context.
    async fn live_context(
        &self,
        clusters: &ComparedClusters,
        planned: &PlannedComponent,
        objects: &ComponentObjects,
    ) -> Map<String, Value> {
        let mut context = Map::new();
        let mut outputs = Map::new();
        if let Some(live) = self.live(clusters, &planned.place.cluster, &objects.workload).await {
            context.insert("output".to_owned(), live);
        }
        for object in objects.objects.iter().filter(|object| !object.key.is_empty()) {
            let cluster = object.cluster(&planned.place);
            if let Some(live) = self.live(clusters, cluster, &object.manifest).await {
                outputs.insert(object.key.clone(), live);
            }
        }
        if !outputs.is_empty() {
            context.insert("outputs".to_owned(), outputs.into());
        }
        context
    }

    /// Returns the live object of a manifest, if it is recorded.
    async fn live(&self, clusters: &ComparedClusters, cluster: &str, manifest: &Value) -> Option<Value> {
        let mut id = ObjectId::of(manifest).in_cluster(cluster);
        let cluster = clusters.of(cluster).await.ok()?;
        if cluster.objects.is_namespaced(&id).await == Ok(false) {
            id.namespace.clear();
        }
        let mut entries = self.inventory.in_order().flat_map(|tracker| &tracker.entries);
        if !entries.any(|entry| id.is_of(entry)) {
            return None;
        }
        cluster.objects.read(&id).await.ok().flatten()
    }

    /// Prints objects with their clusters.
    async fn print_batch(
        &self,
        clusters: &ComparedClusters,
        batch: &str,
        objects: Vec<(&str, ReleaseObject)>,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let (count, mut blocked) = (objects.len(), 0);
        for (place, object) in objects {
            let mut manifest = object.manifest;
            let mut id = ObjectId::of(&manifest).in_cluster(place);
            let outcome = self.outcome_in(clusters, &mut id, &mut manifest).await;
            let outcome = outcome.unwrap_or_else(DiffOutcome::Blocked);
            blocked += usize::from(matches!(outcome, DiffOutcome::Blocked(_)));
            seen.wanted.insert(id.key());
            if !seen.lists_unchanged && matches!(outcome, DiffOutcome::Unchanged | DiffOutcome::ReadOnly) {
                seen.unlisted += 1;
                continue;
            }
            let display = manifests::display(&manifest) + &suffix(place);
            output::print(&outcome.text(&display))?;
        }
        if blocked > 0 && blocked < count {
            print("blocked", &format!("{batch}: none of its objects is applied"))?;
        }
        Ok(())
    }

    /// Decides about an object in its cluster. Removes the namespace of one that has none.
    async fn outcome_in(
        &self,
        clusters: &ComparedClusters,
        id: &mut ObjectId,
        manifest: &mut Value,
    ) -> Result<DiffOutcome, String> {
        let cluster = clusters.of(&id.cluster).await?;
        // The Application may create the kind itself, or else fails when it is applied.
        let is_namespaced = cluster.objects.is_namespaced(id).await;
        let is_namespaced = is_namespaced.map_err(|error| error.to_string())?;
        if !is_namespaced && let Some(metadata) = manifest["metadata"].as_object_mut() {
            metadata.remove("namespace");
            id.namespace.clear();
        }
        self.outcome(&cluster, id, manifest).await
    }
}

/// Prints a line about an Application.
pub fn print(word: &str, text: &str) -> Result<(), Error> {
    output::print(&(sanitize(&format!("{word:<9} {text}")) + "\n"))
}
