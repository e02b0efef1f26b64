//! Reads from the API server with the token of a caller, so that the API server decides what the caller sees. This process
//! has no rights of its own for these reads.
//!
//! ```text
//!  token ─► permit ─► GET ─► body: 8 MiB, memory ─► decode, beside the runtime
//! ```

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header};
use futures::TryStreamExt;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::access::CallerToken;
use crate::budget::{Budget, Budgets, Reservation};
use crate::runtime::fair_semaphore::{FairLimits, FairPermit, FairSemaphore, Requester};
use crate::text::sanitize;

/// Reads at once, of all callers and of one.
const TOTAL: usize = 16;
const PER_CALLER: usize = 4;
/// Includes the wait for a permit. Less than the time that a request has.
const TIME_LIMIT: Duration = Duration::from_secs(5);
const MAX_BODY: usize = 8 << 20;
/// Size of a body that needs no reservation.
const SMALL: usize = 1 << 20;
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The content of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Objects,
    Metadata,
}

impl Content {
    const fn media_type(self) -> &'static str {
        match self {
            Self::Objects => "application/json",
            Self::Metadata => METADATA,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReadError {
    /// The API server's own words.
    #[error("{message}")]
    Refused { status: StatusCode, message: String },
    #[error("the response of the API server takes more than {} MiB", MAX_BODY >> 20)]
    TooLarge,
    #[error("the API server did not respond in time")]
    Unavailable,
    #[error("the response of the API server can't be decoded")]
    Unreadable,
}

pub struct ClusterReader {
    client: Client,
    permits: FairSemaphore,
    memory: Budget,
}

/// A response, which holds a permit and memory until it is decoded.
struct Answer {
    status: StatusCode,
    body: Vec<u8>,
    _memory: Option<Reservation>,
    _permit: FairPermit,
}

impl Answer {
    fn decode<T: DeserializeOwned>(self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.body)
    }
}

impl ClusterReader {
    /// `client` must send no credentials of its own.
    #[must_use]
    pub fn new(client: Client, budgets: &Budgets) -> Self {
        let limits = FairLimits {
            total: TOTAL,
            per_object: PER_CALLER,
        };
        Self {
            client,
            permits: FairSemaphore::new(limits, budgets.metrics().of("caller_reads", TOTAL as u64)),
            memory: budgets.memory.clone(),
        }
    }

    /// Gets an object or a list. `path` has the query.
    pub(super) async fn get<T>(&self, token: &CallerToken, path: &str, content: Content) -> Result<T, ReadError>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let answer = timeout(TIME_LIMIT, self.send(token, path, content)).await;
        let answer = answer.unwrap_or(Err(ReadError::Unavailable))?;
        if !answer.status.is_success() {
            return Err(refusal(answer.status, &answer.body));
        }
        let decoded = spawn_blocking(move || answer.decode()).await;
        decoded.map_err(|_| ReadError::Unreadable)?.map_err(|error| {
            tracing::debug!(%error, "failed to decode a response of the API server");
            ReadError::Unreadable
        })
    }

    async fn send(&self, token: &CallerToken, path: &str, content: Content) -> Result<Answer, ReadError> {
        let caller = token.name();
        let permit = self.permits.acquire(Requester {
            class: String::new(),
            group: caller.clone(),
            object: caller.clone(),
        });
        let permit = permit.await;
        let request = Request::get(path)
            .header(header::ACCEPT, content.media_type())
            .header(header::AUTHORIZATION, token.authorization())
            .body(kube::client::Body::empty());
        let request = request.map_err(|_| ReadError::Unavailable)?;
        let response = self.client.send(request).await.map_err(|error| {
            tracing::debug!(%error, "failed to read from the API server for a caller");
            ReadError::Unavailable
        })?;
        let (head, body) = response.into_parts();
        let (body, memory) = self.collect(&caller, Body::new(body)).await?;
        Ok(Answer {
            status: head.status,
            body,
            _memory: memory,
            _permit: permit,
        })
    }

    async fn collect(&self, caller: &str, body: Body) -> Result<(Vec<u8>, Option<Reservation>), ReadError> {
        let mut chunks = body.into_data_stream();
        let (mut bytes, mut memory) = (Vec::new(), None);
        while let Some(chunk) = next(&mut chunks).await? {
            let size = bytes.len() + chunk.len();
            if size > MAX_BODY {
                return Err(ReadError::TooLarge);
            }
            if size > SMALL && memory.is_none() {
                // The time limit of the read ends this wait.
                memory = Some(self.memory.acquire(caller, MAX_BODY as u64).await);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok((bytes, memory))
    }
}

async fn next(chunks: &mut axum::body::BodyDataStream) -> Result<Option<Bytes>, ReadError> {
    chunks.try_next().await.map_err(|error| {
        tracing::debug!(%error, "failed to read a response of the API server");
        ReadError::Unavailable
    })
}

/// Proxies and webhooks of authorization decide about some of these texts.
fn refusal(status: StatusCode, body: &[u8]) -> ReadError {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        message: String,
    }

    let answer: Status = serde_json::from_slice(body).unwrap_or_default();
    let message = if answer.message.is_empty() {
        format!("the API server responded with {status}")
    } else {
        sanitize(&answer.message)
    };
    ReadError::Refused { status, message }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::Response;
    use futures::future::join_all;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;
    use crate::budget::Sizes;

    type Sent = Request<kube::client::Body>;

    fn reader<F>(respond: impl Fn(Sent) -> F + Send + 'static) -> ClusterReader
    where
        F: Future<Output = (u16, Vec<u8>)> + Send + 'static,
    {
        let service = tower::service_fn(move |request: Sent| {
            let response = respond(request);
            async move {
                let (status, body) = response.await;
                let response = Response::builder().status(status);
                Ok::<_, Infallible>(response.body(kube::client::Body::from(body)).unwrap())
            }
        });
        ClusterReader::new(Client::new(service, "default"), &Budgets::new(Sizes::default()))
    }

    async fn get(reader: &ClusterReader, token: &str) -> Result<Value, ReadError> {
        let token = CallerToken::new(token).unwrap();
        reader.get(&token, "/apis?limit=1", Content::Objects).await
    }

    #[tokio::test]
    async fn the_token_of_the_caller_is_the_only_credential() {
        let reader = reader(|request: Sent| async move {
            let headers = request.headers();
            let sent = json!({
                "path": request.uri().to_string(),
                "accept": headers[header::ACCEPT].to_str().unwrap(),
                "authorization": headers[header::AUTHORIZATION].to_str().unwrap(),
                "count": headers.get_all(header::AUTHORIZATION).iter().count(),
            });
            assert!(headers[header::AUTHORIZATION].is_sensitive());
            (200, sent.to_string().into_bytes())
        });
        let sent = get(&reader, "abc").await.unwrap();
        let expected = json!({
            "path": "/apis?limit=1", "accept": "application/json", "authorization": "Bearer abc", "count": 1,
        });
        assert_eq!(sent, expected);
    }

    #[tokio::test]
    async fn a_refusal_has_the_words_of_the_api_server() {
        let reader = reader(|_| async { (403, br#"{"message":"applications is forbidden\u0007"}"#.to_vec()) });
        let refused = get(&reader, "abc").await.unwrap_err();
        assert_eq!(refused.to_string(), "applications is forbidden ");
        let reader = self::reader(|_| async { (502, b"<html>".to_vec()) });
        let refused = get(&reader, "abc").await.unwrap_err();
        assert!(refused.to_string().contains("502"), "{refused}");
    }

    #[tokio::test]
    async fn large_and_unreadable_responses_are_errors() {
        let reader = reader(|_| async { (200, vec![b' '; MAX_BODY + 1]) });
        assert_eq!(get(&reader, "abc").await, Err(ReadError::TooLarge));
        let reader = self::reader(|_| async { (200, b"{".to_vec()) });
        assert_eq!(get(&reader, "abc").await, Err(ReadError::Unreadable));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_does_not_use_up_the_permits_of_others_and_a_read_ends_in_time() {
        let open = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&open);
        let reader = reader(move |request: Sent| {
            let is_hanging = request.headers()[header::AUTHORIZATION] == "Bearer hanging";
            counted.fetch_add(usize::from(is_hanging), Ordering::Relaxed);
            async move {
                if is_hanging {
                    std::future::pending::<()>().await;
                }
                (200, b"{}".to_vec())
            }
        });
        let start = Instant::now();
        let hanging = join_all((0..64).map(|_| get(&reader, "hanging")));
        let others = async {
            // Once the others are sent.
            tokio::task::yield_now().await;
            get(&reader, "abc").await.unwrap();
            (start.elapsed(), open.load(Ordering::Relaxed))
        };
        let (hanging, (elapsed, sent)) = futures::join!(hanging, others);
        assert!(hanging.iter().all(|read| *read == Err(ReadError::Unavailable)));
        assert!(elapsed < TIME_LIMIT && sent <= PER_CALLER, "{elapsed:?} {sent}");
        assert!(start.elapsed() < 2 * TIME_LIMIT);
    }
}
