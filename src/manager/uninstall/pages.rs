//! Bounded lists and retries.

use std::fmt::Debug;
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use kube::api::{Api, ListParams};
use kube::core::ObjectList;
use serde::de::DeserializeOwned;

use crate::runtime::kube_client::{ApiError, call};

pub(super) const PAGE: u32 = 500;

/// Attempts of a request that may succeed later.
const RETRIES: usize = 3;

/// Sends a request again while it may succeed later. After a conflict, the caller must read the object again.
pub(super) async fn retry<T, F>(attempt: impl FnMut() -> F) -> Result<T, ApiError>
where
    F: Future<Output = Result<T, ApiError>>,
{
    let backoff = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(200))
        .with_max_delay(Duration::from_secs(5))
        .with_max_times(RETRIES)
        .with_jitter();
    attempt
        .retry(backoff)
        .when(|error: &ApiError| error.is_retryable() && !error.is_conflict())
        .await
}

pub(super) struct Pages<'a, K> {
    api: &'a Api<K>,
    parameters: Option<ListParams>,
    is_first: bool,
}

impl<'a, K: Clone + Debug + DeserializeOwned> Pages<'a, K> {
    pub(super) fn new(api: &'a Api<K>, selector: Option<&str>) -> Self {
        let parameters = ListParams::default().limit(PAGE);
        let parameters = selector.map_or(parameters.clone(), |selector| parameters.labels(selector));
        Self {
            api,
            parameters: Some(parameters),
            is_first: true,
        }
    }

    /// Returns the next page; `None` at the end, or if the kind is not installed.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<K>>, ApiError> {
        let Some(parameters) = self.parameters.take() else {
            return Ok(None);
        };
        let listed: Result<ObjectList<K>, ApiError> = retry(|| call(self.api.list(&parameters))).await;
        let page = match listed {
            Err(error) if error.is_not_found() && self.is_first => return Ok(None),
            page => page?,
        };
        self.is_first = false;
        let token = page.metadata.continue_.filter(|token| !token.is_empty());
        self.parameters = token.map(|token| parameters.continue_token(&token));
        Ok(Some(page.items))
    }
}
