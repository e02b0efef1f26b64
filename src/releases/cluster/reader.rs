//! Requests for lists and objects, and a record of what can't be read.

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::{MAX_UNREADABLE, Scope};
use crate::runtime::kube_client::{ApiError, call};
use crate::text::sanitize;

const PAGE: u32 = 500;
/// Of one list: 50,000 objects.
const MAX_PAGES: usize = 100;
/// Namespaces whose lists of a kind are read at once.
const LISTS: usize = 4;

/// Objects of one kind, in the versions that have the same fields. The first one that is served counts.
pub(super) struct Collection {
    pub(super) group: &'static str,
    pub(super) versions: &'static [&'static str],
    pub(super) plural: &'static str,
}

impl Collection {
    pub(super) fn path(&self, version: &str, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis/" };
        let namespace = namespace.map(|name| format!("namespaces/{name}/")).unwrap_or_default();
        format!("{root}{}/{version}/{namespace}{}", self.group, self.plural)
    }
}

pub(super) struct Reader<'a> {
    client: &'a Client,
    namespaces: Vec<Option<&'a str>>,
    deadline: Instant,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    has_read: bool,
    first_error: Option<ApiError>,
    unreadable: Vec<String>,
    omitted: usize,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(rename = "continue")]
    token: Option<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(client: &'a Client, scope: &'a Scope, deadline: Instant) -> Self {
        let namespaces: Vec<_> = scope.namespaces.iter().map(|name| Some(name.as_str())).collect();
        Self {
            client,
            namespaces: if namespaces.is_empty() { vec![None] } else { namespaces },
            deadline,
            record: Mutex::default(),
        }
    }

    /// Lists objects of the scope: only their metadata if there is a selector of labels. Records errors.
    pub(super) async fn list<T>(&self, collection: &Collection, selector: Option<&str>) -> Vec<T>
    where
        T: DeserializeOwned + Send,
    {
        let namespaces = self.namespaces.iter();
        let lists = namespaces.map(|namespace| self.list_namespace(collection, selector, *namespace).boxed());
        let lists: Vec<BoxFuture<'_, Vec<T>>> = lists.collect();
        let lists: Vec<Vec<T>> = stream::iter(lists).buffered(LISTS).collect().await;
        lists.into_iter().flatten().collect()
    }

    async fn list_namespace<T: DeserializeOwned + Send>(
        &self,
        collection: &Collection,
        selector: Option<&str>,
        namespace: Option<&str>,
    ) -> Vec<T> {
        let mut objects = Vec::new();
        for version in collection.versions {
            let path = collection.path(version, namespace);
            match self.pages(&path, selector, &mut objects).await {
                Ok(()) => self.record.lock().has_read = true,
                // The kind or its version is not installed.
                Err(error) if error.is_not_found() => continue,
                Err(error) => {
                    let place = namespace.map(|name| format!(" in {name}")).unwrap_or_default();
                    self.record_unreadable(&format!("{}{place}: {error}", collection.plural));
                    self.record.lock().first_error.get_or_insert(error);
                }
            }
            break;
        }
        objects
    }

    async fn pages<T: DeserializeOwned + Send>(
        &self,
        path: &str,
        selector: Option<&str>,
        objects: &mut Vec<T>,
    ) -> Result<(), ApiError> {
        let mut parameters = ListParams::default().limit(PAGE);
        parameters.label_selector = selector.map(str::to_owned);
        let request = Request::new(path);
        for _ in 0..MAX_PAGES {
            let request = match selector {
                Some(_) => request.list_metadata(&parameters),
                None => request.list(&parameters),
            };
            let text = send(self.client()?, request).await?;
            // Without serde's error, which may quote the content.
            let page: Page<'_> = serde_json::from_str(&text)
                .map_err(|_| ApiError::bad_request("the list of objects can't be decoded".to_owned()))?;
            for item in page.items.into_iter().flatten() {
                match serde_json::from_str(item.get()) {
                    Ok(object) => objects.push(object),
                    Err(_) => self.record_unreadable(&format!("an object of {path} can't be decoded")),
                }
            }
            match page.metadata.token.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(()),
            }
        }
        let limit = format!("only the first {MAX_PAGES} pages of {PAGE} are read; choose namespaces");
        Err(ApiError::bad_request(limit))
    }

    /// Fails after the deadline.
    pub(super) fn client(&self) -> Result<&Client, ApiError> {
        if Instant::now() >= self.deadline {
            return Err(ApiError::unavailable("not read in time; choose namespaces".to_owned()));
        }
        Ok(self.client)
    }

    pub(super) fn record_unreadable(&self, message: &str) {
        let mut record = self.record.lock();
        let message = sanitize(message);
        // A kind is listed with several selectors.
        if record.unreadable.contains(&message) {
            return;
        }
        if record.unreadable.len() < MAX_UNREADABLE - 1 {
            record.unreadable.push(message);
        } else {
            record.omitted += 1;
        }
    }

    /// Fails if no list could be read.
    pub(super) fn into_unreadable(self) -> Result<Vec<String>, ApiError> {
        let record = self.record.into_inner();
        let mut unreadable = record.unreadable;
        match record.first_error {
            Some(error) if !record.has_read => return Err(error),
            _ if record.omitted > 0 => unreadable.push(format!("and {} more", record.omitted)),
            _ => {}
        }
        Ok(unreadable)
    }
}

/// Unlike `Client::request`, logs no text that can't be decoded: it may be a Secret.
pub(super) async fn send(
    client: &Client,
    request: Result<axum::http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<String, ApiError> {
    let request = request.map_err(|error| ApiError::bad_request(error.to_string()))?;
    call(client.request_text(request)).await
}
