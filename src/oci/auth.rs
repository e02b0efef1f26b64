//! How a registry is shown that we may: Basic credentials, a header of the user's, or tokens that are asked for.
//!
//! ```text
//!  send ─► token kept for this scope? ─► request ─► 200, 304
//!             ▲                             │ 401 + challenge of the registry itself
//!             └── token server ◄── Bearer ──┤
//!                 (realm, service, scope)   └── Basic ─► credentials ─► request, for the last time
//! ```

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
use crate::http::{Answer, Authorization, FetchError, Limits, Request};
use crate::text::{printable, public_url, truncate};

/// Bytes of a token server's answer; tokens of several kilobytes are known.
const TOKEN_BYTES: u64 = 256 * 1024;

/// Tokens that are kept; a sync goes through the repositories, and is at few of them at once.
const KEPT_TOKENS: usize = 256;

/// A token is not used any more when so little of its time is left, or a quarter of it where that is less.
const MARGIN: Duration = Duration::from_secs(10);

/// A blob's store, say, that wants credentials.
const ELSEWHERE: &str = "the registry leads to another host, which wants credentials of its own";

/// What has been learned about getting in, for as long as the [`Registry`] lives.
#[derive(Debug, Default)]
pub(super) struct Keys {
    scheme: Mutex<Scheme>,
    /// Whether the registry has been asked for its scheme.
    asked: OnceCell<()>,
    /// A token for each scope. Who asks for one holds its lock, so that others wait for that token.
    tokens: Mutex<HashMap<String, Arc<AsyncMutex<Option<Kept>>>>>,
}

impl Keys {
    /// Where the token of a scope is kept.
    fn slot(&self, scope: &str) -> Arc<AsyncMutex<Option<Kept>>> {
        let mut tokens = self.tokens.lock();
        if tokens.len() >= KEPT_TOKENS && !tokens.contains_key(scope) {
            tokens.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        Arc::clone(tokens.entry(scope.to_owned()).or_default())
    }
}

/// What the registry wants in general. One path may want something else, which its own 401 then says.
#[derive(Debug, Clone, Default)]
enum Scheme {
    #[default]
    Unknown,
    Basic,
    Bearer(Realm),
}

/// Where tokens are asked for.
#[derive(Debug, Clone)]
struct Realm {
    url: Url,
    service: Option<String>,
}

#[derive(Debug)]
struct Kept {
    token: Secret,
    until: Instant,
}

/// What the user gave for this registry.
enum Credentials {
    None,
    Basic(Secret),
    /// Any other header: nothing can be asked for with it.
    Header,
}

/// A 401.
struct Refusal {
    url: String,
    challenges: Vec<Challenge>,
}

impl Refusal {
    fn of(error: FetchError) -> Result<Self, FetchError> {
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

    fn unauthorized(&self, problem: impl Into<String>) -> OciError {
        OciError::Unauthorized {
            url: self.url.clone(),
            problem: problem.into(),
        }
    }
}

impl Registry {
    /// Sends a request to the registry with what is known to get in, and after a 401 once more with what that asks for.
    pub(super) async fn send(&self, scope: &str, mut request: Request, limits: &Limits) -> Result<Answer, OciError> {
        request.authorization = self.known(scope).await?;
        let refusal = match self.fetcher.send(&request, limits).await {
            Ok(answer) => return Ok(answer),
            Err(error) => Refusal::of(error)?,
        };
        request.authorization = self.answer(scope, &request.authorization, &refusal).await?;
        match self.fetcher.send(&request, limits).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                let refusal = Refusal::of(error)?;
                Err(refusal.unauthorized(match self.credentials() {
                    _ if !self.is_own(&refusal.url) => ELSEWHERE,
                    Credentials::None => "it wants credentials; give the repository some by spec.auth",
                    _ => "the credentials of spec.auth do not suffice; check them, and what they give access to",
                }))
            }
        }
    }

    /// What the user gave, if it may go to this registry.
    fn credentials(&self) -> Credentials {
        match self.fetcher.credentials_for(&self.declared) {
            None => Credentials::None,
            Some(header) if credentials::basic(&header).is_some() => Credentials::Basic(header),
            Some(_) => Credentials::Header,
        }
    }

    /// What is shown before a 401 has asked for anything.
    async fn known(&self, scope: &str) -> Result<Authorization, OciError> {
        match self.credentials() {
            Credentials::Header => return Ok(Authorization::OfAccess),
            // Without this, a registry that shows something to everybody would show no more than that.
            Credentials::Basic(_) => {
                self.keys.asked.get_or_try_init(|| self.ask_for_scheme()).await?;
            }
            Credentials::None => {}
        }
        let scheme = self.keys.scheme.lock().clone();
        match scheme {
            Scheme::Bearer(realm) => self.token(scope, &realm, scope, None).await.map(Authorization::Bearer),
            Scheme::Basic | Scheme::Unknown => Ok(Authorization::OfAccess),
        }
    }

    /// Asks for `/v2/`, which has no other purpose than to say what is wanted (OCI distribution specification, section
    /// "Determining Support").
    async fn ask_for_scheme(&self) -> Result<(), OciError> {
        let request = Request {
            authorization: Authorization::None,
            ..Request::new(self.url("/v2/"))
        };
        let limits = self.limits.document(self.limits.page_bytes);
        match self.fetcher.send(&request, &limits).await.map_err(Refusal::of) {
            Ok(_) => Ok(()),
            Err(Ok(refusal)) if self.is_own(&refusal.url) => {
                if let Some(challenge) = refusal.challenge("bearer") {
                    self.learn(Scheme::Bearer(self.realm(&refusal, challenge)?));
                } else if refusal.challenge("basic").is_some() {
                    self.learn(Scheme::Basic);
                }
                Ok(())
            }
            Err(Err(error)) if error.is_transient() => Err(error.into()),
            // Not every registry serves this path to everybody.
            Err(_) => Ok(()),
        }
    }

    fn learn(&self, learned: Scheme) {
        let mut scheme = self.keys.scheme.lock();
        if matches!(*scheme, Scheme::Unknown) {
            *scheme = learned;
        }
    }

    /// What a 401 asks for.
    async fn answer(&self, scope: &str, shown: &Authorization, refusal: &Refusal) -> Result<Authorization, OciError> {
        if !self.is_own(&refusal.url) {
            return Err(refusal.unauthorized(ELSEWHERE));
        }
        let credentials = self.credentials();
        if matches!(credentials, Credentials::Header) {
            return Err(refusal.unauthorized("the Authorization header of spec.auth does not suffice; give a new one"));
        }
        if let Some(challenge) = refusal.challenge("bearer") {
            let realm = self.realm(refusal, challenge)?;
            let wanted = challenge.parameter("scope").filter(|scope| !scope.is_empty());
            let refused = match shown {
                Authorization::Bearer(token) => Some(token),
                _ => None,
            };
            self.learn(Scheme::Bearer(realm.clone()));
            let token = self.token(scope, &realm, wanted.unwrap_or(scope), refused).await?;
            return Ok(Authorization::Bearer(token));
        }
        if !refusal.challenges.is_empty() && refusal.challenge("basic").is_none() {
            let schemes: Vec<&str> = refusal
                .challenges
                .iter()
                .map(|challenge| challenge.scheme.as_str())
                .collect();
            let schemes = truncate(&printable(&schemes.join(", ")), 64);
            return Err(refusal.unauthorized(format!("it wants {schemes}, where only Basic and Bearer are known")));
        }
        match (credentials, shown) {
            (Credentials::Basic(_), Authorization::OfAccess) => {
                Err(refusal.unauthorized("the credentials of spec.auth are refused; give the right ones"))
            }
            (Credentials::Basic(_), _) => {
                self.learn(Scheme::Basic);
                Ok(Authorization::OfAccess)
            }
            _ => Err(refusal.unauthorized("it wants credentials; give the repository some by spec.auth")),
        }
    }

    /// Where a challenge sends us for a token. What is shown there, and what comes back, are secrets, so it must be https,
    /// unless the registry itself has none.
    fn realm(&self, refusal: &Refusal, challenge: &Challenge) -> Result<Realm, OciError> {
        let bad = |problem: &str| OciError::Challenge {
            url: refusal.url.clone(),
            problem: problem.to_owned(),
        };
        let realm = challenge
            .parameter("realm")
            .ok_or_else(|| bad("its challenge names no realm"))?;
        let mut url = Url::parse(realm).map_err(|_| bad("the realm of its challenge is no URL"))?;
        match url.scheme() {
            "https" => {}
            "http" if self.base.scheme() == "http" => {}
            _ => return Err(bad("the realm of its challenge is not https")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad("the realm of its challenge holds credentials"));
        }
        url.set_fragment(None);
        Ok(Realm {
            url,
            service: challenge.parameter("service").map(str::to_owned),
        })
    }

    /// The token kept for a scope, or a new one. `wanted` is the scope in the registry's words; a token that was refused
    /// is not given again.
    async fn token(
        &self,
        scope: &str,
        realm: &Realm,
        wanted: &str,
        refused: Option<&Secret>,
    ) -> Result<Secret, OciError> {
        let slot = self.keys.slot(scope);
        let mut slot = slot.lock().await;
        if let Some(kept) = slot.as_ref()
            && kept.until > Instant::now()
            && refused != Some(&kept.token)
        {
            return Ok(kept.token.clone());
        }
        let kept = self.ask_for_token(realm, wanted).await?;
        Ok(slot.insert(kept).token.clone())
    }

    /// Asks the token server, by the rules of Docker's token authentication ("Requesting a Token").
    async fn ask_for_token(&self, realm: &Realm, scopes: &str) -> Result<Kept, OciError> {
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
            Credentials::Basic(header) => Authorization::Header(header),
            Credentials::None | Credentials::Header => Authorization::None,
        };
        let request = Request {
            authorization,
            tls_only: url.scheme() == "https",
            ..Request::new(url)
        };
        let asked = Instant::now();
        let answer = self.fetcher.send(&request, &self.limits.document(TOKEN_BYTES)).await;
        let answer = answer.map_err(|error| self.no_token(realm, error))?;
        let bytes = body::bytes(answer.body)?;
        let token = decode::token(&bytes).map_err(|error| OciError::Invalid {
            url: public_url(&realm.url),
            error,
        })?;
        Ok(Kept {
            token: token.value,
            until: asked + token.holds.saturating_sub(MARGIN.min(token.holds / 4)),
        })
    }

    fn no_token(&self, realm: &Realm, error: FetchError) -> OciError {
        match error {
            FetchError::Status { status, .. } if matches!(status.as_u16(), 400 | 401 | 403) => {
                let what = match self.credentials() {
                    Credentials::Basic(_) => "check the credentials of spec.auth",
                    _ => "it wants credentials: give the repository some by spec.auth",
                };
                OciError::Unauthorized {
                    url: public_url(&self.base),
                    problem: format!("its token server {} answered {status}; {what}", public_url(&realm.url)),
                }
            }
            error => error.into(),
        }
    }

    /// Whether something stands at the registry itself: its scheme, host and port.
    fn is_own(&self, url: &str) -> bool {
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
    fn a_token_is_asked_for_over_tls_unless_the_registry_has_none(
        #[case] url: &str,
        #[case] realm: &str,
        #[case] good: bool,
    ) {
        let fetcher = Fetcher::new(Settings::default()).unwrap();
        let registry = Registry::new(fetcher, &url.parse().unwrap(), crate::oci::Limits::default()).unwrap();
        let refusal = Refusal {
            url: url.to_owned(),
            challenges: challenges(format!("Bearer realm=\"{realm}\"").as_bytes()),
        };
        assert_eq!(registry.realm(&refusal, &refusal.challenges[0]).is_ok(), good);
    }
    #[test]
    fn tokens_of_repositories_that_nobody_is_at_are_forgotten() {
        let keys = Keys::default();
        let used = keys.slot("used");
        for number in 0..3 * KEPT_TOKENS {
            keys.slot(&number.to_string());
        }
        assert!(keys.tokens.lock().len() <= KEPT_TOKENS);
        assert!(Arc::ptr_eq(&used, &keys.slot("used")));
    }
}
