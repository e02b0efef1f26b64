use serde_json::{Map, Value, json};

use crate::api::NamespacedName;
use crate::api::oam::labels;
use crate::controllers::oam::dispatch::bookkeeping::label;
use crate::controllers::oam::functions::http::HttpPermit;
use crate::controllers::oam::functions::objects::{self, DEFAULT_NAMESPACE, ObjectDeletion, ObjectSelection};
use crate::controllers::oam::functions::variables::variable;
use crate::controllers::oam::functions::{self, config};
use crate::controllers::oam::objects::{ObjectError, ObjectId};
use crate::controllers::oam::reconciler::apply::{Creator, ToApply};
use crate::controllers::oam::reconciler::cluster::Cluster;
use crate::controllers::oam::reconciler::env::Env;
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::reconciler::rollout::Rollout;
use crate::controllers::oam::reconciler::rollout::policies::{deploy_policies, placements};
use crate::controllers::oam::steps::{Answer, Call, Functions, patch_object};
use crate::controllers::oam::trackers::LOCAL;
use crate::controllers::oam::workflow::{FailureReason, ValueStore};
use crate::runtime::kube_client::ApiError;

use super::configs::StepConfigs;

const MAX_OBJECTS: usize = 100;

pub(super) struct StepFunctions<'r, 'x, 'p> {
    pub(super) rollout: &'r mut Rollout<'x, 'p>,
    pub(super) values: &'r mut ValueStore,
    pub(super) step_name: &'r str,
    pub(super) step_id: &'r str,
    pub(super) stop: Option<Stop>,
    /// The permit for requests, from the first request to the end of the step.
    pub(super) permit: Option<HttpPermit>,
}

impl Functions for StepFunctions<'_, '_, '_> {
    async fn call(&mut self, call: &Call) -> Answer {
        if let Some(value) = self.env().answers.lock().get(self.step_id, call) {
            return Answer::Returned(value);
        }
        match self.answer(call).await {
            Ok(answer) => {
                self.env().answers.lock().record(self.step_id, call, &answer);
                answer
            }
            Err(stop) => {
                self.stop = Some(stop);
                Answer::failed("the pass ends")
            }
        }
    }
}

impl<'x, 'p> StepFunctions<'_, 'x, 'p> {
    fn env(&self) -> &'x Env<'x> {
        self.rollout.env()
    }

    fn cluster(&self) -> &Cluster<'p> {
        &self.rollout.objects.cluster
    }

    async fn answer(&mut self, call: &Call) -> Result<Answer, Stop> {
        let params = &call.params;
        if let Ok(cluster) = functions::cluster(params) {
            self.env().use_clusters([cluster.as_str()]).await?;
        }
        match (call.provider.as_str(), call.function.as_str()) {
            ("kube", "apply") => self.apply(params).await,
            ("kube", "apply-in-parallel") => self.apply_all(params).await,
            ("kube", "read") => Ok(self.read(params).await),
            ("kube", "list") => Ok(self.list(params).await),
            ("kube", "patch") => self.patch(params).await,
            ("kube", "delete") => self.delete(params).await,
            ("http", "do") => {
                let env = self.env();
                let secrets = self.cluster().secrets();
                let requests = &env.reconciler.http_requests;
                Ok(requests.send(env.name, params, &secrets, &mut self.permit).await)
            }
            ("config", function) => self.config(function, params).await,
            ("multicluster", "deploy") => deploy_policies(self.rollout, params).await,
            ("multicluster", "list-clusters") => Ok(self.list_clusters()),
            ("multicluster", "get-placements-from-topology-policies") => Ok(placements(self.rollout.target, params)),
            ("query", "collectServiceEndpoints") => self.collect_endpoints(params).await,
            ("metrics", "promCheck") => self.check_metrics(params).await,
            ("oam", function) => self.rollout.call_oam(function, params).await,
            ("builtin", "var") => Ok(variable(params, self.values)),
            ("util", "log") => {
                self.log(params);
                Ok(Answer::Returned(json!({})))
            }
            (provider, function) => Ok(Answer::Failed {
                reason: FailureReason::Rendering,
                message: format!("function {provider}.{function} is not supported yet by this controller"),
            }),
        }
    }

    fn log(&mut self, params: &Value) {
        let (env, step) = (self.env(), self.step_name);
        if !params["data"].is_null() {
            let logs = &env.reconciler.step_logs;
            let is_written = logs.write(env.name, self.step_id, &params["data"]);
            env.reconciler.metrics.count_step_log(is_written);
            if !is_written {
                let message = format!("logs of step {step}: lines are dropped, the namespace has written too many");
                self.rollout.outcome.warn("FailedWorkflow", message);
            }
        }
        let declared = &mut self.rollout.values.logs;
        let mut logs = declared.get(step).cloned().unwrap_or_default();
        match logs.add(params) {
            Ok(()) => {
                declared.insert(step.to_owned(), logs);
            }
            Err(error) => {
                let message = format!("logs of step {step}: {error}");
                self.rollout.outcome.warn("FailedWorkflow", message);
            }
        }
    }

    fn list_clusters(&self) -> Answer {
        let listed = self.env().reconciler.objects.clusters().list();
        let clusters = listed.map(|joined| {
            let names = joined.iter().map(|cluster| cluster.name.as_str());
            let clusters: Vec<&str> = std::iter::once(LOCAL).chain(names).collect();
            json!({ "outputs": { "clusters": clusters } })
        });
        clusters.into()
    }

    async fn apply(&mut self, params: &Value) -> Result<Answer, Stop> {
        let patched = functions::cluster(params).and_then(|cluster| {
            let object = patch_object(params["value"].clone(), params)?;
            Ok((manifest(self.env().name, &cluster, object)?, cluster))
        });
        let (object, cluster) = match patched {
            Ok(patched) => patched,
            Err(message) => return Ok(Answer::failed(message)),
        };
        Ok(match self.dispatch(&cluster, vec![object.clone()]).await? {
            Ok(()) => Answer::Returned(json!({ "value": self.rollout.objects.live(&cluster, &object).await })),
            Err(message) => Answer::failed(message),
        })
    }

    async fn apply_all(&mut self, params: &Value) -> Result<Answer, Stop> {
        let Some(values) = params["value"].as_array().cloned() else {
            return Ok(Answer::failed("$params.value is not a list of objects"));
        };
        if values.len() > MAX_OBJECTS {
            return Ok(Answer::failed(format!(
                "{} objects exceed the limit of {MAX_OBJECTS}",
                values.len()
            )));
        }
        let objects = functions::cluster(params).and_then(|cluster| {
            let manifest = |object| manifest(self.env().name, &cluster, object);
            let objects = values.into_iter().map(manifest).collect::<Result<Vec<_>, _>>()?;
            Ok((objects, cluster))
        });
        let (objects, cluster) = match objects {
            Ok(objects) => objects,
            Err(message) => return Ok(Answer::failed(message)),
        };
        if let Err(message) = self.dispatch(&cluster, objects.clone()).await? {
            return Ok(Answer::failed(message));
        }
        let mut live = Vec::new();
        for object in &objects {
            live.push(self.rollout.objects.live(&cluster, object).await);
        }
        Ok(Answer::Returned(json!({ "value": live })))
    }

    async fn dispatch(&mut self, cluster: &str, objects: Vec<Value>) -> Result<Result<(), String>, Stop> {
        // A patched object still belongs to its component.
        let text = |manifest: &Value, name: &str| label(manifest, name).unwrap_or_default().to_owned();
        let batch = objects.into_iter().map(|manifest| ToApply {
            component: text(&manifest, labels::COMPONENT),
            trait_: text(&manifest, labels::TRAIT_TYPE),
            manifest,
            cluster: cluster.to_owned(),
            creator: Creator::Workflow,
        });
        let batches = vec![batch.collect()];
        let results = self.rollout.apply(batches, None).await?;
        Ok(results.into_iter().collect())
    }

    async fn read(&self, params: &Value) -> Answer {
        let id = match objects::read(params) {
            Ok(id) => id,
            Err(message) => return Answer::failed(message),
        };
        if let Err(message) = self.cluster().check_read(&id).await {
            return Answer::failed(message);
        }
        let read = self.cluster().objects.read(&id).await;
        if let Ok(Some(live)) = &read
            && let Err(message) = self.cluster().check_record(&id.cluster, live)
        {
            return Answer::failed(message);
        }
        objects::read_result(&id, read)
    }

    async fn list(&self, params: &Value) -> Answer {
        let selection = match objects::list(params) {
            Ok(selection) => selection,
            Err(message) => return Answer::failed(message),
        };
        let (cluster, target) = (self.cluster(), selection.target());
        if let Err(message) = cluster.check_read(&target).await {
            return Answer::failed(message);
        }
        let listed = cluster.objects.list(&target, &selection.selector()).await;
        let listed = listed.map(|listed| cluster.without_records(&target.cluster, listed));
        objects::listed(&selection, listed)
    }

    /// Applies a changed object as an object of the Application, which records it and keeps its state. Refuses an
    /// object of no or another Application, unless a policy adopts it.
    async fn patch(&mut self, params: &Value) -> Result<Answer, Stop> {
        let (changed, cluster) = match self.read_and_patch(params).await {
            Ok(changed) => changed,
            Err(message) => return Ok(Answer::failed(message)),
        };
        Ok(match self.dispatch(&cluster, vec![changed.clone()]).await? {
            Ok(()) => objects::patched(self.rollout.objects.live(&cluster, &changed).await),
            Err(message) => Answer::failed(message),
        })
    }

    /// Returns the changed object with its cluster.
    async fn read_and_patch(&self, params: &Value) -> Result<(Value, String), String> {
        let cluster = functions::cluster(params)?;
        let id = objects::patch(params)?;
        self.cluster().check_read(&id).await?;
        let live = match self.cluster().objects.read(&id).await {
            Ok(Some(live)) => live,
            Ok(None) => return Err(format!("{} {} not found", id.kind, id.name)),
            Err(error) => return Err(format!("failed to read {} {}: {error}", id.kind, id.name)),
        };
        self.cluster().check_record(&id.cluster, &live)?;
        let changed = patch_object(objects::desired(live), params)?;
        Ok((manifest(self.env().name, &cluster, changed)?, cluster))
    }

    async fn delete(&mut self, params: &Value) -> Result<Answer, Stop> {
        let ids = match objects::delete(params) {
            Ok(ObjectDeletion::One(id)) => vec![id],
            Ok(ObjectDeletion::Matching(selection)) => match self.list_matching(&selection).await {
                Ok(ids) => ids,
                Err(message) => return Ok(Answer::failed(message)),
            },
            Err(message) => return Ok(Answer::failed(message)),
        };
        let result = self.delete_all(ids).await?;
        Ok(objects::deleted(&params["value"], result))
    }

    async fn list_matching(&self, selection: &ObjectSelection) -> Result<Vec<ObjectId>, String> {
        let target = selection.target();
        self.cluster().check_read(&target).await?;
        let objects = self
            .cluster()
            .objects
            .list(&target, &selection.selector())
            .await
            .map_err(|error| format!("failed to list {}: {error}", target.kind))?;
        match objects.len() {
            0..=MAX_OBJECTS => {
                let ids = objects
                    .iter()
                    .map(|object| ObjectId::of(object).in_cluster(&target.cluster));
                Ok(ids.collect())
            }
            count => Err(format!("{count} objects match, more than the limit of {MAX_OBJECTS}")),
        }
    }

    /// Deletes objects. Objects of the Application are recorded as deleted first, or else they would be restored.
    async fn delete_all(&mut self, mut ids: Vec<ObjectId>) -> Result<Result<(), ObjectError>, Stop> {
        let objects = self.cluster().objects.clone();
        for id in &mut ids {
            match objects.is_namespaced(id).await {
                Ok(true) => {}
                Ok(false) => id.namespace.clear(),
                // With a namespace, an object that has none would count as one of the Application's own namespace.
                Err(error) => return Ok(Err(error)),
            }
        }
        let to_delete = ids.iter().map(|id| {
            let metadata = json!({ "name": id.name, "namespace": id.namespace });
            json!({ "apiVersion": id.api_version, "kind": id.kind, "metadata": metadata })
        });
        let to_delete: Vec<Value> = to_delete.collect();
        let manifests = ids.iter().cloned().zip(&to_delete);
        let inventory = &self.rollout.objects.ledger.inventory;
        if let Err(message) = self.cluster().check_admission(inventory, manifests) {
            return Ok(Err(ApiError::bad_request(message).into()));
        }
        let mut existing = Vec::new();
        for id in &ids {
            match objects.read(id).await {
                Ok(Some(live)) => existing.push((id, live)),
                Ok(None) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        let inventory = &self.rollout.objects.ledger.inventory;
        let mut checked = existing.iter();
        let are_own = checked.try_for_each(|(id, live)| self.cluster().check_owner(inventory, id, live));
        if let Err(message) = are_own {
            return Ok(Err(ApiError::bad_request(message).into()));
        }
        let revision = self.rollout.target.current.name();
        self.rollout.objects.ledger.record_deleted(&revision, &ids).await?;
        for (id, live) in existing {
            let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
            self.env().reconciler.metrics.count_write("delete", &id.kind);
            if let Err(error) = objects.delete(id, uid).await {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    async fn config(&mut self, function: &str, params: &Value) -> Result<Answer, Stop> {
        let evaluator = self.env().evaluator();
        let store = StepConfigs::new(self.rollout);
        let answer = match function {
            "create" => config::create(params, &store, &evaluator).await,
            "read" => config::read(params, &store).await,
            "list" => config::list(params, &store).await,
            "delete" => config::delete(params, &store).await,
            function => Answer::failed(format!("function config.{function} is not supported")),
        };
        match store.into_stop() {
            Some(stop) => Err(stop),
            None => Ok(answer),
        }
    }
}

pub(super) fn manifest(application: &NamespacedName, cluster: &str, mut object: Value) -> Result<Value, String> {
    let id = ObjectId::of(&object);
    if id.api_version.is_empty() || id.kind.is_empty() || id.name.is_empty() {
        return Err("the object needs apiVersion, kind and metadata.name".to_owned());
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Err("metadata of the object is not a struct".to_owned());
    };
    if id.namespace.is_empty() {
        metadata.insert("namespace".to_owned(), DEFAULT_NAMESPACE.into());
    }
    let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
    let Some(labels) = labels.as_object_mut() else {
        return Err("metadata.labels of the object is not a struct".to_owned());
    };
    let NamespacedName { name: app, namespace } = application;
    labels.insert(labels::APP_NAME.to_owned(), app.as_str().into());
    labels.insert(labels::APP_NAMESPACE.to_owned(), namespace.as_str().into());
    labels.insert(labels::CLUSTER.to_owned(), cluster.into());
    Ok(object)
}
