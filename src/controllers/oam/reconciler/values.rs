use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams};
use kube::core::ObjectMeta;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Map, Value, json};

use super::env::{Env, post_parameters};
use super::failure::{Failure, FailureKind, Stop};
use super::observed::is_owned_by;
use super::outcome::Outcome;
use crate::api::is_object_name;
use crate::api::oam::{Application, WorkflowStatus};
use crate::budget::parsed_bytes;
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::PASS_COPIES;
use crate::controllers::oam::render::evaluate::Evaluate;
use crate::controllers::oam::workflow::operations::logs::{LOG_CONFIG, LogConfig, record_log_config};
use crate::controllers::oam::workflow::{InvalidStore, ValueStore};
use crate::cue;
use crate::runtime::kube_client::call;

#[derive(Clone, Debug, PartialEq)]
pub struct StoredValues {
    name: String,
    data: BTreeMap<String, String>,
    /// The values, with counters that are not worth a write.
    store: ValueStore,
}

impl StoredValues {
    pub(super) fn bytes(&self) -> u64 {
        let texts = self.data.iter();
        let texts = texts.map(|(name, text)| (name.len() + text.len()) as u64 + parsed_bytes(text));
        PASS_COPIES * texts.sum::<u64>()
    }
}

pub(super) struct StepValues<'p> {
    env: &'p Env<'p>,
    uid: Option<String>,
    /// The logs that steps declare, by the name of the step.
    pub(super) logs: BTreeMap<String, LogConfig>,
}

impl<'p> StepValues<'p> {
    pub(super) const fn new(env: &'p Env<'p>, uid: Option<String>) -> Self {
        Self {
            env,
            uid,
            logs: BTreeMap::new(),
        }
    }

    /// Returns the values of the current run. A new run begins without any.
    pub(super) async fn load(&self, workflow: Option<&WorkflowStatus>) -> Result<ValueStore, Stop> {
        let Some(name) = context_map(workflow).filter(|name| is_object_name(name)) else {
            return Ok(ValueStore::default());
        };
        let remembered = self.env.memory.lock().values.clone();
        if let Some(stored) = remembered.filter(|stored| stored.name == name) {
            return Ok(stored.store);
        }
        let map = call(self.config_maps().get_opt(name)).await.map_err(failed)?;
        // The status, which users may write, names the ConfigMap.
        let Some(map) = map.filter(|map| self.owns(map.owner_references())) else {
            return Ok(ValueStore::default());
        };
        let data = map.data.unwrap_or_default();
        let store = self.decode(name, &data).await?;
        self.env.memory.lock().values = Some(StoredValues {
            name: name.to_owned(),
            data,
            store: store.clone(),
        });
        Ok(store)
    }

    async fn decode(&self, name: &str, data: &BTreeMap<String, String>) -> Result<ValueStore, Stop> {
        match ValueStore::parse(data) {
            Ok(store) => Ok(store),
            Err(InvalidStore::Cue) => {
                let text = data.get("vars").cloned().unwrap_or_default();
                let values = self
                    .env
                    .evaluator()
                    .evaluate(text.into())
                    .await
                    .map_err(|error| match error {
                        cue::Error::Deferred => Stop::NeedsEvaluator,
                        error => {
                            let message = format!("values of the workflow in configmap {name}: {error}");
                            Failure::new(FailureKind::Workflow, message).into()
                        }
                    })?;
                let values: Map<String, Value> = values.as_object().cloned().unwrap_or_default();
                Ok(ValueStore::with_values(values, data))
            }
        }
    }

    /// Stores the values, if they have changed. Creates the ConfigMap in the first turn.
    pub(super) async fn store(&mut self, store: &ValueStore, outcome: &mut Outcome) -> Result<(), Stop> {
        let mut data = if self.env.memory.lock().stores_counters {
            store.to_data_with_counters()
        } else {
            store.to_data()
        };
        let remembered = self.env.memory.lock().values.clone();
        if let Some(logs) = remembered.as_ref().and_then(|stored| stored.data.get(LOG_CONFIG)) {
            data.insert(LOG_CONFIG.to_owned(), logs.clone());
        }
        for (step, config) in std::mem::take(&mut self.logs) {
            if let Err(error) = record_log_config(&mut data, &step, config) {
                outcome.warn("FailedWorkflow", format!("logs of step {step}: {error}"));
            }
        }
        // A ConfigMap that was not read belongs to another object, or is gone.
        let is_known = |name: &&str| remembered.as_ref().is_some_and(|stored| stored.name == **name);
        let name = match context_map(outcome.workflow.as_ref()).filter(is_known) {
            Some(name) => name.to_owned(),
            None => self.create(&data, outcome).await?,
        };
        let stored = self.env.memory.lock().values.clone().filter(|map| map.name == name);
        if stored.as_ref().is_none_or(|stored| stored.data != data) {
            let old = stored.map(|stored| stored.data).unwrap_or_default();
            self.patch(&name, &old, &data, outcome).await?;
        }
        self.env.memory.lock().values = Some(StoredValues {
            name,
            data,
            store: store.clone(),
        });
        Ok(())
    }

    async fn patch(
        &self,
        name: &str,
        old: &BTreeMap<String, String>,
        data: &BTreeMap<String, String>,
        outcome: &mut Outcome,
    ) -> Result<(), Stop> {
        let mut change: BTreeMap<&str, Option<&str>> = old.keys().map(|key| (key.as_str(), None)).collect();
        change.extend(data.iter().map(|(key, value)| (key.as_str(), Some(value.as_str()))));
        let patch = Patch::Merge(json!({ "data": change }));
        let parameters = PatchParams::apply(FIELD_MANAGER);
        let written = call(self.config_maps().patch(name, &parameters, &patch)).await;
        self.env.reconciler.metrics.count_write("patch", "ConfigMap");
        match written {
            Ok(_) => Ok(()),
            // Another client has deleted it.
            Err(error) if error.is_not_found() => self.create(data, outcome).await.map(drop),
            Err(error) => {
                // The API server may have processed the request.
                self.env.memory.lock().values = None;
                Err(failed(error))
            }
        }
    }

    /// Creates the ConfigMap, under another name if the object of another owner has the usual name.
    async fn create(&self, data: &BTreeMap<String, String>, outcome: &mut Outcome) -> Result<String, Stop> {
        let application = self.env.name;
        let usual = format!("workflow-{}-context", application.name);
        let suffix: String = super::new_id().chars().take(5).collect();
        for name in [usual.clone(), format!("{usual}-{suffix}")] {
            let map = self.config_map(&name, data);
            let created = call(self.config_maps().create(&post_parameters(), &map)).await;
            self.env.reconciler.metrics.count_write("create", "ConfigMap");
            let stored = match created {
                Ok(_) => data.clone(),
                Err(error) if error.is_conflict() => {
                    let existing = call(self.config_maps().get_opt(&name)).await.map_err(failed)?;
                    match existing {
                        // Of an earlier run, or created before a crash.
                        Some(existing) if self.owns(existing.owner_references()) => existing.data.unwrap_or_default(),
                        Some(_) => continue,
                        // The conflict had another cause, such as a quota, or the object is gone meanwhile.
                        None => return Err(failed(error)),
                    }
                }
                Err(error) => return Err(failed(error)),
            };
            self.env.memory.lock().values = Some(StoredValues {
                name: name.clone(),
                data: stored,
                store: ValueStore::default(),
            });
            if let Some(workflow) = &mut outcome.workflow {
                workflow.context_backend = Some(ObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("ConfigMap".to_owned()),
                    name: Some(name.clone()),
                    namespace: Some(application.namespace.clone()),
                    ..ObjectReference::default()
                });
            }
            return Ok(name);
        }
        Err(Stop::Stale)
    }

    fn owns(&self, owners: &[OwnerReference]) -> bool {
        is_owned_by(owners, self.uid.as_deref())
    }

    fn config_map(&self, name: &str, data: &BTreeMap<String, String>) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.env.name.namespace.clone()),
                owner_references: Some(vec![OwnerReference {
                    api_version: Application::api_version(&()).into_owned(),
                    kind: Application::kind(&()).into_owned(),
                    name: self.env.name.name.clone(),
                    uid: self.uid.clone().unwrap_or_default(),
                    controller: Some(true),
                    block_owner_deletion: None,
                }]),
                ..ObjectMeta::default()
            },
            data: Some(data.clone()),
            ..ConfigMap::default()
        }
    }

    fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.env.reconciler.client.clone(), &self.env.name.namespace)
    }
}

/// Returns the stored values, which the revision records when the workflow ends.
pub(super) fn stored(env: &Env<'_>) -> BTreeMap<String, String> {
    let stored = env.memory.lock().values.clone();
    stored.map(|stored| stored.data).unwrap_or_default()
}

fn context_map(workflow: Option<&WorkflowStatus>) -> Option<&str> {
    workflow?.context_backend.as_ref()?.name.as_deref()
}

fn failed(error: crate::runtime::kube_client::ApiError) -> Stop {
    Failure::workflow(format!("failed to store values of the workflow: {error}")).into()
}
