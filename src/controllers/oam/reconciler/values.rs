//! The ConfigMap with the values of the workflow.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Resource, ResourceExt};
use serde_json::{Map, Value, json};

use super::conditions::{self, Failure, phase};
use super::pass::{Pass, Stop};
use crate::api::is_object_name;
use crate::api::oam::Application;
use crate::budget::parsed_bytes;
use crate::controllers::FIELD_MANAGER;
use crate::controllers::oam::PASS_COPIES;
use crate::controllers::oam::render::evaluate::Evaluate;
use crate::controllers::oam::workflow::operations::logs::{LOG_CONFIG, record_log_config};
use crate::controllers::oam::workflow::{InvalidStore, Store};
use crate::cue;
use crate::runtime::kube_client::call;

/// The data of the ConfigMap as last read or written.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    name: String,
    data: BTreeMap<String, String>,
    /// The values, with counters that are not worth a write.
    store: Store,
}

impl Stored {
    /// Returns the memory that it takes, with the parsed values.
    pub(super) fn bytes(&self) -> u64 {
        let texts = self.data.iter();
        let texts = texts.map(|(name, text)| (name.len() + text.len()) as u64 + parsed_bytes(text));
        PASS_COPIES * texts.sum::<u64>()
    }
}

impl Pass<'_> {
    /// Returns the values of the current run. A new run begins without any.
    pub(super) async fn load_values(&self) -> Result<Store, Stop> {
        let Some(name) = self.context_map().filter(|name| is_object_name(name)) else {
            return Ok(Store::default());
        };
        let known = self.memory.lock().values.clone();
        if let Some(known) = known.filter(|stored| stored.name == name) {
            return Ok(known.store);
        }
        let found = call(self.config_maps().get_opt(&name)).await.map_err(failed)?;
        // The status, which users may write, names the ConfigMap.
        let Some(found) = found.filter(|found| self.owns(found.owner_references())) else {
            return Ok(Store::default());
        };
        let data = found.data.unwrap_or_default();
        let store = self.decode(&name, &data).await?;
        self.memory.lock().values = Some(Stored {
            name,
            data,
            store: store.clone(),
        });
        Ok(store)
    }

    async fn decode(&self, name: &str, data: &BTreeMap<String, String>) -> Result<Store, Stop> {
        match Store::parse(data) {
            Ok(store) => Ok(store),
            Err(InvalidStore::Cue) => {
                let text = data.get("vars").cloned().unwrap_or_default();
                let values = self.evaluator().evaluate(text).await;
                let values = values.map_err(|error| match error {
                    cue::Error::Deferred => Stop::NeedsEvaluator,
                    error => {
                        let message = format!("values of the workflow in configmap {name}: {error}");
                        Failure::new(conditions::WORKFLOW, "FailedWorkflow", message).into()
                    }
                })?;
                let values: Map<String, Value> = values.as_object().cloned().unwrap_or_default();
                Ok(Store::with_values(values, data))
            }
        }
    }

    fn context_map(&self) -> Option<String> {
        let backend = self.status.workflow.as_ref()?.context_backend.as_ref()?;
        backend.name.clone()
    }

    /// Stores the values, if they have changed. Creates the ConfigMap in the first turn.
    pub(super) async fn store_values(&mut self, store: &Store) -> Result<(), Stop> {
        let mut data = match self.memory.lock().stores_counters {
            true => store.to_data_with_counters(),
            false => store.to_data(),
        };
        let known = self.memory.lock().values.clone();
        if let Some(logs) = known.as_ref().and_then(|known| known.data.get(LOG_CONFIG)) {
            data.insert(LOG_CONFIG.to_owned(), logs.clone());
        }
        for (step, config) in std::mem::take(&mut self.logs) {
            if let Err(error) = record_log_config(&mut data, &step, config) {
                self.warn("FailedWorkflow", &format!("logs of step {step}: {error}"));
            }
        }
        // One that was not read is that of another object, or gone.
        let is_known = |name: &String| known.as_ref().is_some_and(|known| known.name == *name);
        let name = match self.context_map().filter(is_known) {
            Some(name) => name,
            None => self.create_context_map(&data).await?,
        };
        let known = self.memory.lock().values.clone().filter(|known| known.name == name);
        if known.as_ref().is_none_or(|known| known.data != data) {
            self.patch_context_map(&name, known.map(|known| known.data).unwrap_or_default(), &data)
                .await?;
        }
        self.memory.lock().values = Some(Stored {
            name,
            data,
            store: store.clone(),
        });
        Ok(())
    }

    async fn patch_context_map(
        &mut self,
        name: &str,
        old: BTreeMap<String, String>,
        data: &BTreeMap<String, String>,
    ) -> Result<(), Stop> {
        let mut change: BTreeMap<&str, Option<&str>> = old.keys().map(|key| (key.as_str(), None)).collect();
        change.extend(data.iter().map(|(key, value)| (key.as_str(), Some(value.as_str()))));
        let patch = Patch::Merge(json!({ "data": change }));
        let written = call(
            self.config_maps()
                .patch(name, &PatchParams::apply(FIELD_MANAGER), &patch),
        )
        .await;
        self.reconciler.metrics.count_write("patch", "ConfigMap");
        match written {
            Ok(_) => Ok(()),
            // Another client has deleted it.
            Err(error) if error.is_not_found() => self.create_context_map(data).await.map(drop),
            Err(error) => {
                // The API server may have processed the request.
                self.memory.lock().values = None;
                Err(failed(error))
            }
        }
    }

    /// Creates the ConfigMap, under another name if the object of another owner has the usual one.
    async fn create_context_map(&mut self, data: &BTreeMap<String, String>) -> Result<String, Stop> {
        let usual = format!("workflow-{}-context", self.name.name);
        let suffix: String = super::new_id().chars().take(5).collect();
        for name in [usual.clone(), format!("{usual}-{suffix}")] {
            let map = self.new_context_map(&name, data);
            let parameters = PostParams {
                field_manager: Some(FIELD_MANAGER.to_owned()),
                ..PostParams::default()
            };
            let created = call(self.config_maps().create(&parameters, &map)).await;
            self.reconciler.metrics.count_write("create", "ConfigMap");
            let stored = match created {
                Ok(_) => data.clone(),
                Err(error) if error.is_conflict() => {
                    let existing = call(self.config_maps().get_opt(&name)).await.map_err(failed)?;
                    match existing {
                        // Of an earlier run, or created before a crash.
                        Some(existing) if self.owns(existing.owner_references()) => existing.data.unwrap_or_default(),
                        Some(_) => continue,
                        // The conflict was another one, as of a quota, or the object is gone meanwhile.
                        None => return Err(failed(error)),
                    }
                }
                Err(error) => return Err(failed(error)),
            };
            self.memory.lock().values = Some(Stored {
                name: name.clone(),
                data: stored,
                store: Store::default(),
            });
            if let Some(workflow) = &mut self.status.workflow {
                workflow.context_backend = Some(ObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("ConfigMap".to_owned()),
                    name: Some(name.clone()),
                    namespace: Some(self.name.namespace.clone()),
                    ..ObjectReference::default()
                });
            }
            return Ok(name);
        }
        Err(Stop::Stale)
    }

    pub(super) fn owns(&self, owners: &[OwnerReference]) -> bool {
        let uid = self.app.uid();
        owners.iter().any(|owner| Some(&owner.uid) == uid.as_ref())
    }

    fn new_context_map(&self, name: &str, data: &BTreeMap<String, String>) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.name.namespace.clone()),
                owner_references: Some(vec![OwnerReference {
                    api_version: Application::api_version(&()).into_owned(),
                    kind: Application::kind(&()).into_owned(),
                    name: self.name.name.clone(),
                    uid: self.app.uid().unwrap_or_default(),
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
        Api::namespaced(self.reconciler.client.clone(), &self.name.namespace)
    }

    /// Returns the stored values, which the revision records when the workflow ends.
    pub(super) fn stored_values(&self) -> BTreeMap<String, String> {
        let stored = self.memory.lock().values.clone();
        stored.map(|stored| stored.data).unwrap_or_default()
    }
}

fn failed(error: crate::runtime::kube_client::ApiError) -> Stop {
    let message = format!("failed to store values of the workflow: {error}");
    let failure = Failure::new(conditions::WORKFLOW, "FailedWorkflow", message);
    failure.in_phase(phase::RUNNING_WORKFLOW).into()
}
