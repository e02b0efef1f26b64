use std::collections::HashSet;

use reqwest::StatusCode;
use reqwest::header::LINK;
use url::Url;

use super::error::OciError;
use super::link::next_link;
use super::{Limits, Registry, body};
use crate::budget::leave_runtime_if_large;
use crate::http::{self as fetch, Authorization, FetchError, Request, Response, Validators};
use crate::text::public_url;

pub(super) enum Listed {
    NotModified,
    /// Validators are empty if there are several pages, because the first page's validators do not cover the others.
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
        let first = self.url(path);
        let listing = self.fetch_pages(scope, first.clone(), validators, on_page);
        self.with_timeout(&first, listing).await
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
        first: Url,
        validators: Option<&Validators>,
        mut on_page: impl FnMut(&Url, &[u8]) -> Result<(), OciError>,
    ) -> Result<Listed, OciError> {
        let mut cursor = PageCursor::new(&self.limits, first);
        cursor.next = Some(with_page_size(cursor.first.clone(), self.limits.page_names));
        let mut validators_of_list = Validators::default();
        while let Some((url, limits)) = cursor.advance()? {
            let is_first = cursor.visited.len() == 1;
            let request = Request {
                accept: Some("application/json".to_owned()),
                validators: validators.filter(|_| is_first).cloned(),
                ..Request::new(url)
            };
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
            cursor
                .process(response, |url, bytes| on_page(url, bytes).map(|()| next))
                .await?;
        }
        Ok(Listed::Complete(validators_of_list))
    }

    async fn fetch_hub_pages(
        &self,
        first: Url,
        mut on_page: impl FnMut(&Url, &[u8]) -> Result<Option<String>, OciError>,
    ) -> Result<(), OciError> {
        let mut cursor = PageCursor::new(&self.limits, first);
        while let Some((url, limits)) = cursor.advance()? {
            let request = Request {
                accept: Some("application/json".to_owned()),
                authorization: Authorization::None,
                ..Request::new(url)
            };
            let response = self.fetcher.send(&request, &limits).await?;
            cursor.process(response, &mut on_page).await?;
        }
        Ok(())
    }
}

fn with_page_size(mut url: Url, names: u32) -> Url {
    url.set_query(Some(&format!("n={names}")));
    url
}

struct PageCursor<'l> {
    limits: &'l Limits,
    first: Url,
    current: Url,
    next: Option<Url>,
    visited: HashSet<Url>,
    bytes: u64,
}

impl<'l> PageCursor<'l> {
    fn new(limits: &'l Limits, first: Url) -> Self {
        Self {
            limits,
            current: first.clone(),
            next: Some(first.clone()),
            first,
            visited: HashSet::new(),
            bytes: 0,
        }
    }

    /// Returns the URL of the next page and the limits of its request.
    fn advance(&mut self) -> Result<Option<(Url, fetch::FetchLimits)>, OciError> {
        let Limits {
            pages,
            page_bytes,
            listing_bytes,
            ..
        } = *self.limits;
        let Some(url) = self.next.take() else { return Ok(None) };
        if self.visited.len() >= pages {
            return Err(OciError::too_many(&self.first, pages as u64, "pages"));
        }
        if !self.visited.insert(url.clone()) {
            return Err(self.next_page_error("the pages form a cycle"));
        }
        if self.bytes >= listing_bytes {
            return Err(OciError::too_many(&self.first, listing_bytes, "bytes"));
        }
        let max_bytes = page_bytes.min(listing_bytes - self.bytes);
        Ok(Some((url, self.limits.with_max_bytes(max_bytes))))
    }

    /// Passes the page to `on_page`, which returns the link to the next page.
    async fn process(
        &mut self,
        response: Response,
        on_page: impl FnOnce(&Url, &[u8]) -> Result<Option<String>, OciError>,
    ) -> Result<(), OciError> {
        // A page may have 100,000 names.
        leave_runtime_if_large(usize::try_from(response.body.bytes).unwrap_or(usize::MAX)).await;
        self.bytes += response.body.bytes;
        let bytes = body::bytes(response.body)?;
        let next = on_page(&response.url, &bytes)?;
        self.current = response.url;
        next.map_or(Ok(()), |next| self.set_next(&next))
    }

    /// Sets the next page by a link relative to the current one. Rejects other origins, which would receive the credentials.
    fn set_next(&mut self, next: &str) -> Result<(), OciError> {
        /// Visited links are kept in memory, so their length is limited.
        const MAX_LINK_BYTES: usize = 8 * 1024;
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

    fn next_page_error(&self, problem: &'static str) -> OciError {
        OciError::NextPage {
            url: public_url(&self.first),
            problem,
        }
    }
}
