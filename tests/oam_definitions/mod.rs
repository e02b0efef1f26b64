//! Definitions on a real API server: their caches, and the revisions that record them.

mod caches;
mod faults;
mod limits;
mod recording;
mod schemas;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::Method;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt};
use parking_lot::Mutex;
use portolan::api::oam::{DefinitionKind, DefinitionRevision, crds};
use portolan::budget::{Budget, Budgets, ResourceMetrics};
use portolan::controllers::oam::definitions::{
    DefinitionBudgets, DefinitionCaches, DefinitionChange, DefinitionParts, DefinitionSettings, IsInUse, class,
    classes, enqueue_all,
};
use portolan::cue::{Evaluator, EvaluatorOptions};
use portolan::runtime::controller::{WorkerMetrics, WorkerPool};
use portolan::runtime::workqueue::{self, ClassLimits, Queue};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::control_plane::{ADMIN_TOKEN, ControlPlane, control_plane};
use crate::support::cue::executable;
pub use crate::support::eventually::{SOON, eventually};
use crate::support::fault_proxy::{ApiRequest, FaultProxy};

/// A namespace with the definitions of KubeVela's kinds installed.
pub struct Site {
    pub namespace: String,
    pub client: Client,
}

/// The reconcilers of a namespace, behind a proxy. They stop when dropped.
pub struct Controller {
    pub proxy: FaultProxy,
    pub caches: DefinitionCaches,
    pub changes: Arc<Mutex<Vec<DefinitionChange>>>,
    registry: Registry,
    _tasks: JoinSet<()>,
}

pub fn settings() -> DefinitionSettings {
    DefinitionSettings {
        revision_limit: 20,
        compat_version: "v1.11.0".to_owned(),
        is_version_required: false,
    }
}

impl Site {
    pub async fn new() -> Self {
        let control_plane = control_plane().await;
        for crd in crds() {
            control_plane.install_crd(&crd).await;
        }
        Self {
            namespace: control_plane.namespace().await,
            client: control_plane.client().await,
        }
    }

    pub async fn controller(&self) -> Controller {
        self.controller_with(settings(), Arc::new(|_, _| false)).await
    }

    pub async fn controller_with(&self, settings: DefinitionSettings, is_in_use: IsInUse) -> Controller {
        Controller::start(control_plane().await, &self.namespace, &settings, &is_in_use).await
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }

    /// Merges into an object, or creates it.
    pub async fn apply(&self, kind: &str, name: &str, mut object: Value) -> DynamicObject {
        let resource = resource(kind);
        object["apiVersion"] = resource.api_version.into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = name.into();
        let parameters = PatchParams::apply("tests").force();
        self.api(kind)
            .patch(name, &parameters, &Patch::Apply(object))
            .await
            .unwrap()
    }

    pub async fn write_status(&self, kind: &str, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let api = self.api(kind);
        api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Returns the schema in a ConfigMap.
    pub async fn schema(&self, config_map: &str) -> String {
        let config_map = self.api("ConfigMap").get(config_map).await.unwrap();
        let schema = &config_map.data["data"]["openapi-v3-json-schema"];
        schema.as_str().unwrap().to_owned()
    }

    pub async fn revision(&self, name: &str) -> Option<DefinitionRevision> {
        let api: Api<DefinitionRevision> = Api::namespaced(self.client.clone(), &self.namespace);
        api.get_opt(name).await.unwrap()
    }

    /// Returns the names of all revisions.
    pub async fn revisions(&self) -> Vec<String> {
        let list = self
            .api("DefinitionRevision")
            .list(&ListParams::default())
            .await
            .unwrap();
        let mut names: Vec<_> = list.items.iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    }

    /// Waits until the status names this revision and has the condition Synced.
    pub async fn until_recorded(&self, kind: &str, name: &str, revision: &str) -> Value {
        let what = format!("{kind} {name} to be recorded as {revision}");
        let expected = (revision.to_owned(), "True ReconcileSuccess ".to_owned());
        self.until(kind, name, &what, |status| (latest(status), synced(status)) == expected)
            .await
    }

    /// Waits until the condition Synced is false with a message that contains these words.
    pub async fn until_failed(&self, kind: &str, name: &str, words: &str) -> Value {
        let what = format!("{kind} {name} to report {words}");
        let has_failed = |status: &Value| {
            let condition = synced(status);
            condition.starts_with("False ReconcileError cannot ") && condition.contains(words)
        };
        self.until(kind, name, &what, has_failed).await
    }

    async fn until(&self, kind: &str, name: &str, what: &str, is_reached: impl Fn(&Value) -> bool) -> Value {
        let api = self.api(kind);
        eventually(SOON, what, async || {
            let object = api.get(name).await.map_err(|error| error.to_string())?;
            let status = object.data["status"].clone();
            if is_reached(&status) {
                Ok(status)
            } else {
                Err(status.to_string())
            }
        })
        .await
    }

    /// Waits until exactly these revisions exist.
    pub async fn until_revisions(&self, expected: &[&str]) {
        eventually(SOON, &format!("only {expected:?} to exist"), async || {
            let names = self.revisions().await;
            if names == expected {
                Ok(())
            } else {
                Err(format!("{names:?}"))
            }
        })
        .await;
    }
}

impl Controller {
    pub async fn start(
        server: &ControlPlane,
        namespace: &str,
        settings: &DefinitionSettings,
        is_in_use: &IsInUse,
    ) -> Self {
        let proxy = FaultProxy::in_front_of(server).await;
        let client = client_of(server, &proxy).await;
        let mut registry = Registry::default();
        let limits = DefinitionKind::ALL.map(|kind| (class(kind), ClassLimits::workers(1)));
        let queue_settings = workqueue::QueueSettings {
            classes: limits.to_vec(),
            ..workqueue::QueueSettings::default()
        };
        let queue = Queue::new(queue_settings, &workqueue::WorkqueueMetrics::register(&mut registry));
        let memory = DefinitionBudgets {
            tenants: Budget::new("test", 64 << 20),
            shared: Budget::new("test", 64 << 20),
            definition_namespace: namespace.into(),
        };
        let caches = DefinitionCaches::new(Some(namespace), memory);
        let classes = classes(&DefinitionParts {
            client: client.clone(),
            budgets: Budgets::default(),
            caches: caches.clone(),
            settings: settings.clone(),
            is_in_use: Arc::clone(is_in_use),
            evaluator: evaluator().clone(),
            stopping: CancellationToken::new(),
        });
        let pool = WorkerPool::new(
            queue.clone(),
            classes,
            Budgets::default(),
            WorkerMetrics::register(&mut registry),
        );
        let changes = Arc::<Mutex<Vec<_>>>::default();
        let mut tasks = JoinSet::new();
        let recorded = Arc::clone(&changes);
        for source in caches.sources(&client, Some(queue.clone()), move |change| recorded.lock().push(change)) {
            tasks.spawn(source);
        }
        tasks.spawn(pool.run(CancellationToken::new()));
        enqueue_all(&caches, &queue);
        Self {
            proxy,
            caches,
            changes,
            registry,
            _tasks: tasks,
        }
    }

    pub async fn until_synced(&self) {
        eventually(SOON, "the caches to be complete", async || {
            self.caches.is_synced().then_some(())
        })
        .await;
    }

    /// Waits until this many reconciles have ended.
    pub async fn until_reconciled(&self, times: u64) {
        eventually(SOON, &format!("{times} reconciles"), async || {
            let mut text = String::new();
            encode(&mut text, &self.registry).unwrap();
            let counts = text
                .lines()
                .filter(|line| line.starts_with("controller_runtime_reconcile_total{"));
            let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
            let reconciles: u64 = counts.sum();
            if reconciles >= times {
                Ok(())
            } else {
                Err(reconciles.to_string())
            }
        })
        .await;
    }

    /// Returns the requests that are neither reads nor watches.
    pub fn writes(&self) -> Vec<String> {
        let requests = self.proxy.requests();
        let writes = requests.iter().filter(|request| request.method != Method::GET);
        writes
            .map(|request| format!("{} {}", request.method, request.path))
            .collect()
    }
}

/// Returns the evaluator that the tests share.
fn evaluator() -> &'static Evaluator {
    static POOL: OnceLock<Evaluator> = OnceLock::new();
    POOL.get_or_init(|| {
        let options = EvaluatorOptions {
            program: Some(executable()),
            // Far more than any evaluation takes on a busy machine.
            timeout: Duration::from_secs(120),
            ..EvaluatorOptions::default()
        };
        Evaluator::new(options, ResourceMetrics::unregistered())
    })
}

async fn client_of(server: &ControlPlane, proxy: &FaultProxy) -> Client {
    portolan::http::install_crypto_provider();
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig_for(&proxy.url(), ADMIN_TOKEN)).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = match kind {
        "ConfigMap" => ("", "v1"),
        "Policy" | "Workflow" => ("core.oam.dev", "v1alpha1"),
        _ => ("core.oam.dev", "v1beta1"),
    };
    ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind))
}

pub fn latest(status: &Value) -> String {
    status["latestRevision"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Returns status, reason and message of the condition Synced.
pub fn synced(status: &Value) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut synced = conditions.filter(|condition| condition["type"] == "Synced");
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let parts = synced
        .next()
        .map(|condition| ["status", "reason", "message"].map(|field| text(condition, field)));
    parts.map(|parts| parts.join(" ")).unwrap_or_default()
}

/// A ComponentDefinition with a template.
pub fn component(template: &str) -> Value {
    json!({ "spec": {
        "workload": { "definition": { "apiVersion": "apps/v1", "kind": "Deployment" } },
        "schematic": { "cue": { "template": template } },
    } })
}

pub fn is_write_of(plural: &'static str, end: &'static str) -> impl Fn(&ApiRequest) -> bool + Send + 'static {
    move |request| {
        request.method != Method::GET && request.path.contains(&format!("/{plural}")) && request.path.ends_with(end)
    }
}

pub fn assert_no_writes(controller: &Controller) {
    let writes = controller.writes();
    assert!(writes.is_empty(), "{writes:#?}");
}
