use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, Preconditions};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::functions::manifest;
use crate::controllers::oam::functions::config::{ConfigStore, PAGE, SecretPage};
use crate::controllers::oam::functions::secrets::Secrets;
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::reconciler::apply::{Creator, ToApply};
use crate::controllers::oam::reconciler::cluster::VisibleSecrets;
use crate::controllers::oam::reconciler::failure::Stop;
use crate::controllers::oam::reconciler::rollout::Rollout;
use crate::controllers::oam::trackers::LOCAL;
use crate::runtime::kube_client::{ApiError, call};

/// Answers a call that ends the pass.
const PASS_ENDS: &str = "the pass ends";

pub(super) struct StepConfigs<'r, 'x, 'p> {
    secrets: VisibleSecrets,
    state: Mutex<State<'r, 'x, 'p>>,
}

struct State<'r, 'x, 'p> {
    rollout: &'r mut Rollout<'x, 'p>,
    stop: Option<Stop>,
}

impl<'r, 'x, 'p> StepConfigs<'r, 'x, 'p> {
    pub(super) fn new(rollout: &'r mut Rollout<'x, 'p>) -> Self {
        Self {
            secrets: rollout.objects.cluster.secrets(),
            state: Mutex::new(State { rollout, stop: None }),
        }
    }

    /// Records a Secret as deleted, or else it would be restored. Refuses a Secret of another Application.
    async fn record_deleted(&self, namespace: &str, name: &str, secret: &Secret) -> Result<(), ApiError> {
        let id = ObjectId {
            cluster: LOCAL.to_owned(),
            api_version: "v1".to_owned(),
            kind: "Secret".to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let mut state = self.state.lock().await;
        let metadata = json!({ "metadata": { "labels": secret.metadata.labels } });
        let objects = &mut *state.rollout.objects;
        let checked = objects.cluster.check_owner(&objects.ledger.inventory, &id, &metadata);
        checked.map_err(ApiError::bad_request)?;
        let revision = state.rollout.target.current.name();
        let recorded = state.rollout.objects.ledger.record_deleted(&revision, &[id]).await;
        recorded.map_err(|stop| {
            state.stop = Some(stop);
            ApiError::bad_request(PASS_ENDS.to_owned())
        })
    }

    pub(super) fn into_stop(self) -> Option<Stop> {
        self.state.into_inner().stop
    }
}

impl Secrets for StepConfigs<'_, '_, '_> {
    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Secret>, ApiError> {
        self.secrets.get(namespace, name).await
    }
}

impl ConfigStore for StepConfigs<'_, '_, '_> {
    async fn list(&self, namespace: &str, labels: &[(&str, &str)], next: Option<&str>) -> Result<SecretPage, ApiError> {
        let api = self.secrets.secret_api(namespace)?;
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut parameters = ListParams::default().labels(&labels.join(",")).limit(PAGE);
        parameters.continue_token = next.map(str::to_owned);
        let listed = call(api.list(&parameters)).await?;
        Ok(SecretPage {
            secrets: listed.items,
            next: listed.metadata.continue_.filter(|token| !token.is_empty()),
        })
    }

    async fn apply(&self, secret: &Secret, objects: Vec<Value>) -> Result<(), ApiError> {
        let mut state = self.state.lock().await;
        let invalid = |message: String| ApiError::bad_request(message);
        let secret = serde_json::to_value(secret).map_err(|error| invalid(error.to_string()))?;
        let application = state.rollout.env().name;
        let to_apply = std::iter::once(secret).chain(objects).map(|object| {
            Ok(ToApply {
                manifest: manifest(application, "", object).map_err(invalid)?,
                component: String::new(),
                trait_: String::new(),
                cluster: String::new(),
                creator: Creator::Workflow,
            })
        });
        let batch = to_apply.collect::<Result<Vec<_>, ApiError>>()?;
        match state.rollout.apply(vec![batch], None).await {
            Ok(results) => results.into_iter().collect::<Result<(), _>>().map_err(invalid),
            Err(stop) => {
                state.stop = Some(stop);
                Err(invalid(PASS_ENDS.to_owned()))
            }
        }
    }

    async fn delete(&self, namespace: &str, name: &str, secret: &Secret) -> Result<(), ApiError> {
        let api = self.secrets.secret_api(namespace)?;
        self.record_deleted(namespace, name, secret).await?;
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: secret.metadata.uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match call(api.delete(name, &parameters)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    fn default_namespace(&self) -> &str {
        self.secrets.definition_namespace()
    }

    async fn template(&self, namespace: &str, name: &str) -> Result<Option<ConfigMap>, ApiError> {
        let api = self.secrets.templates(namespace)?;
        call(api.get_opt(name)).await
    }
}
