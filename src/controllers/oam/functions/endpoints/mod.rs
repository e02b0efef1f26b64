//! `query.#CollectServiceEndpoints`: the addresses of the objects of an Application.
//!
//! ```text
//!  entries of trackers ─► EndpointSource::of ─► live objects ─► of_service, of_ingress, of_route ─► list of $returns
//!                            └► releases of Flux: children by label ──┘
//! ```
//!
//! The caller reads the objects, with the rights of the Application.

mod addresses;
mod routes;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::params::{decode, object_name};
use crate::api::NamespacedName;
use crate::api::oam::ManagedResource;
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::trackers::{LOCAL, is_local};
pub use addresses::{node_address, of_ingress, of_service};
pub use routes::{GatewayListener, gateway_of, listener, of_route};

/// Endpoints that a call returns. With one more, it fails: lists are built up to that one.
pub const MAX_ENDPOINTS: usize = 1_000;

/// Kinds whose objects have addresses, with a version for lists.
const KINDS: [(&str, &str, EndpointSource); 3] = [
    ("v1", "Service", EndpointSource::Service),
    ("networking.k8s.io/v1", "Ingress", EndpointSource::Ingress),
    ("gateway.networking.k8s.io/v1", "HTTPRoute", EndpointSource::Route),
];

/// An object that has addresses, or whose children have some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointSource {
    Service,
    Ingress,
    Route,
    HelmRelease,
    Kustomization,
}

impl EndpointSource {
    #[must_use]
    pub fn of(id: &ObjectId) -> Option<Self> {
        let kind = id.group_kind();
        match (&*kind.group, &*kind.kind) {
            ("", "Service") => Some(Self::Service),
            ("networking.k8s.io", "Ingress") => Some(Self::Ingress),
            ("gateway.networking.k8s.io", "HTTPRoute") => Some(Self::Route),
            ("helm.toolkit.fluxcd.io", "HelmRelease") => Some(Self::HelmRelease),
            ("kustomize.toolkit.fluxcd.io", "Kustomization") => Some(Self::Kustomization),
            _ => None,
        }
    }

    /// Returns the group whose labels the children of an object have. `None` for an object with addresses of its own.
    const fn group_of_children(self) -> Option<&'static str> {
        match self {
            Self::HelmRelease => Some("helm.toolkit.fluxcd.io"),
            Self::Kustomization => Some("kustomize.toolkit.fluxcd.io"),
            Self::Service | Self::Ingress | Self::Route => None,
        }
    }
}

/// The cluster and component of an object, as its endpoints name them.
#[derive(Clone, Copy, Debug)]
pub struct EndpointOrigin<'a> {
    pub cluster: &'a str,
    pub component: &'a str,
}

/// Lists for the children of a release of Flux.
#[derive(Debug, PartialEq, Eq)]
pub struct Children {
    /// Without names.
    pub kinds: Vec<(ObjectId, EndpointSource)>,
    pub selector: String,
}

/// Returns where the children of a live object of a cluster are. `None` for an object with addresses of its own.
#[must_use]
pub fn children(source: EndpointSource, live: &Value, cluster: &str) -> Option<Children> {
    let group = source.group_of_children()?;
    let ObjectId { namespace, name, .. } = ObjectId::of(live);
    let target = live["spec"]["targetNamespace"].as_str().unwrap_or_default();
    let target = match source {
        EndpointSource::HelmRelease if target.is_empty() => namespace.as_str(),
        // Its objects name their namespaces.
        _ => target,
    };
    let kinds = KINDS.map(|(version, kind, source)| {
        let id = ObjectId {
            cluster: LOCAL.to_owned(),
            api_version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: target.to_owned(),
            name: String::new(),
        };
        (id.in_cluster(cluster), source)
    });
    Some(Children {
        kinds: kinds.into(),
        selector: format!("{group}/name={name},{group}/namespace={namespace}"),
    })
}

/// Returns the ids of the objects that a live Kustomization has applied.
#[must_use]
pub fn inventory(live: &Value) -> HashSet<&str> {
    let entries = items(&live["status"]["inventory"]["entries"]);
    entries.map(|entry| text(&entry["id"])).collect()
}

/// Returns the id of an object as Flux writes it to an [`inventory`].
#[must_use]
pub fn inventory_id(object: &Value) -> String {
    let id = ObjectId::of(object);
    let kind = id.group_kind();
    format!("{}_{}_{}_{}", id.namespace, id.name, kind.group, kind.kind)
}

/// The objects that a call asks for.
#[derive(Debug, PartialEq, Eq)]
pub struct EndpointQuery {
    pub application: NamespacedName,
    components: Vec<String>,
    cluster: String,
    namespace: String,
}

#[derive(Deserialize)]
struct Params {
    app: Option<AppParams>,
}

#[derive(Deserialize)]
struct AppParams {
    name: Option<String>,
    namespace: Option<String>,
    filter: Option<EndpointFilter>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointFilter {
    cluster: Option<String>,
    cluster_namespace: Option<String>,
    components: Option<Vec<String>>,
}

impl EndpointQuery {
    /// Decodes the parameters.
    ///
    /// # Errors
    /// The parameters are not valid.
    pub fn parse(params: &Value) -> Result<Self, String> {
        let Params { app } = decode(params)?;
        let AppParams {
            name,
            namespace,
            filter,
        } = app.ok_or("$params.app is required")?;
        let filter = filter.unwrap_or_default();
        Ok(Self {
            application: NamespacedName {
                name: object_name(name, "app.name")?,
                namespace: object_name(namespace, "app.namespace")?,
            },
            components: filter.components.unwrap_or_default(),
            cluster: filter.cluster.unwrap_or_default(),
            namespace: filter.cluster_namespace.unwrap_or_default(),
        })
    }

    #[must_use]
    pub fn selects(&self, entry: &ManagedResource) -> bool {
        let is_in_cluster = match self.cluster.as_str() {
            "" => true,
            cluster => cluster == entry.cluster || (is_local(cluster) && is_local(&entry.cluster)),
        };
        let is_in_namespace = self.namespace.is_empty() || self.namespace == entry.namespace;
        let is_of_component = self.components.is_empty() || self.components.contains(&entry.component);
        !entry.deleted && is_in_cluster && is_in_namespace && is_of_component
    }
}

/// An address of an object.
#[derive(Debug, Default)]
struct Endpoint<'a> {
    protocol: &'a str,
    app_protocol: &'a str,
    host: &'a str,
    port: u64,
    port_name: &'a str,
    path: &'a str,
    /// Reached only from within the cluster.
    is_inner: bool,
}

impl Endpoint<'_> {
    /// Returns the endpoint as KubeVela lists it.
    fn of(&self, live: &Value, origin: EndpointOrigin<'_>) -> Value {
        let mut endpoint = json!({
            "protocol": self.protocol, "appProtocol": self.app_protocol, "host": self.host, "port": self.port,
            "portName": self.port_name,
        });
        if !self.path.is_empty() {
            endpoint["path"] = self.path.into();
        }
        if self.is_inner {
            endpoint["inner"] = true.into();
        }
        let metadata = &live["metadata"];
        json!({
            "endpoint": endpoint,
            "ref": {
                "kind": live["kind"], "apiVersion": live["apiVersion"], "namespace": metadata["namespace"],
                "name": metadata["name"], "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            },
            "cluster": origin.cluster,
            "component": origin.component,
        })
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
