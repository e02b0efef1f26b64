//! Garbage collection of Applications' objects in a real API server.

mod interrupted;
mod marking;
mod order;
mod ownership;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use portolan::api::NamespacedName;
use portolan::api::oam::{ManagedResource, RawManifest, ResourceTracker, crds};
use portolan::budget::Budget;
use portolan::controllers::oam::clusters::{ClusterSettings, JoinedClusters};
use portolan::controllers::oam::collect::{CollectError, CollectProgress, Collector, Mark, Subject};
use portolan::controllers::oam::objects::{ClusterKinds, ClusterObjects, JoinedSettings, Objects};
use portolan::controllers::oam::policies::{GarbageCollect, SelectedResources};
use portolan::controllers::oam::trackers::{self, AppIdentity, Inventory, ResourceKey, Tracker, TrackerType, encode};
use portolan::http::{Fetcher, Settings};
use portolan::runtime::kube_client::metrics::RequestMetrics;
use portolan::runtime::watch::GroupKind;
use serde_json::{Value, json};

use crate::support::control_plane::{ADMIN_TOKEN, control_plane};
use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiRequest, FaultProxy};

/// The policies of an Application.
#[derive(Default)]
struct Policies {
    garbage_collect: GarbageCollect,
    read_only: SelectedResources,
    orphans_all: bool,
    dependents: BTreeMap<String, BTreeSet<String>>,
}

impl Policies {
    fn garbage_collect(policy: Value) -> Self {
        Self {
            garbage_collect: serde_json::from_value(policy).unwrap(),
            ..Self::default()
        }
    }

    fn depending(dependents: &[(&str, &str)]) -> Self {
        let mut policies = Self::default();
        for (component, dependent) in dependents {
            let dependents = policies.dependents.entry((*component).to_owned()).or_default();
            dependents.insert((*dependent).to_owned());
        }
        policies
    }
}

/// The Application `shop` of generation 3 in a namespace of its own, and a collector behind a proxy.
struct Scene {
    app: AppIdentity,
    client: Client,
    proxy: FaultProxy,
    collector: Collector,
}

impl Scene {
    async fn new() -> Self {
        let control_plane = control_plane().await;
        for crd in crds() {
            if ["resourcetrackers", "applicationrevisions"].contains(&crd.spec.names.plural.as_str()) {
                control_plane.install_crd(&crd).await;
            }
        }
        let app = AppIdentity {
            name: NamespacedName {
                namespace: control_plane.namespace().await,
                name: "shop".to_owned(),
            },
            uid: "8a6ed76e-0001".to_owned(),
            generation: 3,
            publish_version: None,
        };
        let proxy = FaultProxy::in_front_of(control_plane).await;
        let kubeconfig = Kubeconfig::read_from(control_plane.kubeconfig_for(&proxy.url(), ADMIN_TOKEN)).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.unwrap();
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        let resync = Duration::from_secs(300);
        let clusters = JoinedClusters::new(ClusterSettings {
            client: client.clone(),
            gateway: client.clone(),
            namespace: app.name.namespace.clone(),
            fetcher: Fetcher::new(Settings::default()).unwrap(),
            allow_insecure: false,
            requests: RequestMetrics::default(),
            write_fence: None,
        });
        tokio::spawn(clusters.clone().run());
        let joined = JoinedSettings {
            clusters,
            resync,
            relist: None,
            budget: Budget::new("test", 1 << 20),
            changed: Arc::new(|_| {}),
        };
        let objects = Objects::new(ClusterObjects::new(client.clone(), resync, |_| {}), joined);
        tokio::spawn(objects.clone().run());
        let kinds = BTreeSet::from([GroupKind::new("", "ConfigMap")]);
        let kinds = ClusterKinds::from([("local".to_owned(), kinds)]);
        objects.subscribe(&app.name, kinds.clone());
        objects.wait_until_settled(&kinds).await;
        Self {
            app,
            client: control_plane.client().await,
            proxy,
            collector: Collector {
                objects,
                client,
                write_limit: 4,
            },
        }
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.app.name.namespace)
    }

    fn trackers(&self) -> Api<ResourceTracker> {
        Api::all(self.client.clone())
    }

    /// Joins a cluster by a Secret with which no cluster can be reached.
    async fn join_unusable(&self, name: &str) {
        let labels = json!({ "cluster.core.oam.dev/cluster-credential-type": "Dynamic" });
        let secret = json!({ "metadata": { "name": name, "labels": labels } });
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.app.name.namespace);
        let secret = serde_json::from_value(secret).unwrap();
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }

    fn owner_labels(&self) -> Value {
        json!({ "app.oam.dev/name": self.app.name.name, "app.oam.dev/namespace": self.app.name.namespace })
    }

    /// Creates a ConfigMap with the labels of the Application. Returns its entry for a tracker.
    async fn config_map(&self, name: &str) -> ManagedResource {
        self.config_map_with(name, json!({ "labels": self.owner_labels() }))
            .await
    }

    async fn config_map_with(&self, name: &str, mut metadata: Value) -> ManagedResource {
        metadata["name"] = name.into();
        let object: ConfigMap = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
        self.config_maps()
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        self.entry(name)
    }

    fn entry(&self, name: &str) -> ManagedResource {
        let manifest = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": name, "namespace": self.app.name.namespace, "labels": {
                "app.oam.dev/component": name, "app.oam.dev/resourceType": "WORKLOAD",
            }},
        });
        ManagedResource {
            creator: "workflow".to_owned(),
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: self.app.name.namespace.clone(),
            name: name.to_owned(),
            component: name.to_owned(),
            raw: Some(RawManifest::of(&manifest).unwrap()),
            ..ManagedResource::default()
        }
    }

    /// Creates a tracker of a generation.
    async fn versioned(&self, generation: i64, entries: &[ManagedResource]) {
        let app = AppIdentity {
            generation,
            ..self.app.clone()
        };
        self.tracker(&app, TrackerType::Versioned, entries).await;
    }

    async fn tracker(&self, app: &AppIdentity, type_: TrackerType, entries: &[ManagedResource]) {
        let objects = encode(entries.to_vec(), None).unwrap();
        let tracker = trackers::create(app, type_, None, None, objects);
        self.trackers().create(&PostParams::default(), &tracker).await.unwrap();
    }

    /// Reads the trackers, as after a restart.
    async fn inventory(&self) -> Inventory {
        let NamespacedName { namespace, name } = &self.app.name;
        let labels = format!("app.oam.dev/name={name},app.oam.dev/namespace={namespace}");
        let list = self
            .trackers()
            .list(&ListParams::default().labels(&labels))
            .await
            .unwrap();
        let decode = |tracker| Tracker::decode(Arc::new(tracker)).unwrap();
        Inventory::of(&self.app, list.items.into_iter().map(decode).collect()).unwrap()
    }

    async fn collect(&self, policies: &Policies, mark: Mark<'_>) -> Result<CollectProgress, CollectError> {
        let subject = Subject {
            app: &self.app,
            rules: &policies.garbage_collect,
            read_only: &policies.read_only,
            orphans_all: policies.orphans_all,
            is_deleting: matches!(mark, Mark::All),
            dependents: &policies.dependents,
        };
        let mut inventory = self.inventory().await;
        self.collector.collect(&subject, &mut inventory, mark).await
    }

    /// Collects after a workflow that applied these objects.
    async fn collect_history(&self, policies: &Policies, applied: &[&str]) -> Result<CollectProgress, CollectError> {
        let applied: HashSet<_> = applied.iter().map(|name| ResourceKey::of(&self.entry(name))).collect();
        let mark = Mark::History {
            applied: &applied,
            is_confirmed: false,
        };
        self.collect(policies, mark).await
    }

    /// Collects like a controller: again and again, each time with what the API server has.
    async fn until_history_is_collected(&self, policies: &Policies, applied: &[&str]) {
        eventually(SOON, "the history to be collected", async || {
            done(self.collect_history(policies, applied).await)
        })
        .await;
    }

    async fn until_deleted(&self, policies: &Policies) {
        eventually(SOON, "all objects to be collected", async || {
            done(self.collect(policies, Mark::All).await)
        })
        .await;
        assert!(self.tracker_names().await.is_empty());
    }

    /// The names of the ConfigMaps, besides that of Kubernetes.
    async fn names(&self) -> Vec<String> {
        let list = self.config_maps().list(&ListParams::default()).await.unwrap();
        let names = list.items.iter().map(ResourceExt::name_any);
        names.filter(|name| name != "kube-root-ca.crt").collect()
    }

    /// The names of the trackers, without the namespace.
    async fn tracker_names(&self) -> Vec<String> {
        let inventory = self.inventory().await;
        let suffix = format!("-{}", self.app.name.namespace);
        let trackers = inventory.in_order().chain(&inventory.component_revision);
        trackers.map(|tracker| tracker.name().replace(&suffix, "")).collect()
    }

    async fn edit(&self, name: &str, change: Value) {
        let patch = Patch::Merge(change);
        self.config_maps()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    /// Waits until the cache has a ConfigMap, with a deletion timestamp or without.
    async fn until_cached(&self, name: &str, is_deleting: bool) {
        use portolan::controllers::oam::objects::{CachedObject, ObjectId};
        let id = ObjectId::of_entry(&self.entry(name));
        eventually(SOON, "the watch to deliver the object", async || {
            match self.collector.objects.cached(&id) {
                CachedObject::Found(live) if live["metadata"]["deletionTimestamp"].is_string() == is_deleting => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// The requests of the collector, besides lists and watches.
    fn requests(&self) -> Vec<ApiRequest> {
        let requests = self.proxy.requests().into_iter();
        let plurals = ["configmaps", "customresourcedefinitions"];
        requests
            .filter(|request| !plurals.iter().any(|plural| request.is_of(plural)))
            .filter(|request| request.path.contains("/configmaps/") || request.path.contains("/resourcetrackers/"))
            .collect()
    }

    fn writes(&self) -> usize {
        self.requests().iter().filter(|request| is_write(request)).count()
    }
}

fn is_write(request: &ApiRequest) -> bool {
    request.method != Method::GET
}

fn done(result: Result<CollectProgress, CollectError>) -> Result<(), String> {
    match result {
        Ok(CollectProgress::Done) => Ok(()),
        Ok(CollectProgress::Waiting { message, .. }) => Err(message),
        Err(error) => Err(error.to_string()),
    }
}

fn message(result: Result<CollectProgress, CollectError>) -> String {
    match result {
        Ok(CollectProgress::Waiting { message, .. }) => message,
        other => panic!("{other:?} instead of a message"),
    }
}
