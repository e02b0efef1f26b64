//! Access to the catalog: callers see the namespaces in which they may list AppRepositories, or releases.
//!
//! ```text
//!  request ─► Hosts ─► Credentials ─► Callers (cache) ─► Reviewer (limits) ─► Reviews (API server)
//!  cookie ─► Session ──────┘ on pages and in the API
//! ```

mod callers;
mod cluster;
mod credentials;
mod hosts;
mod identity;
mod metrics;
mod origin;
mod reviewer;
mod session;

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use tokio::time::timeout;

use callers::Callers;
pub use cluster::{ClusterReviews, ListedResource};
pub(super) use credentials::CallerToken;
use credentials::Credentials;
use hosts::Hosts;
pub use metrics::AccessMetrics;
pub(super) use origin::{OriginError, check as check_origin};
pub use reviewer::{ReviewError, Reviews, User};
pub(super) use session::{Session, Sessions, TokenError};

use super::limits::ClientAddress;
use crate::server::tokens::TokenDigest;

/// For reviews that a request needs. Less than the time that a request has.
const MAX_WAIT: Duration = Duration::from_secs(8);
/// Seconds after which a caller should try again if the API server is away.
const RETRY_AFTER: u64 = 5;
const UNAVAILABLE: AccessError = AccessError::Unavailable {
    retry_after: RETRY_AFTER,
};

/// The caller, and the namespaces in which the caller may list the resource.
#[derive(Clone, Debug)]
pub struct Caller {
    /// `None`: anonymous.
    pub user: Option<String>,
    pub namespaces: Visible,
}

#[derive(Clone, Debug)]
pub enum Visible {
    All,
    Only(Arc<BTreeSet<String>>),
}

/// No namespace.
impl Default for Visible {
    fn default() -> Self {
        Self::Only(Arc::default())
    }
}

/// The namespaces of a flag; `*` stands for all.
impl FromIterator<String> for Visible {
    fn from_iter<I: IntoIterator<Item = String>>(namespaces: I) -> Self {
        let namespaces: BTreeSet<String> = namespaces.into_iter().collect();
        if namespaces.contains("*") {
            Self::All
        } else {
            Self::Only(Arc::new(namespaces))
        }
    }
}

impl Visible {
    #[must_use]
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(namespaces) => namespaces.contains(namespace),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::All => false,
            Self::Only(namespaces) => namespaces.is_empty(),
        }
    }

    fn one(namespace: &str) -> Self {
        Self::Only(Arc::new(BTreeSet::from([namespace.to_owned()])))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    #[error("a valid token is required, as bearer token or as the password of Basic credentials")]
    Unauthenticated,
    /// Without a namespace: the caller may not list in all of them, and there are too many to review each.
    #[error("{}", forbidden(.user, *.resource, .namespace.as_deref()))]
    Forbidden {
        user: String,
        resource: ListedResource,
        namespace: Option<String>,
    },
    #[error("the API server has not reviewed the token and its rights in time, try again in {retry_after}s")]
    Unavailable { retry_after: u64 },
    #[error("too many unknown tokens, try again in {retry_after}s")]
    TooMany { retry_after: u64 },
    #[error("the host of the request is not served, allow it with --external-url or --allowed-hosts")]
    Misdirected,
    /// Of a listener on loopback.
    #[error("the host of the request is not this one, use localhost or a loopback address")]
    ForeignHost,
}

fn forbidden(user: &str, resource: ListedResource, namespace: Option<&str>) -> String {
    match namespace {
        Some(namespace) => format!("user {user} may not list {resource} in the namespace {namespace}"),
        None => format!("user {user} may not list {resource} in all namespaces, name one of them"),
    }
}

#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// Callers see the namespaces in which they may list it.
    pub resource: ListedResource,
    /// The namespaces that all callers see, without credentials too.
    pub anonymous: Visible,
    /// Visible to every authenticated caller.
    pub global_repos_namespace: Option<String>,
    /// The only namespace that is served; all if `None`.
    pub watched_namespace: Option<String>,
    /// The host of `--external-url`.
    pub external_host: Option<String>,
    pub allowed_hosts: Vec<String>,
    pub limits: Limits,
    pub metrics: AccessMetrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub concurrent_reviews: usize,
    pub reviews_per_second: NonZeroU32,
    /// Reviews above the rate after a pause: those of one caller.
    pub review_burst: NonZeroU32,
    /// Tokens that were not valid within the last hour, and are not known to be invalid: of an address, or of all callers.
    pub unknown_tokens_per_second: NonZeroU32,
    pub callers: usize,
    /// Namespaces that are reviewed one by one for a caller.
    pub namespaces: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const REVIEWS: NonZeroU32 = NonZeroU32::new(50).unwrap();
        const BURST: NonZeroU32 = NonZeroU32::new(500).unwrap();
        const UNKNOWN_TOKENS: NonZeroU32 = NonZeroU32::new(10).unwrap();
        Self {
            concurrent_reviews: 8,
            reviews_per_second: REVIEWS,
            review_burst: BURST,
            unknown_tokens_per_second: UNKNOWN_TOKENS,
            callers: 4096,
            namespaces: 500,
        }
    }
}

pub struct Access {
    /// `None`: each request has a token, which the page of another site does not know.
    hosts: Option<Hosts>,
    /// Visible without credentials.
    anonymous: Visible,
    /// `None` without an API server: credentials are ignored.
    callers: Option<Arc<Callers>>,
}

impl Access {
    /// Everything is visible to all: without an API server, on loopback.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            hosts: Some(Hosts::loopback()),
            anonymous: Visible::All,
            callers: None,
        }
    }

    #[must_use]
    pub fn new(options: AccessOptions, reviews: Arc<dyn Reviews>) -> Self {
        let has_host_check = options.external_host.is_some() || !options.anonymous.is_empty();
        let names = options.external_host.iter().chain(&options.allowed_hosts);
        Self {
            hosts: has_host_check.then(|| Hosts::named(names)),
            anonymous: options.anonymous.clone(),
            callers: Some(Arc::new(Callers::new(options, reviews))),
        }
    }

    /// Returns the caller of a request. `namespaces` are those with objects of the resource.
    ///
    /// With a namespace that the request names, the caller sees at most this one, or all. Others are not reviewed for it.
    ///
    /// Unknown tokens count for `address`, or else for the process.
    pub async fn caller(
        &self,
        headers: &HeaderMap,
        namespaces: &[String],
        named: Option<&str>,
        address: Option<ClientAddress>,
    ) -> Result<Caller, AccessError> {
        self.check_host(headers)?;
        let Some(callers) = &self.callers else {
            return self.anonymous(named);
        };
        match Credentials::of(headers) {
            Credentials::Missing => self.anonymous(named),
            Credentials::Unusable => Err(AccessError::Unauthenticated),
            Credentials::Token(token) => timeout(MAX_WAIT, callers.caller(token, namespaces, named, address))
                .await
                .unwrap_or(Err(UNAVAILABLE)),
        }
    }

    /// Returns true if callers may sign in: there is an API server that reviews their tokens.
    #[must_use]
    pub const fn has_sign_in(&self) -> bool {
        self.callers.is_some()
    }

    /// Returns the owner of the token of a request, whatever the owner may list; `None` for a request without credentials.
    pub async fn owner(
        &self,
        headers: &HeaderMap,
        address: Option<ClientAddress>,
    ) -> Result<Option<String>, AccessError> {
        self.check_host(headers)?;
        let Some(callers) = &self.callers else {
            return Ok(None);
        };
        match Credentials::of(headers) {
            Credentials::Missing => Ok(None),
            Credentials::Unusable => Err(AccessError::Unauthenticated),
            Credentials::Token(token) => timeout(MAX_WAIT, callers.owner(token, address))
                .await
                .unwrap_or(Err(UNAVAILABLE))
                .map(Some),
        }
    }

    /// Returns the token of a request, which is not reviewed yet; `None` without an API server.
    pub(super) fn token(&self, headers: &HeaderMap) -> Option<CallerToken> {
        self.callers.as_ref()?;
        match Credentials::of(headers) {
            Credentials::Token(token) => CallerToken::new(&token),
            Credentials::Missing | Credentials::Unusable => None,
        }
    }

    fn check_host(&self, headers: &HeaderMap) -> Result<(), AccessError> {
        match &self.hosts {
            Some(hosts) if !hosts.allow(headers) => Err(hosts.error()),
            _ => Ok(()),
        }
    }

    /// Returns the token of a request if it was valid within the last hour.
    #[must_use]
    pub fn known_token(&self, headers: &HeaderMap) -> Option<TokenDigest> {
        match Credentials::of(headers) {
            Credentials::Token(token) => self.known(&token),
            Credentials::Missing | Credentials::Unusable => None,
        }
    }

    pub(super) fn known(&self, token: &str) -> Option<TokenDigest> {
        self.callers.as_ref()?.known(token)
    }

    fn anonymous(&self, named: Option<&str>) -> Result<Caller, AccessError> {
        let namespaces = match (&self.anonymous, named) {
            (Visible::Only(namespaces), Some(named)) if namespaces.contains(named) => Visible::one(named),
            (Visible::Only(_), Some(_)) => Visible::default(),
            (visible, _) => visible.clone(),
        };
        if namespaces.is_empty() {
            return Err(AccessError::Unauthenticated);
        }
        Ok(Caller { user: None, namespaces })
    }
}

#[cfg(test)]
mod tests;
