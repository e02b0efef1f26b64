//! A collector of traces (OTLP over HTTP with protobuf) that keeps what it receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;

pub struct Receiver {
    pub url: String,
    requests: Arc<Mutex<Vec<Bytes>>>,
}

/// A decoded span.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    pub name: String,
    pub id: Vec<u8>,
    pub parent: Vec<u8>,
    pub trace: Vec<u8>,
    pub is_error: bool,
    pub attributes: BTreeMap<String, String>,
}

impl Receiver {
    pub async fn start() -> Self {
        let requests = Arc::<Mutex<Vec<Bytes>>>::default();
        let received = Arc::clone(&requests);
        let receive = async move |body: Bytes| {
            received.lock().push(body);
            StatusCode::OK
        };
        let routes = Router::new().route("/v1/traces", post(receive));
        let routes = routes.layer(DefaultBodyLimit::max(64 << 20));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Self { url, requests }
    }

    /// Returns all bytes received so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.requests.lock().concat()
    }

    /// Returns all spans received so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        let requests = self.requests.lock().clone();
        let requests = requests
            .into_iter()
            .map(|body| ExportTraceServiceRequest::decode(body).expect("the body is a request in protobuf"));
        let resources = requests.flat_map(|request| request.resource_spans);
        let scopes = resources.flat_map(|resource| resource.scope_spans);
        scopes.flat_map(|scope| scope.spans).map(received).collect()
    }

    /// Returns the value of an attribute of the process that sent the spans.
    pub fn resource(&self, key: &str) -> Option<String> {
        let body = self.requests.lock().first()?.clone();
        let request = ExportTraceServiceRequest::decode(body).unwrap();
        let resource = request.resource_spans.first()?.resource.clone()?;
        let attribute = resource.attributes.into_iter().find(|attribute| attribute.key == key)?;
        Some(text(attribute.value?.value?))
    }
}

fn received(span: Span) -> ReceivedSpan {
    let attributes = span.attributes.into_iter();
    let attributes = attributes.filter_map(|attribute| Some((attribute.key, text(attribute.value?.value?))));
    ReceivedSpan {
        name: span.name,
        id: span.span_id,
        parent: span.parent_span_id,
        trace: span.trace_id,
        is_error: span.status.is_some_and(|status| status.code == 2),
        attributes: attributes.collect(),
    }
}

fn text(value: Value) -> String {
    match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}
