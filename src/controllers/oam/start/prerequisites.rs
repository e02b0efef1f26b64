//! Waits for the evaluator and for KubeVela's CRDs, without which no Application is deployed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use kube::Client;
use tokio::time::sleep;

use crate::api::oam::GROUP;
use crate::controllers::Task;
use crate::cue::Evaluator;
use crate::runtime::kube_client::{ApiError, call};

const RETRY: Duration = Duration::from_secs(5);

const VERSION: &str = "v1beta1";

const RESOURCES: [&str; 8] = [
    "applications",
    "applicationrevisions",
    "resourcetrackers",
    "componentdefinitions",
    "traitdefinitions",
    "policydefinitions",
    "workflowstepdefinitions",
    "definitionrevisions",
];

/// The prerequisites, and which of them were found. Clones share them.
#[derive(Clone)]
pub struct Prerequisites(Arc<State>);

struct State {
    evaluator: Evaluator,
    has_evaluator: AtomicBool,
    has_crds: AtomicBool,
}

impl Prerequisites {
    #[must_use]
    pub fn new(evaluator: Evaluator) -> Self {
        Self(Arc::new(State {
            evaluator,
            has_evaluator: AtomicBool::new(false),
            has_crds: AtomicBool::new(false),
        }))
    }

    #[must_use]
    pub fn evaluator(&self) -> &Evaluator {
        &self.0.evaluator
    }

    #[must_use]
    pub fn has_evaluator(&self) -> bool {
        self.0.has_evaluator.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn has_crds(&self) -> bool {
        self.0.has_crds.load(Ordering::Relaxed)
    }

    /// Returns the tasks that look for them until they are found.
    #[must_use]
    pub fn tasks(&self, client: &Client) -> Vec<Task> {
        let evaluator = self.clone().wait_for_evaluator();
        let crds = self.clone().wait_for_crds(client.clone());
        [evaluator.boxed(), crds.boxed()]
            .into_iter()
            .map(|task| task.then(|()| std::future::pending()).boxed())
            .collect()
    }

    async fn wait_for_evaluator(self) {
        let mut logged = None;
        while let Err(error) = self.0.evaluator.check().await {
            let error = error.to_string();
            if logged.as_ref() != Some(&error) {
                tracing::warn!(%error, "failed to start the CUE evaluator, Applications wait for it");
                logged = Some(error);
            }
            sleep(RETRY).await;
        }
        tracing::info!("CUE evaluator ready");
        self.0.has_evaluator.store(true, Ordering::Relaxed);
    }

    async fn wait_for_crds(self, client: Client) {
        let mut logged = None;
        loop {
            let message = match missing_crds(&client).await {
                Ok(missing) if missing.is_empty() => break,
                Ok(missing) => format!(
                    "waiting for the custom resource definitions {}; `portolan crds core.oam.dev --apply` installs them",
                    missing.join(", ")
                ),
                Err(error) => format!("failed to look for custom resource definitions, retrying: {error}"),
            };
            if logged.as_ref() != Some(&message) {
                tracing::warn!("{message}");
                logged = Some(message);
            }
            sleep(RETRY).await;
        }
        self.0.has_crds.store(true, Ordering::Relaxed);
    }
}

pub async fn missing_crds(client: &Client) -> Result<Vec<String>, ApiError> {
    // Needs no right to CRDs, unlike a request for them.
    let served = match call(client.list_api_group_resources(&format!("{GROUP}/{VERSION}"))).await {
        Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
        Err(error) if error.is_not_found() => BTreeSet::new(),
        Err(error) => return Err(error),
    };
    let missing = RESOURCES.iter().filter(|resource| !served.contains(**resource));
    Ok(missing.map(|resource| format!("{resource}.{GROUP}")).collect())
}
