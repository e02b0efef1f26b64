//! Paginated listings.

use std::collections::HashSet;

use reqwest::StatusCode;
use reqwest::header::LINK;
use url::Url;

use super::error::OciError;
use super::link::next_link;
use super::{Registry, body};
use crate::http::{Authorization, FetchError, Request, Response, Validators};
use crate::text::public_url;

/// Result of a listing.
pub(super) enum Listed {
    NotModified,
    /// Validators are empty if there are several pages, because those of the first page do not cover the others.
    Complete(Validators),
}

impl Registry {
    /// Fetches a listing and passes each page to `on_page`.
    pub(super) async fn pages(
        &self,
        scope: &str,
        path: &str,
        validators: Option<&Validators>,
        on_page: impl FnMut(&Url, &[u8]) -> Result<(), OciError>,
    ) -> Result<Listed, OciError> {
        let listing = self.fetch_pages(scope, path, validators, on_page);
        self.with_timeout(&self.url(path), listing).await
    }

    /// Fetches a listing of Docker Hub's API without credentials. `on_page` returns the link to the next page.
    pub(super) async fn pages_of_hub(
        &self,
        first: Url,
        on_page: impl FnMut(&Url, &[u8]) -> Result<Option<String>, OciError>,
    ) -> Result<(), OciError> {
        let listing = self.fetch_hub_pages(first.clone(), on_page);
        self.with_timeout(&first, listing).await
    }

    /// Limits the total time, because a listing may have a thousand requests.
    async fn with_timeout<T>(
        &self,
        url: &Url,
        listing: impl Future<Output = Result<T, OciError>>,
    ) -> Result<T, OciError> {
        let limit = self.limits.listing_timeout;
        let timeout = |_| FetchError::Timeout {
            url: public_url(url),
            limit,
        };
        tokio::time::timeout(limit, listing).await.map_err(timeout)?
    }

    async fn fetch_pages(
        &self,
        scope: &str,
        path: &str,
        validators: Option<&Validators>,
        mut on_page: impl FnMut(&Url, &[u8]) -> Result<(), OciError>,
    ) -> Result<Listed, OciError> {
        let mut cursor = Cursor::new(self.url(path));
        cursor.next = Some(with_page_size(cursor.first.clone(), self.limits.page_names));
        let mut validators_of_list = Validators::default();
        while let Some(url) = cursor.advance(self)? {
            let is_first = cursor.visited.len() == 1;
            let request = Request {
                accept: Some("application/json".to_owned()),
                validators: validators.filter(|_| is_first).cloned(),
                ..Request::new(url.clone())
            };
            let limits = self.limits.with_max_bytes(cursor.page_limit(self));
            let response = match self.send(scope, request.clone(), &limits).await {
                // Docker's registry rejects page sizes above its own limit, which it uses by default.
                Err(OciError::Fetch(FetchError::Status { status, .. }))
                    if is_first && status == StatusCode::BAD_REQUEST =>
                {
                    let url = cursor.first.clone();
                    self.send(scope, Request { url, ..request }, &limits).await?
                }
                response => response?,
            };
            if response.status == StatusCode::NOT_MODIFIED {
                return Ok(Listed::NotModified);
            }
            let links = response.headers.get_all(LINK).iter();
            let next = links.map(|value| value.as_bytes()).find_map(next_link);
            validators_of_list = if is_first && next.is_none() {
                response.body.validators.clone()
            } else {
                Validators::default()
            };
            cursor.process(response, next, |url, bytes| on_page(url, bytes))?;
        }
        Ok(Listed::Complete(validators_of_list))
    }

    async fn fetch_hub_pages(
        &self,
        first: Url,
        mut on_page: impl FnMut(&Url, &[u8]) -> Result<Option<String>, OciError>,
    ) -> Result<(), OciError> {
        let mut cursor = Cursor::new(first);
        while let Some(url) = cursor.advance(self)? {
            let request = Request {
                accept: Some("application/json".to_owned()),
                authorization: Authorization::None,
                ..Request::new(url)
            };
            let response = self
                .fetcher
                .send(&request, &self.limits.with_max_bytes(cursor.page_limit(self)))
                .await?;
            let mut next = None;
            cursor.process(response, None, |url, bytes| {
                next = on_page(url, bytes)?;
                Ok(())
            })?;
            cursor.set_next(next.as_deref())?;
        }
        Ok(())
    }
}

fn with_page_size(mut url: Url, names: u32) -> Url {
    url.set_query(Some(&format!("n={names}")));
    url
}

/// Position in a listing, and its limits.
struct Cursor {
    first: Url,
    /// URL of the last page.
    current: Url,
    next: Option<Url>,
    visited: HashSet<Url>,
    bytes: u64,
}

impl Cursor {
    fn new(first: Url) -> Self {
        Self {
            current: first.clone(),
            next: Some(first.clone()),
            first,
            visited: HashSet::new(),
            bytes: 0,
        }
    }

    /// Returns the URL of the next page.
    fn advance(&mut self, registry: &Registry) -> Result<Option<Url>, OciError> {
        let Some(url) = self.next.take() else { return Ok(None) };
        if self.visited.len() >= registry.limits.pages {
            return Err(self.too_many(registry.limits.pages as u64, "pages"));
        }
        if !self.visited.insert(url.clone()) {
            return Err(self.next_page_error("the pages form a cycle"));
        }
        if self.bytes >= registry.limits.listing_bytes {
            return Err(self.too_many(registry.limits.listing_bytes, "bytes"));
        }
        Ok(Some(url))
    }

    /// Returns the size limit of the next page.
    fn page_limit(&self, registry: &Registry) -> u64 {
        registry
            .limits
            .page_bytes
            .min(registry.limits.listing_bytes.saturating_sub(self.bytes))
    }

    fn process(
        &mut self,
        response: Response,
        next: Option<String>,
        on_page: impl FnOnce(&Url, &[u8]) -> Result<(), OciError>,
    ) -> Result<(), OciError> {
        self.bytes += response.body.bytes;
        let bytes = body::bytes(response.body)?;
        on_page(&response.url, &bytes)?;
        self.current = response.url;
        self.set_next(next.as_deref())
    }

    /// Sets the next page by a link relative to the current one. Rejects other origins, which would receive the credentials.
    fn set_next(&mut self, next: Option<&str>) -> Result<(), OciError> {
        /// Visited links are kept in memory, so their length is limited.
        const MAX_LINK_BYTES: usize = 8 * 1024;
        let Some(next) = next else { return Ok(()) };
        if next.len() > MAX_LINK_BYTES {
            return Err(self.next_page_error("the link to the next page is too long"));
        }
        let next = self
            .current
            .join(next)
            .map_err(|_| self.next_page_error("the link to the next page is not a valid URL"))?;
        if next.origin() != self.first.origin() {
            return Err(self.next_page_error("the link to the next page has another origin"));
        }
        self.next = Some(next);
        Ok(())
    }

    fn too_many(&self, limit: u64, what: &'static str) -> OciError {
        OciError::TooMany {
            url: public_url(&self.first),
            limit,
            what,
        }
    }

    fn next_page_error(&self, problem: &'static str) -> OciError {
        OciError::NextPage {
            url: public_url(&self.first),
            problem,
        }
    }
}
