//! Limits the memory for responses of the API server.
//!
//! kube reads a whole response before it decodes it, and a page of a list is limited only by its number of objects:
//! 200 objects may have 300 MiB. A page larger than [`MAX_PAGE`] is requested again with half the page size, down to one
//! object. Responses above [`SMALL`] need a permit of [`LargeResponses`].

use std::sync::Arc;

use axum::body::{Body as ResponseBody, Bytes, HttpBody};
use axum::http::{HeaderMap, Method, Request, Response, Uri, Version};
use futures::{StreamExt, TryStreamExt, stream};
use kube::client::Body;
use kube::{Client, Error};
use tower::BoxError;

use super::decoded_size::check_decoded_size;
use super::large_responses::{LargeResponses, limit_lines};
use super::request_limits::{RequestLimiter, requester};
use crate::budget::{SMALL_JSON, leave_runtime, leave_runtime_if_large, return_to_runtime};

/// In bytes. etcd stores objects of up to 1.5 MiB; JSON is somewhat larger. kube briefly holds a response twice.
const MAX_RESPONSE: usize = 16 << 20;
/// The same for a page of several objects. Each watch may have one at the start. Eight of the largest objects fit: each
/// further request costs the API server as much again.
const MAX_PAGE: usize = 12 << 20;
/// Responses up to this size need no permit.
pub(super) const SMALL: usize = 64 << 10;

/// Wraps a client. Of watches, only each line is limited. A request is in flight until its response is read.
pub(super) fn limit_responses(client: Client, limiter: Option<RequestLimiter>, permits: LargeResponses) -> Client {
    wrap(client, MAX_RESPONSE, MAX_PAGE, limiter, permits)
}

fn wrap(
    client: Client,
    limit: usize,
    page_limit: usize,
    limiter: Option<RequestLimiter>,
    permits: LargeResponses,
) -> Client {
    let namespace = client.default_namespace().to_owned();
    let size_limit = ResponseSizeLimit {
        client,
        limit,
        page_limit,
        permits,
        limiter: limiter.map(Arc::new),
    };
    let service = tower::service_fn(move |request| {
        let size_limit = size_limit.clone();
        async move { size_limit.send(request).await }
    });
    Client::new(service, namespace)
}

#[derive(Clone)]
struct ResponseSizeLimit {
    client: Client,
    limit: usize,
    page_limit: usize,
    permits: LargeResponses,
    limiter: Option<Arc<RequestLimiter>>,
}

struct Page {
    uri: Uri,
    headers: HeaderMap,
    version: Version,
    limit: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("response is larger than {limit} bytes")]
struct TooLarge {
    limit: usize,
}

impl ResponseSizeLimit {
    async fn send(self, request: Request<Body>) -> Result<Response<ResponseBody>, Error> {
        if is_watch(request.uri()) {
            if !self.permits.is_remote() {
                return Ok(self.client.send(request).await?.map(leave_runtime_for_long_lines));
            }
            // A watch that ends at once is opened again at once.
            if let Some(limiter) = &self.limiter {
                limiter.wait_for_rate().await;
            }
            let namespace = requester(request.method(), request.uri()).group;
            let response = self.client.send(request).await?;
            return Ok(response
                .map(|body| limit_lines(body, self.permits, namespace))
                .map(leave_runtime_for_long_lines));
        }
        let response = match &self.limiter {
            Some(limiter) => limiter.limit(request, |request| self.send_and_read(request)).await,
            None => self.send_and_read(request).await,
        }?;
        // It is decoded next.
        let bytes = response.body().size_hint().lower();
        leave_runtime_if_large(usize::try_from(bytes).unwrap_or(usize::MAX)).await;
        Ok(response.map(ResponseBody::new))
    }

    async fn send_and_read(&self, request: Request<Body>) -> Result<Response<Body>, Error> {
        let mut page = Page::of(&request);
        let is_log = request.uri().path().ends_with("/log");
        let namespace = requester(request.method(), request.uri()).group;
        let mut response = self.client.send(request).await?;
        loop {
            let (parts, body) = response.into_parts();
            let limit = match &page {
                Some(page) if page.limit > 1 => self.page_limit,
                _ => self.limit,
            };
            if let Some(body) = self.read(&namespace, body, limit).await? {
                if self.permits.is_remote() && !is_log {
                    leave_runtime_if_large(body.len()).await;
                    let checked = check_decoded_size(&body, page.is_some() && parts.status.is_success());
                    checked.map_err(|error| Error::Service(Box::new(error)))?;
                }
                return Ok(Response::from_parts(parts, Body::from(body)));
            }
            // The unread rest is discarded with its connection.
            let Some(smaller) = page.as_mut().and_then(Page::halve) else {
                let limit = self.limit;
                return Err(Error::Service(Box::new(TooLarge { limit })));
            };
            response = self.client.send(smaller?).await?;
        }
    }

    async fn read(&self, namespace: &str, body: Body, limit: usize) -> Result<Option<Vec<u8>>, Error> {
        let mut chunks = ResponseBody::new(body).into_data_stream().map_err(into_error).boxed();
        let mut permit = None;
        let mut read = Vec::new();
        while let Some(chunk) = chunks.try_next().await? {
            let length = read.len() + chunk.len();
            if length > limit {
                return Ok(None);
            }
            if length > SMALL && permit.is_none() {
                permit = Some(self.permits.acquire(namespace).await);
            }
            read.extend_from_slice(&chunk);
        }
        Ok(Some(read))
    }
}

/// Leaves the runtime for the large events of a watch. Each is a line of at most [`MAX_RESPONSE`] bytes, and is decoded by
/// the task that reads it.
fn leave_runtime_for_long_lines<B>(body: B) -> ResponseBody
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let chunks = ResponseBody::new(body).into_data_stream();
    let chunks = stream::unfold((chunks, 0), async |(mut chunks, unfinished)| {
        if unfinished <= SMALL_JSON {
            return_to_runtime();
        }
        let chunk = chunks.next().await?;
        let read = chunk.as_deref().unwrap_or_default();
        let first = unfinished + read.iter().position(|byte| *byte == b'\n').unwrap_or(read.len());
        let unfinished = match read.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => read.len() - end - 1,
            None => first,
        };
        if first.max(unfinished) > MAX_RESPONSE {
            let too_large = TooLarge { limit: MAX_RESPONSE };
            return Some((Err(axum::Error::new(too_large)), (chunks, unfinished)));
        }
        if first > SMALL_JSON {
            leave_runtime().await;
        }
        Some((chunk, (chunks, unfinished)))
    });
    ResponseBody::from_stream(chunks)
}

fn into_error(error: axum::Error) -> Error {
    match error.into_inner().downcast::<Error>() {
        Ok(error) => *error,
        Err(error) => Error::Service(error),
    }
}

impl Page {
    fn of<B>(request: &Request<B>) -> Option<Self> {
        let (_, limit) = query(request.uri()).find(|(name, _)| *name == "limit")?;
        let limit = limit.parse().ok()?;
        (request.method() == Method::GET).then(|| Self {
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            version: request.version(),
            limit,
        })
    }

    /// Returns `None` if the limit is one object. Continue tokens don't depend on the page size: the next page has the
    /// omitted objects.
    fn halve(&mut self) -> Option<Result<Request<Body>, Error>> {
        self.limit = Some(self.limit / 2).filter(|limit| *limit > 0)?;
        let limit = format!("limit={}", self.limit);
        let query = self.uri.query().unwrap_or_default().split('&');
        let query: Vec<_> = query
            .map(|pair| if pair.starts_with("limit=") { &*limit } else { pair })
            .collect();
        let request = Request::get(format!("{}?{}", self.uri.path(), query.join("&")))
            .version(self.version)
            .body(Body::empty());
        Some(request.map_err(Error::HttpError).map(|mut request| {
            *request.headers_mut() = self.headers.clone();
            request
        }))
    }
}

pub fn is_watch(uri: &Uri) -> bool {
    query(uri).any(|(name, value)| name == "watch" && value != "false")
}

/// Returns the pairs of a query. The relevant pairs contain no encoded characters.
fn query(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs.filter_map(|pair| pair.split_once('='))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::ListParams;
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::task::yield_now;

    use super::*;
    use crate::budget::{Budgets, has_left_runtime, offloadable_watch};
    use crate::runtime::kube_client::large_responses::PERMITS;

    /// Returns an API server with `count` ConfigMaps of `bytes` bytes, and a record of its requests.
    fn server(count: usize, bytes: usize) -> (Client, Arc<Mutex<Vec<String>>>) {
        let requested: Arc<Mutex<Vec<String>>> = Arc::default();
        let recorder = Arc::clone(&requested);
        let service = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri();
            let of = |name: &str| {
                query(uri)
                    .find(|pair| pair.0 == name)
                    .map(|pair| pair.1.parse::<usize>().unwrap())
            };
            let (limit, from) = (of("limit").unwrap_or(count), of("continue").unwrap_or(0));
            recorder.lock().push(format!("{from}+{limit}"));
            let to = (from + limit).min(count);
            let object = |number: usize| json!({ "metadata": { "name": number.to_string(), "annotations": { "a": "a".repeat(bytes) } } });
            let objects: Vec<_> = (from..to).map(object).collect();
            let token = if to < count { to.to_string() } else { String::new() };
            let list = json!({ "metadata": { "resourceVersion": "1", "continue": token }, "items": objects });
            async move { Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes()))) }
        });
        (Client::new(service, "default"), requested)
    }

    fn with_limits(client: Client, limit: usize, page_limit: usize, limiter: Option<RequestLimiter>) -> Client {
        wrap(client, limit, page_limit, limiter, LargeResponses::local())
    }

    async fn list(client: Client, limit: u32) -> Result<Vec<String>, Error> {
        let api: Api<ConfigMap> = Api::all(client);
        let mut parameters = ListParams::default().limit(limit);
        let mut names = Vec::new();
        loop {
            let page = api.list(&parameters).await?;
            names.extend(page.items.into_iter().filter_map(|object| object.metadata.name));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(names),
            }
        }
    }

    #[tokio::test]
    async fn a_page_above_the_limit_is_split_without_losing_objects() {
        let (client, requested) = server(10, 1000);
        let names = list(with_limits(client, 4000, 4000, None), 8).await.unwrap();
        assert_eq!(names, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        let requested = requested.lock().clone();
        assert_eq!(requested[..4], ["0+8", "0+4", "0+2", "2+8"], "{requested:?}");
    }

    #[tokio::test]
    async fn a_page_within_the_limit_is_requested_once() {
        let (client, requested) = server(10, 10);
        assert_eq!(list(with_limits(client, 4000, 4000, None), 8).await.unwrap().len(), 10);
        assert_eq!(*requested.lock(), ["0+8", "8+8"]);
    }

    #[tokio::test]
    async fn a_single_object_may_be_larger_than_a_page() {
        let (client, requested) = server(3, 1000);
        let names = list(with_limits(client, 4000, 500, None), 2).await.unwrap();
        assert_eq!(names, ["0", "1", "2"]);
        assert_eq!(requested.lock()[..3], ["0+2", "0+1", "1+2"]);
    }

    #[tokio::test]
    async fn a_single_object_above_the_limit_is_an_error() {
        let (client, _) = server(1, 5000);
        let error = list(with_limits(client, 4000, 4000, None), 8).await.unwrap_err();
        let error = crate::runtime::kube_client::ApiError::from(error).to_string();
        assert!(error.contains("larger than 4000 bytes"), "{error}");
    }

    #[tokio::test]
    async fn other_responses_are_limited_too() {
        let (client, requested) = server(10, 1000);
        let api: Api<ConfigMap> = Api::all(with_limits(client, 4000, 4000, None));
        assert!(api.list(&ListParams::default()).await.is_err());
        assert_eq!(requested.lock().len(), 1);
    }

    #[tokio::test]
    async fn the_number_of_concurrent_large_responses_is_limited() {
        let reading: Arc<Mutex<(usize, usize)>> = Arc::default();
        let counts = Arc::clone(&reading);
        let service = tower::service_fn(move |_: Request<Body>| {
            let counts = Arc::clone(&counts);
            let begin = format!("{{\"metadata\": {{}}, \"items\": []{}", " ".repeat(SMALL));
            let rest = async move {
                let track = |change: isize| {
                    let mut counts = counts.lock();
                    counts.0 = counts.0.strict_add_signed(change);
                    counts.1 = counts.1.max(counts.0);
                };
                track(1);
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                track(-1);
                "}".to_owned()
            };
            let chunks = stream::once(async { begin }).chain(stream::once(rest));
            let body = axum::body::Body::from_stream(chunks.map(Ok::<_, Infallible>));
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let client = with_limits(Client::new(service, "default"), MAX_RESPONSE, MAX_PAGE, None);
        let lists = (0..3 * PERMITS).map(|_| list(client.clone(), 8));
        for names in futures::future::join_all(lists).await {
            assert!(names.unwrap().is_empty());
        }
        assert_eq!(*reading.lock(), (0, PERMITS as usize));
    }

    #[tokio::test]
    async fn a_watch_leaves_the_runtime_for_large_events_only() {
        let chunks = [
            "small\n".to_owned(),
            "x".repeat(SMALL_JSON),
            "x\ny".to_owned(),
            "y\n".to_owned(),
            "z\n".to_owned(),
        ];
        let all = chunks.concat();
        let body = ResponseBody::from_stream(stream::iter(chunks.map(Ok::<_, Infallible>)));
        let read = async {
            let mut read = leave_runtime_for_long_lines(body).into_data_stream();
            let (mut text, mut places) = (Vec::new(), Vec::new());
            while let Some(chunk) = read.next().await {
                text.extend(chunk.unwrap());
                places.push(has_left_runtime());
                yield_now().await;
            }
            (text, places)
        };
        let (text, places) = offloadable_watch(read).await;
        assert_eq!(text, all.into_bytes());
        // The task returns when it is polled again.
        assert_eq!(places, [false, false, true, true, false]);
    }

    #[tokio::test]
    async fn a_watch_ends_at_a_line_that_never_ends() {
        let endless = stream::repeat_with(|| Ok::<_, Infallible>("x".repeat(1 << 20)));
        let mut read = leave_runtime_for_long_lines(ResponseBody::from_stream(endless)).into_data_stream();
        let mut bytes = 0;
        let error = loop {
            match read.next().await.unwrap() {
                Ok(chunk) => bytes += chunk.len(),
                Err(error) => break error,
            }
        };
        assert_eq!(bytes, MAX_RESPONSE);
        assert!(error.to_string().contains("larger than"), "{error}");
    }

    #[tokio::test]
    async fn a_large_response_is_decoded_off_the_runtime() {
        for (bytes, is_off) in [(SMALL_JSON / 2, false), (SMALL_JSON, true)] {
            let (client, _) = server(1, bytes);
            let read = async {
                list(with_limits(client, MAX_RESPONSE, MAX_PAGE, None), 8)
                    .await
                    .unwrap();
                has_left_runtime()
            };
            assert_eq!(Budgets::default().offloadable("team", read).await, is_off);
        }
    }
}
