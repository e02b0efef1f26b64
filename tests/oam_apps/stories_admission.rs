//! An admission webhook of the cluster refuses objects: its words reach the user, and only its objects wait.

use std::net::Ipv4Addr;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::apps::{config, spec};
use super::site::{Site, condition};
use super::{APPLICATION, CONFIG_MAP};
use crate::support::eventually::{SOON, eventually};
use crate::support::tls::{Authority, TlsListener};

/// The name of the objects that the webhook refuses.
const REFUSED: &str = "refused";
const REFUSAL: &str = "objects of this name are not wanted here";
/// Steps that fail are tried again until the cause is gone.
const PATIENT: &str = "--max-workflow-step-error-retry-times=100000";

/// A webhook for the ConfigMaps of one namespace.
struct Webhook {
    name: String,
    configurations: Api<ValidatingWebhookConfiguration>,
}

impl Webhook {
    /// Installs the webhook, and waits until the API server asks it.
    async fn install(site: &Site) -> Self {
        let authority = Authority::new();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TlsListener::new(listener, &authority);
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(review)).await });
        let configuration = json!({
            "metadata": { "name": site.namespace },
            "webhooks": [{
                "name": "names.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {
                    "url": format!("https://{address}/"),
                    "caBundle": STANDARD.encode(&authority.ca_pem),
                },
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": site.namespace } },
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["configmaps"],
                }],
            }],
        });
        let webhook = Self {
            name: site.namespace.clone(),
            configurations: Api::all(site.control_plane.client().await),
        };
        let configuration = serde_json::from_value(configuration).unwrap();
        let parameters = PostParams::default();
        webhook
            .configurations
            .create(&parameters, &configuration)
            .await
            .unwrap();
        webhook.until_asked(site).await;
        webhook
    }

    async fn until_asked(&self, site: &Site) {
        let (api, name) = (site.api(CONFIG_MAP), format!("{REFUSED}-as-well"));
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        eventually(SOON, "the webhook to be asked", async || {
            match api.create(&dry_run, &object).await {
                Err(error) if error.to_string().contains(REFUSAL) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    async fn remove(self) {
        let parameters = DeleteParams::default();
        self.configurations.delete(&self.name, &parameters).await.unwrap();
    }
}

async fn review(body: Bytes) -> impl IntoResponse {
    let review: Value = serde_json::from_slice(&body).unwrap();
    let request = &review["request"];
    let name = request["object"]["metadata"]["name"].as_str().unwrap_or_default();
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": request["uid"], "allowed": !name.starts_with(REFUSED),
            "status": { "code": 403, "message": REFUSAL },
        },
    });
    ([(CONTENT_TYPE, "application/json")], review.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_object_is_named_and_applied_as_soon_as_it_is_admitted() {
    let site = Site::new().await;
    let _portolan = site.portolan(&[PATIENT]).await;
    let webhook = Webhook::install(&site).await;
    site.declare("shop", spec(&[config("admitted", "one"), config(REFUSED, "one")]))
        .await;
    let app = site.until_said("shop", REFUSAL).await;
    let steps = app["status"]["workflow"]["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["name"] == REFUSED).unwrap();
    assert_eq!(step["phase"], "failed");
    let message = step["message"].as_str().unwrap();
    let start = "Dispatch: pre-dispatch dryrun failed: Found 1 errors. [(cannot create object: ";
    assert!(message.starts_with(start) && message.contains(REFUSAL), "{message}");
    assert!(site.get(CONFIG_MAP, "admitted").await.is_some(), "applied beside it");
    let trackers = site.trackers("shop").await;
    let entries = trackers[0]["spec"]["managedResources"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "what is refused is not recorded: {entries:#?}");
    site.declare("bystander", spec(&[config("unrelated", "one")])).await;
    site.until_running("bystander").await;
    assert!(site.get(CONFIG_MAP, REFUSED).await.is_none());

    webhook.remove().await;
    let app = site.until_running("shop").await;
    assert_eq!(app["metadata"]["generation"], 1);
    assert!(site.get(CONFIG_MAP, REFUSED).await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drift_that_may_not_be_undone_is_named_and_undone_later() {
    let site = Site::new().await;
    let _portolan = site.portolan(&["--application-re-sync-period=5s"]).await;
    let others = ["a", "b", "c"];
    let components = ["a", "b", "c", REFUSED].map(|name| config(name, "one"));
    site.declare("shop", spec(&components)).await;
    site.until_running("shop").await;
    let webhook = Webhook::install(&site).await;
    site.delete(CONFIG_MAP, REFUSED).await;
    let is_named = |app: &Value| {
        let condition = condition(app, "StateKeep");
        let message = condition["message"].as_str().unwrap_or_default();
        condition["status"] == "False" && message.contains(REFUSAL)
    };
    site.until(APPLICATION, "shop", REFUSAL, is_named).await;

    // Many passes later, it is neither silent about the object nor takes it for an object that others fight over.
    for name in others.into_iter().cycle().take(3 * others.len()) {
        site.edit(CONFIG_MAP, name, json!({ "data": { "key": "drift" } })).await;
        let is_restored = |object: &Value| object["data"]["key"] == "one";
        site.until(CONFIG_MAP, name, "restored", is_restored).await;
    }
    let app = site.get(APPLICATION, "shop").await.unwrap();
    assert!(is_named(&app), "{:#}", app["status"]["conditions"]);
    site.declare("bystander", spec(&[config("unrelated", "one")])).await;
    site.until_running("bystander").await;

    webhook.remove().await;
    site.until(CONFIG_MAP, REFUSED, "created again", |object| {
        object["data"]["key"] == "one"
    })
    .await;
    site.until(APPLICATION, "shop", "without StateKeep", |app| {
        condition(app, "StateKeep").is_null() && condition(app, "Ready")["status"] == "True"
    })
    .await;
}
