use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::events::{self, EventType, Recorder, Reporter};
use kube::{Client, Resource};

use super::kube_client::call;
use crate::text::sanitize;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub is_warning: bool,
    pub reason: String,
    pub note: String,
}

impl Event {
    #[must_use]
    pub fn normal(reason: &str, note: impl Into<String>) -> Self {
        Self {
            is_warning: false,
            reason: reason.to_owned(),
            note: note.into(),
        }
    }

    #[must_use]
    pub fn warning(reason: &str, note: impl Into<String>) -> Self {
        Self {
            is_warning: true,
            ..Self::normal(reason, note)
        }
    }
}

#[derive(Clone)]
pub struct EventPublisher {
    client: Client,
    reporter: Reporter,
    /// A missing right fails all events; one line says so until an event is published.
    is_failure_logged: Arc<AtomicBool>,
}

impl EventPublisher {
    #[must_use]
    pub fn new(client: Client, controller: &str) -> Self {
        let reporter = Reporter {
            controller: controller.to_owned(),
            instance: std::env::var("POD_NAME").ok(),
        };
        Self {
            client,
            reporter,
            is_failure_logged: Arc::default(),
        }
    }

    /// Failures are logged only, the first of several in a row as a warning.
    pub async fn publish<K: Resource<DynamicType = ()>>(&self, meta: &ObjectMeta, action: &str, event: Event) {
        let reference = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            ..ObjectReference::default()
        };
        let event = events::Event {
            type_: if event.is_warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: event.reason,
            // The API server accepts notes of 1,024 bytes.
            note: Some(sanitize(&event.note)),
            action: action.to_owned(),
            secondary: None,
        };
        // A shared recorder counts a second event of the same reason as a repetition and drops its note.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        match call(recorder.publish(&event, &reference)).await {
            Ok(()) => self.is_failure_logged.store(false, Ordering::Relaxed),
            Err(error) if self.is_failure_logged.swap(true, Ordering::Relaxed) => {
                tracing::debug!(namespace, name, reason = event.reason, %error, "failed to publish event");
            }
            Err(error) => {
                tracing::warn!(namespace, name, reason = event.reason, %error, "failed to publish event");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::client::Body;
    use parking_lot::Mutex;

    use super::*;
    use crate::text::{MAX_TEXT, is_control, is_invisible};

    #[tokio::test]
    async fn a_hostile_note_is_cut_and_loses_control_and_invisible_characters() {
        let sent = Arc::<Mutex<Vec<serde_json::Value>>>::default();
        let received = Arc::clone(&sent);
        let server = tower::service_fn(move |request: Request<Body>| {
            let received = Arc::clone(&received);
            async move {
                let bytes = axum::body::to_bytes(axum::body::Body::new(request.into_body()), 1 << 20).await;
                let event: serde_json::Value = serde_json::from_slice(&bytes.unwrap()).unwrap();
                received.lock().push(event.clone());
                Ok::<_, std::convert::Infallible>(Response::new(Body::from(event.to_string().into_bytes())))
            }
        });
        let publisher = EventPublisher::new(Client::new(server, "default"), "tests");
        let meta = ObjectMeta {
            namespace: Some("default".to_owned()),
            name: Some("a".to_owned()),
            ..ObjectMeta::default()
        };
        let note = "\u{202e}x\u{200b}\u{1b}[31m\n".repeat(40_000);
        publisher
            .publish::<ConfigMap>(&meta, "Test", Event::warning("Hostile", note))
            .await;
        let sent = sent.lock();
        let note = sent[0]["note"].as_str().unwrap();
        assert!(note.contains('x') && note.len() <= MAX_TEXT, "{}", note.len());
        assert!(!note.contains(|c| is_control(c) || is_invisible(c)), "{note:?}");
    }
}
