//! A namespace whose Applications and definitions are reviewed.

use std::time::Duration;

use http::Request;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::client::Body;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::applications::resource;
use crate::oam_apps::site::Site;
use crate::support::eventually::{SOON, eventually};
use crate::support::portolan::Portolan;
use crate::support::ports::free_port;

pub const SERVICE: &str = "portolan-webhook";
const MUTATING: &str = "admissionregistration.k8s.io/v1 MutatingWebhookConfiguration";
const VALIDATING: &str = "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration";
const KINDS: [(&str, &[&str]); 2] = [
    ("mutating", &["applications", "componentdefinitions"]),
    (
        "validating",
        &[
            "applications",
            "componentdefinitions",
            "traitdefinitions",
            "policydefinitions",
            "workflowstepdefinitions",
        ],
    ),
];

pub struct Reviewed {
    pub site: Site,
    pub port: u16,
}

/// The response of the API server to a write.
#[derive(Debug)]
pub struct Written {
    pub code: u16,
    pub warnings: Vec<String>,
    pub body: Value,
}

impl Written {
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Reviewed {
    /// A namespace with webhooks that nothing serves yet.
    pub async fn new(failure_policy: &str) -> Self {
        let reviewed = Self {
            site: Site::new().await,
            port: free_port(),
        };
        reviewed.configure(failure_policy, None).await;
        reviewed
    }

    /// Creates the Service and the configurations.
    pub async fn configure(&self, failure_policy: &str, ca_bundle: Option<&str>) {
        let namespace = &self.site.namespace;
        let service = json!({ "spec": { "type": "ExternalName", "externalName": "localhost" } });
        self.site.apply("v1 Service", SERVICE, service).await;
        for ((prefix, resources), kind) in KINDS.into_iter().zip([MUTATING, VALIDATING]) {
            let webhooks = resources.iter().map(|resource| {
                json!({
                    "name": format!("{prefix}.core.oam.dev.v1beta1.{resource}"),
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "NoneOnDryRun",
                    "failurePolicy": failure_policy,
                    "timeoutSeconds": 10,
                    "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": namespace } },
                    "clientConfig": {
                        "caBundle": ca_bundle,
                        "service": {
                            "namespace": namespace, "name": SERVICE, "port": self.port,
                            "path": format!("/{prefix}-core-oam-dev-v1beta1-{resource}"),
                        },
                    },
                    "rules": [{
                        "apiGroups": ["core.oam.dev"], "apiVersions": ["v1beta1"], "operations": ["CREATE", "UPDATE"],
                        "resources": [resource], "scope": "Namespaced",
                    }],
                })
            });
            let (version, word) = kind.split_once(' ').unwrap();
            let configuration = json!({
                "apiVersion": version, "kind": word, "metadata": { "name": self.configuration() },
                "webhooks": webhooks.collect::<Vec<_>>(),
            });
            let api: Api<DynamicObject> = Api::all_with(self.site.control_plane.client().await, &resource(kind));
            let apply = PatchParams::apply("tests").force();
            api.patch(&self.configuration(), &apply, &Patch::Apply(configuration))
                .await
                .unwrap();
        }
    }

    pub fn configuration(&self) -> String {
        format!("{}-admission", self.site.namespace)
    }

    /// The flags of the webhooks, with a certificate of Portolan's own.
    pub fn flags(&self) -> Vec<String> {
        let port = self.port;
        vec![
            "--use-webhook".to_owned(),
            format!("--webhook-port={port}"),
            "--webhook-self-signed".to_owned(),
            format!("--webhook-service={SERVICE}"),
            format!("--webhook-configuration={}", self.configuration()),
            format!("--namespace={}", self.site.namespace),
        ]
    }

    /// Starts Portolan, and waits until the API server calls its webhooks.
    pub async fn portolan(&self, more: &[&str]) -> Portolan {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let portolan = self.site.portolan(&flags).await;
        self.until_called().await;
        portolan
    }

    /// Waits until webhooks of both kinds answer.
    pub async fn until_called(&self) {
        // A step without a name is one that a webhook has not changed.
        let app = application(
            "canary",
            json!({ "components": [], "workflow": { "steps": [{ "type": "suspend" }] } }),
        );
        eventually(SOON, "the webhooks to be called", async || {
            let written = self.create_dry("applications", &app).await;
            let name = written.body["spec"]["workflow"]["steps"][0]["name"].as_str();
            match (written.code, name) {
                (201, Some("step-0")) => Ok(()),
                _ => Err(format!("{written:?}")),
            }
        })
        .await;
    }

    pub async fn create(&self, resource: &str, object: &Value) -> Written {
        self.write("POST", resource, "", object, None).await
    }

    pub async fn create_dry(&self, resource: &str, object: &Value) -> Written {
        self.write("POST", resource, "?dryRun=All", object, None).await
    }

    /// Merges a change.
    pub async fn change(&self, resource: &str, name: &str, change: &Value) -> Written {
        self.write("PATCH", resource, &format!("/{name}"), change, None).await
    }

    /// Writes as a user with a group.
    pub async fn write(
        &self,
        method: &str,
        resource: &str,
        rest: &str,
        object: &Value,
        user: Option<(&str, &[&str])>,
    ) -> Written {
        let client = self.site.control_plane.client().await;
        let path = format!(
            "/apis/core.oam.dev/v1beta1/namespaces/{}/{resource}{rest}",
            self.site.namespace
        );
        send(&client, method, &path, object, user).await
    }
}

async fn send(client: &Client, method: &str, path: &str, object: &Value, user: Option<(&str, &[&str])>) -> Written {
    let content = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content);
    if let Some((user, groups)) = user {
        request = request.header("impersonate-user", user);
        for group in groups {
            request = request.header("impersonate-group", *group);
        }
    }
    let request = request.body(Body::from(object.to_string().into_bytes())).unwrap();
    let response = tokio::time::timeout(Duration::from_secs(30), client.send(request))
        .await
        .unwrap()
        .unwrap();
    let (parts, body) = response.into_parts();
    let warnings = parts.headers.get_all("warning").iter();
    Written {
        code: parts.status.as_u16(),
        warnings: warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect(),
        body: serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default(),
    }
}

pub fn application(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": { "name": name }, "spec": spec,
    })
}

pub fn definition(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "core.oam.dev/v1beta1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

pub fn template(text: &str) -> Value {
    json!({ "cue": { "template": text } })
}
