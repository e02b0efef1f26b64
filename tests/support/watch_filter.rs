//! Removes events from a watch, or ends it at one of them.

use std::fmt;
use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::Response;
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::fault_proxy::ApiRequest;

/// Time from a removed event to the end of its watch. Later events are delivered meanwhile, as with a server that loses
/// one of them.
const CUT_AFTER: Duration = Duration::from_millis(500);

pub enum EventAction {
    Pass,
    /// The event is lost, and the watch ends soon afterwards.
    Lose,
    /// The connection is closed before the event.
    Cut,
}

type Decide = Box<dyn Fn(&ApiRequest, &Value) -> EventAction + Send + Sync>;

/// Decides about each event of the watches it is applied to.
pub struct WatchFilter(Decide);

impl fmt::Debug for WatchFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchFilter")
    }
}

struct Watched {
    body: BoxStream<'static, Result<Bytes, axum::Error>>,
    buffer: Vec<u8>,
    ends_at: Option<Instant>,
    has_ended: bool,
}

impl WatchFilter {
    pub fn new(decide: impl Fn(&ApiRequest, &Value) -> EventAction + Send + Sync + 'static) -> Self {
        Self(Box::new(decide))
    }

    /// Returns the response with the events that are delivered.
    pub fn apply(self: std::sync::Arc<Self>, request: ApiRequest, response: Response<Body>) -> Response<Body> {
        let (parts, body) = response.into_parts();
        let watched = Watched {
            body: body.into_data_stream().boxed(),
            buffer: Vec::new(),
            ends_at: None,
            has_ended: false,
        };
        let lines = stream::unfold(watched, move |mut watched| {
            let (filter, request) = (std::sync::Arc::clone(&self), request.clone());
            async move { filter.next(&request, &mut watched).await.map(|line| (line, watched)) }
        });
        Response::from_parts(parts, Body::from_stream(lines))
    }

    async fn next(&self, request: &ApiRequest, watched: &mut Watched) -> Option<io::Result<Bytes>> {
        if watched.has_ended {
            return None;
        }
        loop {
            let Some(line) = watched.line().await else {
                watched.has_ended = true;
                return Some(Err(io::Error::other("the watch ends")));
            };
            let event = serde_json::from_slice(&line).unwrap_or_default();
            match (self.0)(request, &event) {
                EventAction::Pass => return Some(Ok(line)),
                EventAction::Lose => watched.ends_at = Some(Instant::now() + CUT_AFTER),
                EventAction::Cut => {
                    watched.has_ended = true;
                    return Some(Err(io::Error::other("the watch is cut")));
                }
            }
        }
    }
}

impl Watched {
    /// Returns the next complete line; none at the end of the watch.
    async fn line(&mut self) -> Option<Bytes> {
        loop {
            if let Some(at) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let rest = self.buffer.split_off(at + 1);
                return Some(std::mem::replace(&mut self.buffer, rest).into());
            }
            let next = match self.ends_at {
                Some(at) => timeout_at(at, self.body.next()).await.ok()?,
                None => self.body.next().await,
            };
            self.buffer.extend_from_slice(&next?.ok()?);
        }
    }
}
