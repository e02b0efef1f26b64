use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

type Hook = Box<dyn FnOnce(&ApiServer) + Send>;

/// An API server with the objects of the tests, by path.
#[derive(Clone, Default)]
pub(super) struct ApiServer(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    version: u64,
    objects: BTreeMap<String, Value>,
    requests: Vec<String>,
    failures: BTreeMap<Method, u16>,
    /// Runs before the next request of a method, as a replica that is faster.
    hook: Option<(Method, Hook)>,
}

pub(super) const SECRET: &str = "/api/v1/namespaces/vela-system/secrets/portolan-webhooks";

pub(super) fn configuration_path(kind: &str) -> String {
    format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/portolan")
}

impl ApiServer {
    pub(super) fn with_configurations() -> Self {
        let server = Self::default();
        for kind in ["mutating", "validating"] {
            server.add_configuration(kind);
        }
        server
    }

    /// Adds a configuration with a webhook of the Service and one of another.
    pub(super) fn add_configuration(&self, kind: &str) {
        let webhook = |name: &str, service: &str| {
            json!({
                "name": name, "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "clientConfig": { "service": { "namespace": "vela-system", "name": service, "path": "/" } },
            })
        };
        let kind_name = if kind == "mutating" {
            "MutatingWebhookConfiguration"
        } else {
            "ValidatingWebhookConfiguration"
        };
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind_name, "metadata": { "name": "portolan" },
            "webhooks": [webhook("other.example", "other"), webhook("applications.example", "portolan-webhooks")],
        });
        self.put(&configuration_path(kind), configuration);
    }

    pub(super) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.0.lock();
        state.version += 1;
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.objects.insert(path.to_owned(), object);
    }

    pub(super) fn put_secret(&self, secret: &Secret) {
        self.put(SECRET, serde_json::to_value(secret).unwrap());
    }

    pub(super) fn delete(&self, path: &str) {
        self.0.lock().objects.remove(path);
    }

    pub(super) fn object(&self, path: &str) -> Value {
        self.0.lock().objects[path].clone()
    }

    pub(super) fn secret(&self) -> Secret {
        serde_json::from_value(self.object(SECRET)).unwrap()
    }

    /// Returns the CAs that a configuration has for the Service and for the other one.
    pub(super) fn cas(&self, kind: &str) -> (Option<String>, Option<String>) {
        let configuration = self.object(&configuration_path(kind));
        let ca = |index: usize| {
            let bundle = &configuration["webhooks"][index]["clientConfig"]["caBundle"];
            let bundle: Option<k8s_openapi::ByteString> = serde_json::from_value(bundle.clone()).unwrap();
            bundle.map(|bundle| String::from_utf8(bundle.0).unwrap())
        };
        (ca(1), ca(0))
    }

    pub(super) fn fail(&self, method: Method, code: u16) {
        self.0.lock().failures.insert(method, code);
    }

    pub(super) fn recover(&self) {
        self.0.lock().failures.clear();
    }

    pub(super) fn before(&self, method: Method, hook: impl FnOnce(&Self) + Send + 'static) {
        self.0.lock().hook = Some((method, Box::new(hook)));
    }

    /// Returns the requests since the last call, each as a method and the end of its path.
    pub(super) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().requests)
    }

    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let (code, answer) = server.respond(&parts.method, parts.uri.path(), body);
                let response = Response::builder().status(code);
                Ok::<_, Infallible>(response.body(Body::from(answer.to_string().into_bytes())).unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn respond(&self, method: &Method, path: &str, body: Value) -> (u16, Value) {
        let hook = {
            let mut state = self.0.lock();
            let end = path
                .trim_end_matches("/portolan")
                .rsplit('/')
                .next()
                .unwrap_or_default();
            state.requests.push(format!("{method} {end}"));
            state.hook.take_if(|(of, _)| of == method)
        };
        if let Some((_, hook)) = hook {
            hook(self);
        }
        if let Some(code) = self.0.lock().failures.get(method) {
            return failure(*code);
        }
        let path = if *method == Method::POST { SECRET } else { path };
        let stored = self.0.lock().objects.get(path).cloned();
        let object = match (method.as_str(), stored) {
            ("GET", Some(stored)) => return (200, stored),
            ("POST", None) => body,
            ("PUT", Some(stored)) if stored["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"] => {
                body
            }
            ("POST" | "PUT", Some(_)) => return failure(409),
            ("PATCH", Some(mut stored)) => {
                let operations: json_patch::Patch = serde_json::from_value(body).unwrap();
                if json_patch::patch(&mut stored, &operations).is_err() {
                    return failure(422);
                }
                stored
            }
            _ => return failure(404),
        };
        self.put(path, object);
        (200, self.object(path))
    }
}

fn failure(code: u16) -> (u16, Value) {
    let reason = match code {
        404 => "NotFound",
        409 => "AlreadyExists",
        _ => "Other",
    };
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "no",
    });
    (code, status)
}
