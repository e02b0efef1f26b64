//! A bound on the memory that answers of the API server take.
//!
//! The client reads the whole of an answer before it decodes it, and a page of a list is bounded by the number of its objects only:
//! two hundred of them may be 300 MiB. Here no answer grows larger than [`LARGEST`], and only [`PLACES`] of them than [`SMALL`] at a
//! time. Where a page is larger, a smaller one is asked for in its place, down to one object.

use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderMap, Method, Request, Response, Uri, Version};
use futures::{StreamExt, TryStreamExt};
use kube::client::Body;
use kube::{Client, Error};
use tokio::sync::Semaphore;

/// The largest answer that is taken, in bytes. An object has 1.5 MiB at most where the API server keeps it in etcd, and some more as
/// JSON. The client holds it twice for a moment.
const LARGEST: usize = 16 << 20;
/// An answer that is no larger takes no place.
const SMALL: usize = 64 << 10;
/// How many answers above [`SMALL`] are read at a time.
const PLACES: usize = 4;

/// The client, with answers bounded. Watches are not: they are read line by line.
pub fn bounded(client: Client) -> Client {
    with_bounds(client, LARGEST)
}

fn with_bounds(client: Client, largest: usize) -> Client {
    let namespace = client.default_namespace().to_owned();
    let bounds = Bounds {
        client,
        largest,
        places: Arc::new(Semaphore::new(PLACES)),
    };
    let service = tower::service_fn(move |request| {
        let bounds = bounds.clone();
        async move { bounds.send(request).await }
    });
    Client::new(service, namespace)
}

#[derive(Clone)]
struct Bounds {
    client: Client,
    largest: usize,
    places: Arc<Semaphore>,
}

/// What a page of a list is asked for again by.
struct Page {
    uri: Uri,
    headers: HeaderMap,
    version: Version,
    limit: u64,
}

/// An answer is too large.
#[derive(Debug)]
struct TooLarge {
    largest: usize,
}

impl std::error::Error for TooLarge {}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer is larger than {} bytes", self.largest)
    }
}

impl Bounds {
    async fn send(self, request: Request<Body>) -> Result<Response<Body>, Error> {
        if is_watch(request.uri()) {
            return self.client.send(request).await;
        }
        let mut page = Page::of(&request);
        let mut answer = self.client.send(request).await?;
        loop {
            let (parts, body) = answer.into_parts();
            if let Some(body) = self.read(body).await? {
                return Ok(Response::from_parts(parts, Body::from(body)));
            }
            // The rest of the answer is not read: its connection goes with it.
            let Some(smaller) = page.as_mut().and_then(Page::halved) else {
                let largest = self.largest;
                return Err(Error::Service(Box::new(TooLarge { largest })));
            };
            answer = self.client.send(smaller?).await?;
        }
    }

    /// The whole body; nothing, if it is too large.
    async fn read(&self, body: Body) -> Result<Option<Vec<u8>>, Error> {
        let mut chunks = axum::body::Body::new(body)
            .into_data_stream()
            .map_err(into_error)
            .boxed();
        let mut place = None;
        let mut read = Vec::new();
        while let Some(chunk) = chunks.try_next().await? {
            let length = read.len() + chunk.len();
            if length > self.largest {
                return Ok(None);
            }
            if length > SMALL && place.is_none() {
                // It fails only once the semaphore is closed, which nobody does.
                place = self.places.acquire().await.ok();
            }
            read.extend_from_slice(&chunk);
        }
        Ok(Some(read))
    }
}

fn into_error(error: axum::Error) -> Error {
    match error.into_inner().downcast::<Error>() {
        Ok(error) => *error,
        Err(error) => Error::Service(error),
    }
}

impl Page {
    fn of<B>(request: &Request<B>) -> Option<Self> {
        let limit = query(request.uri())
            .find(|(name, _)| *name == "limit")?
            .1
            .parse()
            .ok()?;
        (request.method() == Method::GET).then(|| Self {
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            version: request.version(),
            limit,
        })
    }

    /// The request for half as many objects, if there are still some to be left out. What is left over comes with the next page,
    /// whatever its size: the token to go on with knows of no page.
    fn halved(&mut self) -> Option<Result<Request<Body>, Error>> {
        self.limit = Some(self.limit / 2).filter(|limit| *limit > 0)?;
        let limit = format!("limit={}", self.limit);
        let query = self.uri.query().unwrap_or_default().split('&');
        let query: Vec<_> = query
            .map(|pair| if pair.starts_with("limit=") { &*limit } else { pair })
            .collect();
        let request = Request::get(format!("{}?{}", self.uri.path(), query.join("&"))).version(self.version);
        Some(
            request
                .body(Body::empty())
                .map_err(Error::HttpError)
                .map(|mut request| {
                    *request.headers_mut() = self.headers.clone();
                    request
                }),
        )
    }
}

/// Whether what is asked for is a watch.
pub fn is_watch(uri: &Uri) -> bool {
    query(uri).any(|(name, value)| name == "watch" && value != "false")
}

/// The pairs of a query. Those that are of interest here have nothing in them that is encoded.
fn query(uri: &Uri) -> impl Iterator<Item = (&str, &str)> {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs.filter_map(|pair| pair.split_once('='))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::stream;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::ListParams;
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;

    /// An API server with so many ConfigMaps of so many bytes, and what it was asked for.
    fn server(count: usize, bytes: usize) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let asking = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            let uri = request.uri();
            let of = |name: &str| {
                query(uri)
                    .find(|pair| pair.0 == name)
                    .map(|pair| pair.1.parse::<usize>().unwrap())
            };
            let (limit, from) = (of("limit").unwrap_or(count), of("continue").unwrap_or(0));
            asking.lock().push(format!("{from}+{limit}"));
            let to = (from + limit).min(count);
            let object = |number: usize| json!({ "metadata": { "name": number.to_string(), "annotations": { "a": "a".repeat(bytes) } } });
            let objects: Vec<_> = (from..to).map(object).collect();
            let token = if to < count { to.to_string() } else { String::new() };
            let list = json!({ "metadata": { "resourceVersion": "1", "continue": token }, "items": objects });
            async move { Ok::<_, Infallible>(Response::new(Body::from(list.to_string().into_bytes()))) }
        });
        (Client::new(service, "default"), asked)
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
    async fn a_page_that_is_too_large_is_asked_for_in_smaller_ones_and_nothing_is_missed() {
        let (client, asked) = server(10, 1000);
        let names = list(with_bounds(client, 4000), 8).await.unwrap();
        assert_eq!(names, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        let asked = asked.lock().clone();
        assert_eq!(asked[..4], ["0+8", "0+4", "0+2", "2+8"], "{asked:?}");
    }

    #[tokio::test]
    async fn a_page_that_fits_is_asked_for_once() {
        let (client, asked) = server(10, 10);
        assert_eq!(list(with_bounds(client, 4000), 8).await.unwrap().len(), 10);
        assert_eq!(*asked.lock(), ["0+8", "8+8"]);
    }

    #[tokio::test]
    async fn one_object_that_is_too_large_is_an_error_that_says_so() {
        let (client, _) = server(1, 5000);
        let error = list(with_bounds(client, 4000), 8).await.unwrap_err();
        let error = crate::runtime::kube_client::ApiError::from(error).to_string();
        assert!(error.contains("larger than 4000 bytes"), "{error}");
    }

    #[tokio::test]
    async fn answers_that_are_no_page_are_bounded_too() {
        let (client, asked) = server(10, 1000);
        let api: Api<ConfigMap> = Api::all(with_bounds(client, 4000));
        assert!(api.list(&ListParams::default()).await.is_err());
        assert_eq!(asked.lock().len(), 1);
    }

    #[tokio::test]
    async fn only_so_many_large_answers_are_read_at_a_time() {
        let reading: Arc<Mutex<(usize, usize)>> = Arc::default();
        let counts = Arc::clone(&reading);
        let service = tower::service_fn(move |_: Request<Body>| {
            let counts = Arc::clone(&counts);
            let begin = format!("{{\"metadata\": {{}}, \"items\": []{}", " ".repeat(SMALL));
            let rest = async move {
                let begun = |change: isize| {
                    let mut counts = counts.lock();
                    counts.0 = counts.0.strict_add_signed(change);
                    counts.1 = counts.1.max(counts.0);
                };
                begun(1);
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                begun(-1);
                "}".to_owned()
            };
            let chunks = stream::once(async { begin }).chain(stream::once(rest));
            let body = axum::body::Body::from_stream(chunks.map(Ok::<_, Infallible>));
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let client = with_bounds(Client::new(service, "default"), LARGEST);
        let lists = (0..3 * PLACES).map(|_| list(client.clone(), 8));
        for names in futures::future::join_all(lists).await {
            assert!(names.unwrap().is_empty());
        }
        assert_eq!(*reading.lock(), (0, PLACES));
    }
}
