//! Reviews with an API server that has Deployments and Services, and an evaluator that knows templates by heart.

mod validation;
mod workload;

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use axum::http;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::controllers::oam::webhooks::review::AdmissionReview;
use crate::cue::{Error, Inspection, TemplateKind, TextErrorKind, TextErrors};

const NAMESPACE: &str = "team";

/// Templates are words: each has a result of its own.
#[derive(Clone, Default)]
struct FakeEvaluator {
    requests: Arc<Mutex<Vec<(String, String, bool)>>>,
}

impl InspectTemplate for FakeEvaluator {
    async fn inspect(&self, namespace: &str, template: &str, is_compiled: bool) -> Result<Inspection, Error> {
        let request = (namespace.to_owned(), template.to_owned(), is_compiled);
        self.requests.lock().push(request);
        let kind = |api_version: &str, kind: &str| TemplateKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        };
        let kinds = match template {
            "installed" => vec![
                kind("apps/v1", "Deployment"),
                kind("v1", "Service"),
                kind("v1", "Service"),
            ],
            "missing" => vec![kind("apps/v1", "Deployment"), kind("apps/v1", "Widget")],
            "path" => vec![kind("apps/../v1", "Service")],
            "down" => vec![kind("down.example.com/v1", "Widget")],
            _ => Vec::new(),
        };
        match template {
            "broken" => Err(Error::Failed {
                kind: TextErrorKind::Conflict,
                errors: TextErrors::from_text("a: conflicting values 1 and 2"),
            }),
            "long" => Err(Error::Timeout(std::time::Duration::from_secs(2))),
            "huge" => Err(Error::Memory(512 << 20)),
            "crash" => Err(Error::Crashed("exit status: 2".to_owned())),
            "slow" => pending().await,
            _ => Ok(Inspection {
                may_be_rewritten: template == "old",
                kinds,
                ..Inspection::default()
            }),
        }
    }
}

/// Objects by path, and the requests for others than kinds.
#[derive(Clone, Default)]
struct Server {
    objects: Arc<Mutex<Vec<(String, Value)>>>,
    requests: Arc<Mutex<Vec<String>>>,
    discoveries: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn with(path: &str, object: Value) -> Self {
        let server = Self::default();
        server.objects.lock().push((path.to_owned(), object));
        server
    }

    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let (code, body) = server.respond(&request);
            let response = http::Response::builder().status(code);
            let response = response.body(Body::from(body.to_string().into_bytes())).unwrap();
            ready(Ok::<_, Infallible>(response))
        });
        Client::new(service, "default")
    }

    fn respond(&self, request: &http::Request<Body>) -> (u16, Value) {
        let path = request.uri().path();
        let kinds = |version: &str, kinds: &[(&str, &str)]| {
            let resource = |(name, kind): &(&str, &str)| json!({ "name": name, "kind": kind, "namespaced": true, "singularName": "", "verbs": ["list"] });
            let resources: Vec<_> = kinds.iter().map(resource).collect();
            self.discoveries.lock().push(version.to_owned());
            (
                200,
                json!({ "kind": "APIResourceList", "groupVersion": version, "resources": resources }),
            )
        };
        match path {
            "/apis/apps/v1" => kinds(
                "apps/v1",
                &[("deployments", "Deployment"), ("deployments/scale", "Scale")],
            ),
            "/api/v1" => kinds("v1", &[("services", "Service")]),
            "/apis/down.example.com/v1" => status(503, "ServiceUnavailable"),
            _ => {
                self.requests.lock().push(format!("{} {path}", request.method()));
                if request.method() == http::Method::POST {
                    return (201, json!({ "metadata": { "name": "created" }, "spec": {} }));
                }
                let objects = self.objects.lock();
                match objects.iter().find(|(name, _)| name == path) {
                    Some((_, object)) => (200, object.clone()),
                    None => status(404, "NotFound"),
                }
            }
        }
    }
}

fn status(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason });
    (code, status)
}

struct Fixture {
    webhooks: DefinitionWebhooks<FakeEvaluator>,
    server: Server,
}

impl Fixture {
    fn new(server: Server) -> Self {
        Self {
            webhooks: DefinitionWebhooks {
                client: server.client(),
                evaluator: FakeEvaluator::default(),
                budgets: Budgets::default(),
                creates_workload_definitions: true,
                requires_kinds: false,
            },
            server,
        }
    }

    fn requiring_kinds() -> Self {
        let mut fixture = Self::new(Server::default());
        fixture.webhooks.requires_kinds = true;
        fixture
    }

    /// Tasks that review may move between threads.
    fn validate<'a>(&'a self, kind: DefinitionKind, request: &'a AdmissionRequest) -> BoxFuture<'a, Verdict> {
        self.webhooks.validate(kind, request).boxed()
    }

    fn mutate<'a>(&'a self, request: &'a AdmissionRequest) -> BoxFuture<'a, Verdict> {
        self.webhooks.mutate_component(request).boxed()
    }
}

fn kind_name(kind: DefinitionKind) -> String {
    format!("{}Definition", kind.type_name())
}

fn reviewed(kind: DefinitionKind, operation: &str, object: &Value, more: &[(&str, Value)]) -> AdmissionRequest {
    let resource = format!("{}s", kind_name(kind).to_lowercase());
    let mut request = json!({
        "uid": "7", "operation": operation, "namespace": NAMESPACE, "object": object,
        "resource": { "group": "core.oam.dev", "version": "v1beta1", "resource": resource },
    });
    for (name, value) in more {
        request[name] = value.clone();
    }
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    AdmissionReview::parse(review.to_string().as_bytes()).unwrap()
}

fn created(kind: DefinitionKind, object: &Value) -> AdmissionRequest {
    reviewed(kind, "CREATE", object, &[])
}

fn definition(spec: Value) -> Value {
    json!({ "metadata": { "name": "web", "namespace": NAMESPACE }, "spec": spec })
}

fn template(text: &str) -> Value {
    json!({ "schematic": { "cue": { "template": text } }, "workload": { "type": "autodetects.core.oam.dev" } })
}

fn warnings(verdict: Verdict) -> Vec<String> {
    match verdict {
        Verdict::Allowed { patch, warnings } if patch.is_empty() => warnings,
        other => panic!("{other:?}"),
    }
}

fn denied(text: &str) -> Verdict {
    Verdict::Denied(format!("{text} (requestUID=7)"))
}

fn with_workload(type_: &str, api_version: &str, kind: &str) -> Value {
    definition(json!({ "workload": { "type": type_, "definition": { "apiVersion": api_version, "kind": kind } } }))
}
