//! A receiver of news on loopback that records requests.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response};
use ring::hmac;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::eventually::{SOON, eventually};

#[derive(Clone)]
pub enum Answer {
    Status(u16),
    /// This status once, then 200.
    Once(u16),
    Redirect(String),
    /// 400 if the body contains the text, else 200.
    RejectsText(&'static str),
    Never,
}

#[derive(Clone)]
pub struct Received {
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// Verifies the signature as the receivers of Flux of type `generic-hmac` do: algorithm, `=`, hexadecimal digest.
    pub fn is_accepted_by_flux(&self, key: &str) -> bool {
        let Some(header) = self.headers.get("x-signature") else {
            return false;
        };
        let digest = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), &self.body);
        let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        header.to_str().unwrap().split_once('=') == Some(("sha256", digest.as_str()))
    }
}

struct Shared {
    answer: Mutex<Answer>,
    requests: Mutex<Vec<Received>>,
}

pub struct SinkServer {
    /// With a path that is a secret.
    pub url: String,
    shared: Arc<Shared>,
}

impl SinkServer {
    pub async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/hunter2", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            answer: Mutex::new(answer),
            requests: Mutex::default(),
        });
        let service = Router::new().fallback(answer_request).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, service).await });
        Self { url, shared }
    }

    pub fn answer(&self, answer: Answer) {
        *self.shared.answer.lock().unwrap() = answer;
    }

    pub fn requests(&self) -> Vec<Received> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Waits until there are this many requests, and returns the last one of them.
    pub async fn request(&self, count: usize) -> Received {
        eventually(SOON, &format!("request {count} of a sink"), async || {
            let requests = self.requests();
            requests
                .get(count - 1)
                .cloned()
                .ok_or_else(|| format!("{} requests", requests.len()))
        })
        .await
    }

    /// Waits until a request contains the text, and returns it.
    pub async fn request_with(&self, text: &str) -> Received {
        eventually(SOON, &format!("a request with {text}"), async || {
            let requests = self.requests();
            requests.into_iter().find(|request| request.text().contains(text))
        })
        .await
    }
}

async fn answer_request(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    let text = String::from_utf8_lossy(&body).into_owned();
    let received = Received {
        headers: parts.headers,
        body,
    };
    shared.requests.lock().unwrap().push(received);
    let answer = {
        let mut answer = shared.answer.lock().unwrap();
        let next = if matches!(*answer, Answer::Once(_)) {
            Answer::Status(200)
        } else {
            answer.clone()
        };
        std::mem::replace(&mut *answer, next)
    };
    let response = Response::builder();
    let response = match answer {
        Answer::Status(status) | Answer::Once(status) => response.status(status),
        Answer::Redirect(location) => response.status(307).header("location", location),
        Answer::RejectsText(rejected) => response.status(if text.contains(rejected) { 400 } else { 200 }),
        Answer::Never => std::future::pending().await,
    };
    response.body(Body::empty()).unwrap()
}

/// Starts a server that sends a byte of its response each second, and returns its URL.
pub async fn trickling_server() -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" {
                    if stream.write_all(&[*byte]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            });
        }
    });
    url
}
