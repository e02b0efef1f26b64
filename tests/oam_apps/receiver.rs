//! An HTTP server on loopback that records requests with their bodies.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Bytes of each part of a body of 1 GiB.
const PART: usize = 64 << 10;

/// A recorded request.
#[derive(Clone, Debug)]
pub struct Received {
    /// Like `POST /path`.
    pub line: String,
    pub token: Option<String>,
    /// JSON, or else text.
    pub body: Value,
}

#[derive(Default)]
struct Shared {
    requests: Mutex<Vec<Received>>,
    /// The result of queries.
    sample: Mutex<String>,
}

/// Responds to paths below `/hang` never, below `/huge` with 1 GiB, to `/<status>` with that status, to queries below
/// `/prometheus` with the sample, and to other paths with `{"color": "blue"}`.
pub struct Receiver {
    base: String,
    shared: Arc<Shared>,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::<Shared>::default();
        let router = Router::new().fallback(respond).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base, shared }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sets the result of queries to Prometheus.
    pub fn set_sample(&self, value: &str) {
        value.clone_into(&mut self.shared.sample.lock().unwrap());
    }

    /// Returns the requests of a path.
    pub fn received(&self, path: &str) -> Vec<Received> {
        let requests = self.shared.requests.lock().unwrap();
        let of_path = requests.iter().filter(|request| request.line.ends_with(path));
        of_path.cloned().collect()
    }
}

async fn respond(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let line = format!("{} {path}", request.method());
    let token = request
        .headers()
        .get("x-token")
        .map(|token| token.to_str().unwrap().to_owned());
    let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
    let text = || {
        if body.is_empty() {
            Value::Null
        } else {
            Value::from(String::from_utf8_lossy(&body))
        }
    };
    let body = serde_json::from_slice(&body).unwrap_or_else(|_| text());
    shared.requests.lock().unwrap().push(Received { line, token, body });
    match path.split('/').nth(1).unwrap_or_default() {
        "hang" => std::future::pending().await,
        "huge" => huge(),
        "prometheus" => {
            let sample = shared.sample.lock().unwrap().clone();
            let data =
                json!({ "resultType": "vector", "result": [{ "metric": {}, "value": [1_700_000_000, sample] }] });
            json!({ "status": "success", "data": data }).to_string().into_response()
        }
        code => match code.parse().ok().and_then(|code| StatusCode::from_u16(code).ok()) {
            Some(status) => (status, "{}").into_response(),
            None => "{\"color\": \"blue\"}".into_response(),
        },
    }
}

fn huge() -> Response {
    let part = Bytes::from(vec![b' '; PART]);
    let parts = stream::repeat(part).take((1 << 30) / PART);
    Body::from_stream(parts.map(Ok::<_, Infallible>)).into_response()
}
