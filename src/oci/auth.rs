//! Authentication by Basic credentials, a custom header, or tokens from a token server. A request uses the cached token
//! of its scope. After a 401 of the registry itself, it is repeated once with the demanded credentials.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::StatusCode;
use tokio::sync::{Mutex as AsyncMutex, OnceCell};
use tokio::time::Instant;
use url::Url;

use super::challenge::{Challenge, challenges};
use super::error::OciError;
use super::{Registry, body, decode};
use crate::http::credentials;
use crate::http::secret::Secret;
use crate::http::{Authorization, FetchError, FetchLimits, Request, Response};
use crate::text::{printable, public_url, truncate};

/// Size limit of a token server's response. Tokens may have several kilobytes.
const MAX_TOKEN_BYTES: u64 = 256 * 1024;

/// Number of scopes above which unused tokens are evicted.
const MAX_TOKENS: usize = 256;

/// A token is renewed this long before it expires, or after three quarters of a shorter lifetime.
const EXPIRY_MARGIN: Duration = Duration::from_secs(10);

const OTHER_HOST: &str = "the registry redirects to another host, which requires its own credentials";

/// Cached authentication scheme and tokens of a [`Registry`].
#[derive(Debug, Default)]
pub(super) struct AuthState {
    scheme: Mutex<AuthScheme>,
    /// Set once the registry has been probed for its scheme.
    probed: OnceCell<()>,
    /// Tokens by scope. An entry is locked while its token is requested, so that other tasks wait for it.
    tokens: Mutex<HashMap<String, TokenSlot>>,
}

type TokenSlot = Arc<AsyncMutex<Option<CachedToken>>>;

impl AuthState {
    fn slot(&self, scope: &str) -> TokenSlot {
        let mut tokens = self.tokens.lock();
        if tokens.len() >= MAX_TOKENS && !tokens.contains_key(scope) {
            tokens.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        Arc::clone(tokens.entry(scope.to_owned()).or_default())
    }
}

/// Authentication scheme of the registry. A path may use another scheme in its 401.
#[derive(Debug, Clone, Default)]
enum AuthScheme {
    #[default]
    Unknown,
    Basic,
    Bearer(Realm),
}

#[derive(Debug, Clone)]
struct Realm {
    url: Url,
    service: Option<String>,
}

#[derive(Debug)]
struct CachedToken {
    token: Secret,
    expires_at: Instant,
}

enum RegistryCredentials {
    None,
    Basic(Secret),
    /// Any other header, which a token server would not accept.
    Header,
}

struct Unauthorized {
    url: String,
    challenges: Vec<Challenge>,
}

impl Unauthorized {
    fn from_error(error: FetchError) -> Result<Self, FetchError> {
        match error {
            FetchError::Status {
                url,
                status: StatusCode::UNAUTHORIZED,
                challenges: values,
                ..
            } => Ok(Self {
                url,
                challenges: values.iter().flat_map(|value| challenges(value.as_bytes())).collect(),
            }),
            error => Err(error),
        }
    }

    fn challenge(&self, scheme: &str) -> Option<&Challenge> {
        self.challenges.iter().find(|challenge| challenge.scheme == scheme)
    }

    fn error(&self, problem: impl Into<String>) -> OciError {
        OciError::Unauthorized {
            url: self.url.clone(),
            problem: problem.into(),
        }
    }
}

impl Registry {
    pub(super) async fn send(
        &self,
        scope: &str,
        mut request: Request,
        limits: &FetchLimits,
    ) -> Result<Response, OciError> {
        request.authorization = self.initial_authorization(scope).await?;
        let unauthorized = match self.fetcher.send(&request, limits).await {
            Ok(response) => return Ok(response),
            Err(error) => Unauthorized::from_error(error)?,
        };
        request.authorization = self
            .challenge_response(scope, &request.authorization, &unauthorized)
            .await?;
        match self.fetcher.send(&request, limits).await {
            Ok(response) => Ok(response),
            Err(error) => {
                let unauthorized = Unauthorized::from_error(error)?;
                Err(unauthorized.error(match self.credentials() {
                    _ if !self.has_registry_origin(&unauthorized.url) => OTHER_HOST,
                    RegistryCredentials::None => "credentials required; set them in spec.auth",
                    _ => "the credentials of spec.auth have insufficient permissions; check them",
                }))
            }
        }
    }

    fn credentials(&self) -> RegistryCredentials {
        match self.fetcher.credentials_for(&self.declared) {
            None => RegistryCredentials::None,
            Some(header) if credentials::basic(&header).is_some() => RegistryCredentials::Basic(header),
            Some(_) => RegistryCredentials::Header,
        }
    }

    async fn initial_authorization(&self, scope: &str) -> Result<Authorization, OciError> {
        match self.credentials() {
            RegistryCredentials::Header => return Ok(Authorization::FromAccess),
            // Without a probe, a registry with anonymous access would never send a challenge.
            RegistryCredentials::Basic(_) => {
                self.auth.probed.get_or_try_init(|| self.probe_scheme()).await?;
            }
            RegistryCredentials::None => {}
        }
        let scheme = self.auth.scheme.lock().clone();
        match scheme {
            AuthScheme::Bearer(realm) => self.token(scope, &realm, scope, None).await.map(Authorization::Bearer),
            AuthScheme::Basic | AuthScheme::Unknown => Ok(Authorization::FromAccess),
        }
    }

    /// Learns the scheme from `/v2/` (OCI distribution specification, section "Determining Support").
    async fn probe_scheme(&self) -> Result<(), OciError> {
        let request = Request {
            authorization: Authorization::None,
            ..Request::new(self.url("/v2/"))
        };
        let limits = self.limits.with_max_bytes(self.limits.page_bytes);
        let response = self.fetcher.send(&request, &limits).await;
        match response.map_err(Unauthorized::from_error) {
            Err(Ok(unauthorized)) if self.has_registry_origin(&unauthorized.url) => {
                if let Some(challenge) = unauthorized.challenge("bearer") {
                    self.set_scheme(AuthScheme::Bearer(self.realm(&unauthorized, challenge)?));
                } else if unauthorized.challenge("basic").is_some() {
                    self.set_scheme(AuthScheme::Basic);
                }
                Ok(())
            }
            Err(Err(error)) if error.is_transient() => Err(error.into()),
            // Some registries do not serve this path.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn set_scheme(&self, new: AuthScheme) {
        let mut scheme = self.auth.scheme.lock();
        if matches!(*scheme, AuthScheme::Unknown) {
            *scheme = new;
        }
    }

    async fn challenge_response(
        &self,
        scope: &str,
        sent: &Authorization,
        unauthorized: &Unauthorized,
    ) -> Result<Authorization, OciError> {
        if !self.has_registry_origin(&unauthorized.url) {
            return Err(unauthorized.error(OTHER_HOST));
        }
        let credentials = self.credentials();
        if matches!(credentials, RegistryCredentials::Header) {
            return Err(
                unauthorized.error("the registry rejected the Authorization header of spec.auth; set a valid one")
            );
        }
        if let Some(challenge) = unauthorized.challenge("bearer") {
            let realm = self.realm(unauthorized, challenge)?;
            let requested = challenge.parameter("scope").filter(|scope| !scope.is_empty());
            let rejected = match sent {
                Authorization::Bearer(token) => Some(token),
                _ => None,
            };
            self.set_scheme(AuthScheme::Bearer(realm.clone()));
            let token = self.token(scope, &realm, requested.unwrap_or(scope), rejected).await?;
            return Ok(Authorization::Bearer(token));
        }
        if !unauthorized.challenges.is_empty() && unauthorized.challenge("basic").is_none() {
            let schemes = unauthorized.challenges.iter();
            let schemes: Vec<&str> = schemes.map(|challenge| challenge.scheme.as_str()).collect();
            let schemes = truncate(&printable(&schemes.join(", ")), 64);
            return Err(unauthorized.error(format!(
                "unsupported authentication scheme {schemes}, expected Basic or Bearer"
            )));
        }
        match (credentials, sent) {
            (RegistryCredentials::Basic(_), Authorization::FromAccess) => {
                Err(unauthorized.error("the registry rejected the credentials of spec.auth; set valid ones"))
            }
            (RegistryCredentials::Basic(_), _) => {
                self.set_scheme(AuthScheme::Basic);
                Ok(Authorization::FromAccess)
            }
            _ => Err(unauthorized.error("credentials required; set them in spec.auth")),
        }
    }

    /// Credentials and tokens are secrets, so the token server must use https unless the registry itself uses http.
    fn realm(&self, unauthorized: &Unauthorized, challenge: &Challenge) -> Result<Realm, OciError> {
        let bad = |problem: &str| OciError::Challenge {
            url: unauthorized.url.clone(),
            problem: problem.to_owned(),
        };
        let realm = challenge.parameter("realm");
        let realm = realm.ok_or_else(|| bad("the challenge has no realm"))?;
        let mut url = Url::parse(realm).map_err(|_| bad("the realm is not a valid URL"))?;
        match url.scheme() {
            "https" => {}
            "http" if self.base.scheme() == "http" => {}
            _ => return Err(bad("the realm is not an https URL")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("the realm contains credentials"));
        }
        url.set_fragment(None);
        Ok(Realm {
            url,
            service: challenge.parameter("service").map(str::to_owned),
        })
    }

    /// Returns the cached token of a scope unless it is expired or `rejected`, or else requests one for `requested_scope`.
    async fn token(
        &self,
        scope: &str,
        realm: &Realm,
        requested_scope: &str,
        rejected: Option<&Secret>,
    ) -> Result<Secret, OciError> {
        let slot = self.auth.slot(scope);
        let mut slot = slot.lock().await;
        if let Some(cached) = slot.as_ref()
            && cached.expires_at > Instant::now()
            && rejected != Some(&cached.token)
        {
            return Ok(cached.token.clone());
        }
        let new = self.request_token(realm, requested_scope).await?;
        Ok(slot.insert(new).token.clone())
    }

    /// Requests a token as specified by Docker's token authentication ("Requesting a Token").
    async fn request_token(&self, realm: &Realm, scopes: &str) -> Result<CachedToken, OciError> {
        let mut url = realm.url.clone();
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = &realm.service {
                query.append_pair("service", service);
            }
            for scope in scopes.split_ascii_whitespace() {
                query.append_pair("scope", scope);
            }
        }
        let authorization = match self.credentials() {
            RegistryCredentials::Basic(header) => Authorization::Header(header),
            RegistryCredentials::None | RegistryCredentials::Header => Authorization::None,
        };
        let request = Request {
            authorization,
            tls_only: url.scheme() == "https",
            ..Request::new(url)
        };
        let requested_at = Instant::now();
        let limits = self.limits.with_max_bytes(MAX_TOKEN_BYTES);
        let response = self
            .fetcher
            .send(&request, &limits)
            .await
            .map_err(|error| self.token_error(realm, error))?;
        let bytes = body::bytes(response.body)?;
        let token = decode::token(&bytes).map_err(OciError::invalid(&realm.url))?;
        Ok(CachedToken {
            token: token.value,
            expires_at: requested_at + token.lifetime.saturating_sub(EXPIRY_MARGIN.min(token.lifetime / 4)),
        })
    }

    fn token_error(&self, realm: &Realm, error: FetchError) -> OciError {
        match error {
            FetchError::Status { status, .. } if matches!(status.as_u16(), 400 | 401 | 403) => {
                let advice = match self.credentials() {
                    RegistryCredentials::Basic(_) => "check the credentials of spec.auth",
                    _ => "credentials required; set them in spec.auth",
                };
                let server = public_url(&realm.url);
                OciError::Unauthorized {
                    url: public_url(&self.base),
                    problem: format!("the token server {server} returned {status}; {advice}"),
                }
            }
            error => error.into(),
        }
    }

    fn has_registry_origin(&self, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| url.origin() == self.base.origin())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::http::{Fetcher, Settings};

    #[rstest]
    #[case("oci://r.example.com", "https://auth.example.com/token", true)]
    #[case("oci://r.example.com", "http://auth.example.com/token", false)]
    #[case("https://r.example.com", "http://r.example.com/token", false)]
    #[case("http://r.example.com", "http://auth.example.com/token", true)]
    #[case("http://r.example.com", "https://auth.example.com/token", true)]
    #[case("http://r.example.com", "file:///token", false)]
    fn the_token_server_must_use_https_unless_the_registry_uses_http(
        #[case] url: &str,
        #[case] realm: &str,
        #[case] is_valid: bool,
    ) {
        let fetcher = Fetcher::new(Settings::default()).unwrap();
        let registry = Registry::new(fetcher, &url.parse().unwrap(), crate::oci::Limits::default()).unwrap();
        let unauthorized = Unauthorized {
            url: url.to_owned(),
            challenges: challenges(format!("Bearer realm=\"{realm}\"").as_bytes()),
        };
        assert_eq!(
            registry.realm(&unauthorized, &unauthorized.challenges[0]).is_ok(),
            is_valid
        );
    }

    #[test]
    fn unused_tokens_are_evicted() {
        let state = AuthState::default();
        let used = state.slot("used");
        for number in 0..3 * MAX_TOKENS {
            state.slot(&number.to_string());
        }
        assert!(state.tokens.lock().len() <= MAX_TOKENS);
        assert!(Arc::ptr_eq(&used, &state.slot("used")));
    }
}
