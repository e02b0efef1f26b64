//! How one repository's hosts are reached, and which of them gets its credentials.

use std::fmt;

use ::url::Url;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use reqwest::header::HeaderValue;
use sha2::{Digest as _, Sha256};

use super::encoded::percent_decoded;
use super::error::FetchError;
use super::proxy::Proxies;
use super::request::{Authorization, Request};
use super::secret::Secret;
use super::url::Origin;
use crate::text::public_url;

/// How one repository's hosts are reached: TLS, proxies, credentials. Made for one sync and dropped with it.
///
/// The credentials are the `authorization`, or else the user information of `scope`. They go to scheme, host and port of
/// `scope` alone, whatever asks for them and wherever a redirect leads, unless `pass_credentials`; and what was given for
/// `https` never goes over plain `http`.
#[derive(Clone, Default)]
pub struct Access {
    /// The value of the header `Authorization`.
    pub authorization: Option<Secret>,
    /// The repository's URL: its scheme, host and port are where the credentials may go. `oci` counts as `https`. Without
    /// it they go nowhere, except with `pass_credentials`.
    pub scope: Option<Url>,
    /// Sends the credentials everywhere, as Helm's `--pass-credentials` does.
    pub pass_credentials: bool,
    /// Certificate authorities in PEM that are trusted beside the system's.
    pub ca: Option<Vec<u8>>,
    /// Takes any certificate, for any name.
    pub insecure: bool,
    /// The proxies of this repository, in place of the environment's; those of the environment if there are none.
    pub proxies: Option<Proxies>,
}

impl Access {
    /// What is sent to the origin of the repository.
    fn credentials(&self) -> Option<Secret> {
        let of_scope = || self.scope.as_ref().and_then(basic_of);
        self.authorization.clone().or_else(of_scope)
    }

    /// What may be sent to `url`, be it that of a request or of a repository.
    pub(super) fn credentials_for(&self, url: &Url) -> Option<Secret> {
        let scope = self.scope.as_ref().and_then(Origin::of);
        let is_own = scope.is_some() && scope == Origin::of(url);
        self.credentials().filter(|_| is_own || self.pass_credentials)
    }

    /// Refuses what can't be a header.
    pub(super) fn check(&self) -> Result<(), FetchError> {
        self.authorization
            .as_ref()
            .map_or(Ok(()), |secret| header(secret).map(|_| ()))
    }
}

/// Proxies and TLS settings of a repository's own, told from all others, and without the secrets that may be in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Identity([u8; 32]);

impl Access {
    /// Who reaches hosts in the same way; none if it is the way of all who need nothing of their own.
    pub(super) fn identity(&self) -> Option<Identity> {
        if self.ca.is_none() && !self.insecure && self.proxies.is_none() {
            return None;
        }
        let proxies = self.proxies.as_ref();
        let text = |text: Option<&String>| text.map(|text| text.clone().into_bytes());
        Some(Identity(digest([
            self.ca.clone(),
            self.insecure.then(Vec::new),
            proxies.map(|_| Vec::new()),
            text(proxies.and_then(|proxies| proxies.http.as_ref())),
            text(proxies.and_then(|proxies| proxies.https.as_ref())),
            text(proxies.and_then(|proxies| proxies.none.as_ref())),
        ])))
    }

    /// All that can make an answer another one beside the request itself.
    pub(super) fn requester(&self) -> Requester {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Requester(digest([
            self.identity().map(|Identity(digest)| digest.to_vec()),
            self.authorization.as_ref().map(|secret| bytes(secret.expose())),
            self.scope.as_ref().map(|scope| bytes(scope.as_str())),
            self.pass_credentials.then(Vec::new),
        ]))
    }
}

/// Who asks, credentials included, as a digest that is in memory only.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Requester([u8; 32]);

fn digest<const FIELDS: usize>(fields: [Option<Vec<u8>>; FIELDS]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for field in fields {
        // With its length, so that no two lists run into the same bytes.
        match field {
            None => hash.update([0]),
            Some(bytes) => {
                hash.update([1]);
                hash.update((bytes.len() as u64).to_le_bytes());
                hash.update(bytes);
            }
        }
    }
    hash.finalize().into()
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("authorization", &self.authorization)
            .field("scope", &self.scope.as_ref().map(public_url))
            .field("pass_credentials", &self.pass_credentials)
            .field("ca_bytes", &self.ca.as_ref().map(Vec::len))
            .field("insecure", &self.insecure)
            .field("proxies", &self.proxies)
            .finish()
    }
}

/// The `Authorization` of one request, decided anew at each hop of it.
#[derive(Debug)]
pub(super) struct Credentials {
    own: Option<HeaderValue>,
    /// Where `own` may go.
    origin: Option<Origin>,
    everywhere: bool,
    /// Of the request's own URL, or its bearer token; only for its own origin.
    of_request: Option<HeaderValue>,
    first: Option<Origin>,
    /// Set once anything was asked for, or the repository is declared, over TLS.
    is_secured: bool,
}

impl Credentials {
    pub(super) fn new(access: &Access, request: &Request) -> Result<Self, FetchError> {
        let origin = access.scope.as_ref().and_then(Origin::of);
        let (own, of_request) = match &request.authorization {
            Authorization::None => (None, None),
            Authorization::Bearer(token) => (None, Some(Secret::new(format!("Bearer {}", token.expose())))),
            Authorization::Header(value) => (None, Some(value.clone())),
            Authorization::OfAccess => (access.credentials(), basic_of(&request.url)),
        };
        Ok(Self {
            own: own.as_ref().map(header).transpose()?,
            is_secured: origin.as_ref().is_some_and(Origin::is_secured),
            origin,
            everywhere: access.pass_credentials,
            of_request: of_request.as_ref().map(header).transpose()?,
            first: Origin::of(&request.url),
        })
    }

    /// What this hop gets. Hops are told in their order.
    pub(super) fn at(&mut self, url: &Url) -> Option<HeaderValue> {
        let hop = Origin::of(url)?;
        let own = self.own.as_ref().filter(|_| {
            // The origin holds the scheme, so that only credentials that go everywhere could be downgraded.
            let is_downgrade = self.is_secured && !hop.is_secured();
            self.origin.as_ref() == Some(&hop) || (self.everywhere && !is_downgrade)
        });
        self.is_secured |= hop.is_secured();
        let of_request = || self.of_request.as_ref().filter(|_| self.first.as_ref() == Some(&hop));
        own.or_else(of_request).cloned()
    }
}

/// The user information of a URL as `Basic` credentials.
fn basic_of(url: &Url) -> Option<Secret> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut pair = percent_decoded(url.username());
    pair.push(b':');
    pair.extend(percent_decoded(url.password().unwrap_or_default()));
    Some(Secret::new(format!("Basic {}", BASE64_STANDARD.encode(pair))))
}

/// A header that the client's own log lines leave out too.
fn header(secret: &Secret) -> Result<HeaderValue, FetchError> {
    let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| FetchError::InvalidCredentials)?;
    value.set_sensitive(true);
    Ok(value)
}
