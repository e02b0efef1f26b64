mod immutable;
mod mutate;
mod permissions;
mod trial;
mod validate;
mod webhooks;

use serde_json::{Value, json};

use super::definitions::ReviewDefinitions;
use super::findings::Findings;
use super::settings::ApplicationWebhookSettings;
use crate::api::oam::Application;
use crate::controllers::oam::ReviewOptions;
use crate::controllers::oam::parse::Lookup;
use crate::controllers::oam::parse::tests::Cluster;
use crate::controllers::oam::render::tests::fake::FakeEvaluator;
use crate::controllers::oam::webhooks::inspect::InspectTemplate;
use crate::controllers::oam::webhooks::review::{AdmissionRequest, Verdict};
use crate::cue::{Error, Inspection};

const SYSTEM: &str = "vela-system";

fn settings() -> ApplicationWebhookSettings {
    ApplicationWebhookSettings {
        own_user: "system:serviceaccount:vela-system:portolan".to_owned(),
        definition_namespace: SYSTEM.to_owned(),
        watched_namespace: None,
        pod_namespace: "portolan".to_owned(),
        is_authenticated: false,
        is_sharded: false,
        is_strict: false,
        reviews: ReviewOptions::default(),
    }
}

/// Requests hold raw text, which no value can.
fn request(request: &Value) -> AdmissionRequest {
    serde_json::from_str(&request.to_string()).unwrap()
}

fn app(value: &Value) -> Application {
    serde_json::from_value(value.clone()).unwrap()
}

/// Returns the lines of the errors, or else the warnings.
fn shown(findings: Findings) -> Vec<String> {
    match findings.into_verdict("7") {
        Verdict::Allowed { warnings, .. } => warnings,
        Verdict::Invalid(message) => {
            let lines = message.strip_suffix(" (requestUID=7)").unwrap().lines().skip(1);
            lines.map(str::to_owned).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// The definitions of a cluster, as if all were in the caches.
#[derive(Default)]
struct FakeDefinitions {
    cluster: Cluster,
    /// The reason why they can't be read.
    failure: Option<String>,
    /// They are never read.
    is_pending: bool,
}

impl FakeDefinitions {
    fn of(cluster: Cluster) -> Self {
        Self {
            cluster,
            ..Self::default()
        }
    }
}

impl ReviewDefinitions for FakeDefinitions {
    async fn resolve<T: Send>(&self, resolve: impl Fn(&dyn Lookup) -> T + Send + Sync) -> Result<T, String> {
        if self.is_pending {
            return std::future::pending().await;
        }
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(resolve(&self.cluster)),
        }
    }
}

impl InspectTemplate for FakeEvaluator {
    async fn inspect(&self, _: &str, _: &str, _: bool) -> Result<Inspection, Error> {
        Ok(Inspection {
            immutable: vec!["image".to_owned()],
            ..Inspection::default()
        })
    }
}

/// A text of this many objects, each of which takes much more memory than text.
fn objects(count: usize) -> Value {
    Value::Array(vec![json!({}); count])
}
