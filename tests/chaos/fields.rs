//! Each field of a CRD's spec: set, changed, cleared, invalid, and back. The end equals the beginning.

use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use portolan::api::{crds, oam};
use serde_json::{Value, json};

use super::environment::{DEADLINE, Environment};
use super::run::{at_rest, start};
use super::scenario::Scenario;
use super::state::{differences, part_of};
use super::values::{Field, application_fields, kubevela_fields, kubevela_spec, repository_fields};
use super::{applications, kubevela, repositories};
use crate::support::eventually::eventually;
use crate::support::tls::Authority;

/// Objects that are changed at the same time.
const CONCURRENCY: usize = 8;

impl Scenario {
    fn fields(self, environment: &Environment) -> Vec<Field> {
        match self {
            Self::Repositories => repository_fields(&environment.pages.url()),
            Self::KubeVela => kubevela_fields(),
            _ => application_fields(),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Repositories => repositories::KIND,
            Self::KubeVela => kubevela::KIND,
            _ => applications::KIND,
        }
    }

    /// Returns the spec that an object begins and ends with.
    fn first_spec(self, environment: &Environment, name: &str) -> Value {
        match self {
            Self::Repositories => repositories::spec(environment, "first")["spec"].clone(),
            Self::KubeVela => kubevela_spec(name),
            _ => {
                let kinds = json!([{ "group": "", "kind": "ConfigMap" }]);
                let selector = json!({ "matchLabels": { "app": name } });
                json!({ "componentKinds": kinds, "selector": selector, "addOwnerRef": true })
            }
        }
    }

    /// Creates what the values of the fields refer to.
    async fn prepare_fields(self, environment: &Environment, names: &[String]) {
        match self {
            Self::Repositories => {
                let ca = json!({ "stringData": { "ca.crt": Authority::new().ca_pem } });
                environment.apply(repositories::SECRET, "ca", ca.clone()).await;
                environment
                    .apply(repositories::SECRET, "other", repositories::login())
                    .await;
                environment.edit(repositories::SECRET, "other", ca).await;
            }
            Self::KubeVela => {}
            _ => {
                for name in names {
                    let object = applications::labeled(&json!({ "app": name, "tier": "web" }));
                    environment.apply(applications::CONFIG_MAP, name, object).await;
                }
            }
        }
    }

    /// Returns everything that belongs to an object.
    async fn whole(self, environment: &Environment, name: &str) -> Value {
        let object = part_of(environment, self.kind(), name).await;
        match self {
            Self::Repositories => object,
            Self::KubeVela => {
                let parts = kubevela::parts_of(environment, name).await;
                kubevela::without_versions(&json!([object, parts]))
            }
            _ => json!([object, part_of(environment, applications::CONFIG_MAP, name).await]),
        }
    }
}

/// Returns the paths of the fields below `spec` without fields of their own. Items of lists have the path of the list.
fn leaves(crds: Vec<CustomResourceDefinition>, name: &str) -> Vec<String> {
    fn collect(schema: &Value, path: &str, leaves: &mut Vec<String>) {
        let schema = if schema["items"]["properties"].is_object() {
            &schema["items"]
        } else {
            schema
        };
        let Some(fields) = schema["properties"].as_object() else {
            leaves.push(path.to_owned());
            return;
        };
        for (name, field) in fields {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            collect(field, &path, leaves);
        }
    }
    let crds = crds.into_iter().map(|crd| json!(crd));
    let mut crds = crds.filter(|found| found["metadata"]["name"] == name);
    let crd = crds.next().expect("the definition exists");
    let mut leaves = Vec::new();
    collect(
        &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"],
        "",
        &mut leaves,
    );
    leaves
}

#[test]
fn the_campaign_has_values_for_each_field() {
    let repositories = repository_fields("http://charts.example.com");
    let of = [
        (crds(), "apprepositories.kubeapps.com", repositories),
        (crds(), "applications.app.k8s.io", application_fields()),
        (oam::crds(), "applications.core.oam.dev", kubevela_fields()),
    ];
    for (crds, crd, fields) in of {
        let leaves = leaves(crds, crd);
        assert!(leaves.len() >= fields.len(), "{crd}");
        let is_index = |part: &&str| part.parse::<usize>().is_ok();
        let paths = fields.iter().map(|(path, _)| {
            let names: Vec<_> = path.split('.').filter(|part| !is_index(part)).collect();
            names.join(".")
        });
        let paths: Vec<String> = paths.collect();
        for leaf in leaves {
            let has_values = |path: &&String| leaf == **path || leaf.starts_with(&format!("{path}."));
            assert_eq!(paths.iter().filter(has_values).count(), 1, "{crd}: {leaf}");
        }
    }
}

/// Changes each field of its own object, side by side. Returns the number of fields and of changes, and the divergences.
pub async fn fields(scenario: Scenario, rest: Duration) -> (usize, usize, Vec<String>) {
    let environment = Environment::new(scenario).await;
    let fields = scenario.fields(&environment);
    let site = scenario.prepare(&environment).await;
    let names: Vec<String> = fields.iter().map(|(path, _)| name(path)).collect();
    scenario.prepare_fields(&environment, &names).await;
    let portolan = start(scenario, &environment, None).await;
    let results = stream::iter(&fields).map(|field| change(scenario, &environment, field));
    let results: Vec<_> = results.buffer_unordered(CONCURRENCY).collect().await;
    let changes = results.iter().map(|(changes, _)| changes).sum();
    let mut divergences: Vec<String> = results.into_iter().flat_map(|(_, divergences)| divergences).collect();
    let at_rest = at_rest(&environment, rest).await;
    divergences.extend(at_rest.iter().map(|write| format!("written at rest: {write}")));
    drop((portolan, site));
    environment.database.delete().await;
    (fields.len(), changes, divergences)
}

fn name(path: &str) -> String {
    path.to_lowercase().replace('.', "-")
}

/// Returns the number of changes that the API server accepted, and the differences at the end.
async fn change(scenario: Scenario, environment: &Environment, (path, values): &Field) -> (usize, Vec<String>) {
    let (kind, name) = (scenario.kind(), name(path));
    let spec = scenario.first_spec(environment, &name);
    environment.apply(kind, &name, json!({ "spec": spec })).await;
    until_settled(environment, kind, &name, true).await;
    let first = settled_whole(scenario, environment, &name).await;
    let [set, changed, invalid] = values.clone();
    let mut accepted = 0;
    for value in [set, changed, Value::Null, invalid] {
        if replace(environment, kind, &name, with(&spec, path, value)).await {
            accepted += 1;
            until_settled(environment, kind, &name, false).await;
        }
    }
    assert!(
        replace(environment, kind, &name, spec).await,
        "{name}: the first spec is refused"
    );
    let deadline = tokio::time::Instant::now() + DEADLINE;
    let mut found = differences(&first, &scenario.whole(environment, &name).await);
    while !found.is_empty() && tokio::time::Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(100)).await;
        found = differences(&first, &scenario.whole(environment, &name).await);
    }
    let found = found.into_iter().map(|difference| format!("{path}: {difference}"));
    (accepted + 1, found.collect())
}

/// Returns the spec with another value of a field, or without it.
fn with(spec: &Value, path: &str, value: Value) -> Value {
    let mut changed = spec.clone();
    let (parents, last) = path.rsplit_once('.').unwrap_or(("", path));
    let mut field = &mut changed;
    for parent in parents.split('.').filter(|parent| !parent.is_empty()) {
        field = match parent.parse::<usize>() {
            Ok(index) => &mut field[index],
            Err(_) => &mut field[parent],
        };
    }
    match value {
        Value::Null => drop(field.as_object_mut().and_then(|fields| fields.remove(last))),
        value => field[last] = value,
    }
    changed
}

/// Replaces the spec. Returns false if the API server refuses it as invalid.
async fn replace(environment: &Environment, kind: &str, name: &str, spec: Value) -> bool {
    let api = environment.api_of(kind);
    eventually(DEADLINE, &format!("{name} to be replaced"), async || {
        let mut object = api.get(name).await?;
        object.data["spec"] = spec.clone();
        match api.replace(name, &PostParams::default(), &object).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 400 | 422) => Ok(false),
            Err(error) => Err(error),
        }
    })
    .await
}

/// Waits until the status is about the current generation, and if needed until the object is ready and at rest.
async fn until_settled(environment: &Environment, kind: &str, name: &str, needs_rest: bool) {
    environment
        .until(kind, name, "the current generation to be observed", |object| {
            let status = &object["status"];
            let conditions = status["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let is_syncing = conditions.any(|condition| condition["reason"] == "Syncing");
            let is_current = status["observedGeneration"] == object["metadata"]["generation"];
            let is_at_rest = || match kind {
                repositories::KIND => repositories::is_ready(object),
                kubevela::KIND => status["status"] == "running",
                _ => repositories::is_ready(object) && applications::is_released(object),
            };
            is_current && !is_syncing && (!needs_rest || is_at_rest())
        })
        .await;
}

/// Returns the whole of an object once it has not changed for a moment.
async fn settled_whole(scenario: Scenario, environment: &Environment, name: &str) -> Value {
    let mut last = scenario.whole(environment, name).await;
    let mut same = 0;
    while same < 5 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = scenario.whole(environment, name).await;
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}
