use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::functions::StepFunctions;
use crate::api::NamespacedName;
use crate::api::oam::ManagedResource;
use crate::controllers::oam::PASS_COPIES;
use crate::controllers::oam::functions::endpoints::{
    Children, EndpointOrigin, EndpointQuery, EndpointSource, GatewayListener, MAX_ENDPOINTS, children, gateway_of,
    inventory, inventory_id, listener, node_address, of_ingress, of_route, of_service,
};
use crate::controllers::oam::objects::{ObjectError, ObjectId};
use crate::controllers::oam::reconciler::cluster::Cluster;
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::reconciler::observed::read::trackers_of;
use crate::controllers::oam::steps::Answer;
use crate::controllers::oam::trackers::{LOCAL, Tracker};
use crate::runtime::watch::Cached;

/// Objects and lists that one call reads.
const MAX_READS: usize = 200;

/// An object of an Application that may have addresses, with its component.
type Selected = (ObjectId, EndpointSource, String);

impl StepFunctions<'_, '_, '_> {
    /// Does a call of `query.#CollectServiceEndpoints`.
    pub(super) async fn collect_endpoints(&mut self, params: &Value) -> Result<Answer, Stop> {
        let query = match EndpointQuery::parse(params) {
            Ok(query) => query,
            Err(message) => return Ok(Answer::failed(message)),
        };
        let selected = match self.select(&query).await? {
            Ok(selected) => selected,
            Err(message) => return Ok(Answer::failed(message)),
        };
        // Another Application may be in other clusters.
        let clusters = selected.iter().map(|(id, _, _)| id.cluster.as_str());
        self.rollout.env().use_clusters(clusters).await?;
        let mut reader = EndpointReader {
            cluster: &self.rollout.objects.cluster,
            reads: 0,
            nodes: BTreeMap::new(),
            warning: None,
        };
        let collected = reader.collect(&selected).await;
        if let Some(warning) = reader.warning {
            let note = format!("step {}: {warning}", self.step_name);
            self.rollout.outcome.warn("FailedWorkflow", note);
        }
        Ok(collected.map(|list| json!({ "list": list })).into())
    }

    /// Returns the objects that trackers record, the oldest first as in KubeVela.
    async fn select(&self, query: &EndpointQuery) -> Result<Result<Vec<Selected>, String>, Stop> {
        let env = self.rollout.env();
        if query.application == *env.name {
            let inventory = &self.rollout.objects.ledger.inventory;
            let trackers = inventory
                .history
                .iter()
                .chain(&inventory.root)
                .chain(&inventory.current);
            return Ok(Ok(selected(query, trackers.flat_map(|tracker| &tracker.entries))));
        }
        let trackers = self.trackers_of_other(&query.application).await?;
        Ok(trackers.map(|trackers| selected(query, trackers.iter().flat_map(|tracker| &tracker.entries))))
    }

    /// Returns the trackers of an Application that this one may read. Each of their objects needs rights of its own.
    async fn trackers_of_other(&self, application: &NamespacedName) -> Result<Result<Vec<Tracker>, String>, Stop> {
        let (env, cluster) = (self.rollout.env(), &self.rollout.objects.cluster);
        let id = ObjectId {
            cluster: LOCAL.to_owned(),
            api_version: "core.oam.dev/v1beta1".to_owned(),
            kind: "Application".to_owned(),
            namespace: application.namespace.clone(),
            name: application.name.clone(),
        };
        if let Err(message) = cluster.check_read(&id).await {
            return Ok(Err(message));
        }
        match cluster.objects.read(&id).await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Err(format!("application {application} not found"))),
            Err(error) => return Ok(Err(format!("failed to read application {application}: {error}"))),
        }
        let cached = env.reconciler.caches.trackers_of(application);
        let bytes = cached
            .iter()
            .filter_map(Cached::object)
            .map(|tracker| tracker.decoded_bytes());
        env.hold(env.memory_for_revision(PASS_COPIES * bytes.sum::<u64>())?);
        let trackers = Stop::split(trackers_of(env, application).await)?;
        Ok(trackers.map_err(|failure| failure.message))
    }
}

fn selected<'e>(query: &EndpointQuery, entries: impl Iterator<Item = &'e ManagedResource>) -> Vec<Selected> {
    let mut seen = HashSet::new();
    let entries = entries.filter(|entry| query.selects(entry));
    let selected = entries.filter_map(|entry| {
        let id = ObjectId::of_entry(entry);
        let source = EndpointSource::of(&id)?;
        let is_new = seen.insert(id.clone());
        is_new.then(|| (id, source, entry.component.clone()))
    });
    selected.collect()
}

/// Reads objects with the rights of the Application, within a limit.
struct EndpointReader<'c, 'p> {
    cluster: &'c Cluster<'p>,
    reads: usize,
    /// The address of a node, by the cluster where it was looked for.
    nodes: BTreeMap<String, String>,
    /// The first reason why endpoints lack something.
    warning: Option<String>,
}

impl EndpointReader<'_, '_> {
    async fn collect(&mut self, selected: &[Selected]) -> Result<Vec<Value>, String> {
        let mut endpoints = Vec::new();
        for (id, source, component) in selected {
            let origin = EndpointOrigin {
                cluster: &id.cluster,
                component,
            };
            endpoints.extend(self.of_object(id, *source, origin).await?);
            check_count(&endpoints)?;
        }
        Ok(endpoints)
    }

    async fn of_object(
        &mut self,
        id: &ObjectId,
        source: EndpointSource,
        origin: EndpointOrigin<'_>,
    ) -> Result<Vec<Value>, String> {
        let Some(live) = self.read(id).await? else {
            return Ok(Vec::new());
        };
        let Some(Children { kinds, selector }) = children(source, &live, origin.cluster) else {
            return Ok(self.of_live(&live, source, origin).await);
        };
        // Each tenant can set the labels of an object.
        let applied = (source == EndpointSource::Kustomization).then(|| inventory(&live));
        let mut endpoints = Vec::new();
        for (kind, source) in &kinds {
            let mut listed = self.list(kind, &selector).await?;
            if let Some(applied) = &applied {
                listed.retain(|object| applied.contains(inventory_id(object).as_str()));
            }
            for live in listed {
                endpoints.extend(self.of_live(&live, *source, origin).await);
                check_count(&endpoints)?;
            }
        }
        Ok(endpoints)
    }

    async fn of_live(&mut self, live: &Value, source: EndpointSource, origin: EndpointOrigin<'_>) -> Vec<Value> {
        match source {
            EndpointSource::Ingress => of_ingress(live, origin),
            EndpointSource::Route => of_route(live, origin, self.listener(live, origin.cluster).await),
            EndpointSource::Service if live["spec"]["type"] == "NodePort" => {
                of_service(live, origin, &self.node(origin.cluster).await)
            }
            EndpointSource::Service => of_service(live, origin, ""),
            EndpointSource::HelmRelease | EndpointSource::Kustomization => Vec::new(),
        }
    }

    /// Returns the listener of the Gateway of a route, or else the default one, as KubeVela does.
    async fn listener(&mut self, route: &Value, cluster: &str) -> GatewayListener {
        let Some((id, name)) = gateway_of(route, cluster) else {
            return GatewayListener::default();
        };
        let gateway = match self.read(&id).await {
            Ok(gateway) => gateway,
            Err(message) => {
                self.warn(format!("ports of routes are not known: {message}"));
                None
            }
        };
        let found = gateway.and_then(|gateway| listener(&gateway, name));
        found.unwrap_or_default()
    }

    async fn node(&mut self, cluster: &str) -> String {
        if let Some(node) = self.nodes.get(cluster) {
            return node.clone();
        }
        let nodes = ObjectId {
            cluster: cluster.to_owned(),
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            namespace: String::new(),
            name: String::new(),
        };
        let node = match self.list(&nodes, "").await {
            Ok(nodes) => node_address(&nodes).to_owned(),
            Err(message) => {
                self.warn(format!("ports of nodes have no host: {message}"));
                String::new()
            }
        };
        self.nodes.insert(cluster.to_owned(), node.clone());
        node
    }

    fn warn(&mut self, warning: String) {
        self.warning.get_or_insert(warning);
    }

    async fn read(&mut self, id: &ObjectId) -> Result<Option<Value>, String> {
        self.count()?;
        self.cluster.check_read(id).await?;
        match self.cluster.objects.get(id).await {
            Ok(live) => Ok(live),
            Err(ObjectError::NotInstalled { .. }) => Ok(None),
            Err(error) => Err(format!("failed to read {} {}: {error}", id.kind, id.name)),
        }
    }

    async fn list(&mut self, id: &ObjectId, selector: &str) -> Result<Vec<Value>, String> {
        self.count()?;
        self.cluster.check_read(id).await?;
        match self.cluster.objects.list(id, selector).await {
            Ok(objects) => Ok(objects),
            Err(ObjectError::NotInstalled { .. }) => Ok(Vec::new()),
            Err(error) => Err(format!("failed to list {}: {error}", id.kind)),
        }
    }

    fn count(&mut self) -> Result<(), String> {
        self.reads += 1;
        if self.reads > MAX_READS {
            return Err(format!(
                "endpoints need more than {MAX_READS} reads; name fewer components"
            ));
        }
        Ok(())
    }
}

fn check_count(endpoints: &[Value]) -> Result<(), String> {
    if endpoints.len() > MAX_ENDPOINTS {
        return Err(format!(
            "there are more than {MAX_ENDPOINTS} endpoints; name fewer components"
        ));
    }
    Ok(())
}
