//! Listings, page after page.

use std::collections::HashSet;

use reqwest::StatusCode;
use reqwest::header::LINK;
use url::Url;

use super::error::OciError;
use super::link::next_link;
use super::{Registry, body};
use crate::http::{Answer, Authorization, FetchError, Request, Validators};
use crate::text::public_url;

/// How a listing ended.
pub(super) enum Listed {
    NotModified,
    /// What the server said of the listing, where it was one page: what it says of the first page would not change with
    /// another.
    Whole(Validators),
}

impl Registry {
    /// Fetches a listing of the registry and hands each page to `take`.
    pub(super) async fn pages(
        &self,
        scope: &str,
        path: &str,
        validators: Option<&Validators>,
        take: impl FnMut(&Url, &[u8]) -> Result<(), OciError>,
    ) -> Result<Listed, OciError> {
        let walking = self.walk(scope, path, validators, take);
        self.in_time(&self.url(path), walking).await
    }

    /// The same for a listing elsewhere, which needs no authorization and has the way to its next page in the page: `take`
    /// returns it.
    pub(super) async fn pages_elsewhere(
        &self,
        first: Url,
        take: impl FnMut(&Url, &[u8]) -> Result<Option<String>, OciError>,
    ) -> Result<(), OciError> {
        let walking = self.walk_elsewhere(first.clone(), take);
        self.in_time(&first, walking).await
    }

    /// Each request has its own time, and there may be a thousand of them.
    async fn in_time<T>(&self, url: &Url, walking: impl Future<Output = Result<T, OciError>>) -> Result<T, OciError> {
        let limit = self.limits.listing_time;
        let timeout = |_| FetchError::Timeout {
            url: public_url(url),
            limit,
        };
        tokio::time::timeout(limit, walking).await.map_err(timeout)?
    }

    async fn walk(
        &self,
        scope: &str,
        path: &str,
        validators: Option<&Validators>,
        mut take: impl FnMut(&Url, &[u8]) -> Result<(), OciError>,
    ) -> Result<Listed, OciError> {
        let mut walk = Walk::new(self.url(path));
        walk.next = Some(sized(walk.first.clone(), self.limits.page_names));
        let mut whole = Validators::default();
        while let Some(url) = walk.step(self)? {
            let is_first = walk.seen.len() == 1;
            let request = Request {
                accept: Some("application/json".to_owned()),
                validators: validators.filter(|_| is_first).cloned(),
                ..Request::new(url.clone())
            };
            let limits = self.limits.document(walk.rest(self));
            let answer = match self.send(scope, request.clone(), &limits).await {
                // Docker's registry refuses to list so many where it has a smaller limit, by which it goes if none is asked for.
                Err(OciError::Fetch(FetchError::Status { status, .. }))
                    if is_first && status == StatusCode::BAD_REQUEST =>
                {
                    let url = walk.first.clone();
                    self.send(scope, Request { url, ..request }, &limits).await?
                }
                answer => answer?,
            };
            if answer.status == StatusCode::NOT_MODIFIED {
                return Ok(Listed::NotModified);
            }
            let links = answer.headers.get_all(LINK).iter();
            let next = links.map(|value| value.as_bytes()).find_map(next_link);
            whole = if is_first && next.is_none() {
                answer.body.validators.clone()
            } else {
                Validators::default()
            };
            walk.take(answer, next, |url, bytes| take(url, bytes))?;
        }
        Ok(Listed::Whole(whole))
    }

    async fn walk_elsewhere(
        &self,
        first: Url,
        mut take: impl FnMut(&Url, &[u8]) -> Result<Option<String>, OciError>,
    ) -> Result<(), OciError> {
        let mut walk = Walk::new(first);
        while let Some(url) = walk.step(self)? {
            let request = Request {
                accept: Some("application/json".to_owned()),
                authorization: Authorization::None,
                ..Request::new(url)
            };
            let answer = self
                .fetcher
                .send(&request, &self.limits.document(walk.rest(self)))
                .await?;
            let mut next = None;
            walk.take(answer, None, |url, bytes| {
                next = take(url, bytes)?;
                Ok(())
            })?;
            walk.follow(next.as_deref())?;
        }
        Ok(())
    }
}

fn sized(mut url: Url, names: u32) -> Url {
    url.set_query(Some(&format!("n={names}")));
    url
}

/// The way through a listing.
struct Walk {
    first: Url,
    /// Where the last page stood.
    at: Url,
    next: Option<Url>,
    seen: HashSet<Url>,
    bytes: u64,
}

impl Walk {
    fn new(first: Url) -> Self {
        Self {
            at: first.clone(),
            next: Some(first.clone()),
            first,
            seen: HashSet::new(),
            bytes: 0,
        }
    }

    /// The next page, if there is one and it may be fetched.
    fn step(&mut self, registry: &Registry) -> Result<Option<Url>, OciError> {
        let Some(url) = self.next.take() else { return Ok(None) };
        if self.seen.len() >= registry.limits.pages {
            return Err(self.too_many(registry.limits.pages as u64, "pages"));
        }
        if !self.seen.insert(url.clone()) {
            return Err(self.lost("its pages lead in a circle"));
        }
        if self.bytes >= registry.limits.listing_bytes {
            return Err(self.too_many(registry.limits.listing_bytes, "bytes"));
        }
        Ok(Some(url))
    }

    /// Bytes that the next page may have.
    fn rest(&self, registry: &Registry) -> u64 {
        registry
            .limits
            .page_bytes
            .min(registry.limits.listing_bytes.saturating_sub(self.bytes))
    }

    fn take(
        &mut self,
        answer: Answer,
        next: Option<String>,
        take: impl FnOnce(&Url, &[u8]) -> Result<(), OciError>,
    ) -> Result<(), OciError> {
        self.bytes += answer.body.bytes;
        let bytes = body::bytes(answer.body)?;
        take(&answer.url, &bytes)?;
        self.at = answer.url;
        self.follow(next.as_deref())
    }

    /// Goes on to a page that is named relative to this one. It may stand nowhere else than the listing: whoever writes a
    /// link could otherwise send us, and our credentials, anywhere.
    fn follow(&mut self, next: Option<&str>) -> Result<(), OciError> {
        /// What is gone through is remembered, so it must be short; proxies and servers take no longer ones.
        const LINK_BYTES: usize = 8 * 1024;
        let Some(next) = next else { return Ok(()) };
        if next.len() > LINK_BYTES {
            return Err(self.lost("the link to its next page is too long"));
        }
        let next = self
            .at
            .join(next)
            .map_err(|_| self.lost("the link to its next page is no URL"))?;
        if next.origin() != self.first.origin() {
            return Err(self.lost("the link to its next page leads to another host, port or scheme"));
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

    fn lost(&self, problem: &'static str) -> OciError {
        OciError::NextPage {
            url: public_url(&self.first),
            problem,
        }
    }
}
