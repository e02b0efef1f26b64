//! An HTTP server on loopback that records requests with their bodies.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde_json::Value;
use tokio::net::TcpListener;

/// A recorded request.
#[derive(Clone, Debug)]
pub struct Received {
    /// Like `POST /path`.
    pub line: String,
    pub token: Option<String>,
    pub body: Value,
}

type Requests = Arc<Mutex<Vec<Received>>>;

/// Responds to `/hang` never, to `/<status>` with that status, and to other paths with `{"color": "blue"}`.
pub struct Receiver {
    base: String,
    requests: Requests,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let requests = Requests::default();
        let router = Router::new().fallback(respond).with_state(Arc::clone(&requests));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base, requests }
    }

    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Returns the requests of a path.
    pub fn received(&self, path: &str) -> Vec<Received> {
        let requests = self.requests.lock().unwrap();
        let of_path = requests.iter().filter(|request| request.line.ends_with(path));
        of_path.cloned().collect()
    }
}

async fn respond(State(requests): State<Requests>, request: Request) -> (StatusCode, &'static str) {
    let path = request.uri().path().to_owned();
    let line = format!("{} {path}", request.method());
    let token = request
        .headers()
        .get("x-token")
        .map(|token| token.to_str().unwrap().to_owned());
    let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    requests.lock().unwrap().push(Received { line, token, body });
    if path == "/hang" {
        std::future::pending::<()>().await;
    }
    match path
        .trim_start_matches('/')
        .parse()
        .ok()
        .and_then(|code| StatusCode::from_u16(code).ok())
    {
        Some(status) => (status, "{}"),
        None => (StatusCode::OK, "{\"color\": \"blue\"}"),
    }
}
