//! A token server (Docker registry token authentication): registries that know its key refer clients to it and accept
//! its tokens.

use std::collections::{HashSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, Response, StatusCode, header};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SigningKey};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::registry::{PASSWORD, USER};
use super::tls::{Authority, TlsListener};

/// Service name of registries that use this server.
pub const SERVICE: &str = "portolan-test-registry";
/// Issuer of tokens.
pub const ISSUER: &str = "portolan-test-tokens";

const KEY_ID: &str = "portolan-test-key";

/// A request for a token.
#[derive(Clone, Debug)]
pub struct TokenRequest {
    /// GET, or POST by clients that try OAuth 2 first.
    pub method: Method,
    /// The `service` parameter.
    pub service: Option<String>,
    /// The `scope` parameters, split at blanks.
    pub scopes: Vec<String>,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// The response status.
    pub status: StatusCode,
}

struct Behavior {
    anonymous: bool,
    denied: HashSet<String>,
    expired: usize,
    lifetime: u64,
    field: &'static str,
    refusals: VecDeque<(StatusCode, Option<String>)>,
    issued: u64,
}

/// Signs tokens for the server, and for pushes by the tests.
pub struct Signer(KeyPair);

impl Signer {
    /// Returns a token issued at `now` that expires at `expires` (Unix seconds), with this `access` claim.
    fn token(&self, access: &[Value], now: u64, expires: u64, id: u64) -> String {
        let header = json!({"alg": "EdDSA", "typ": "JWT", "kid": KEY_ID});
        let claims = json!({"iss": ISSUER, "sub": USER, "aud": SERVICE, "exp": expires, "nbf": now - 600, "iat": now,
            "jti": id.to_string(), "access": access});
        let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.0.sign(signed.as_bytes()).expect("ring signs");
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    /// Returns a token with all permissions on one repository.
    pub fn token_for(&self, repository: &str) -> String {
        let access = json!({"type": "repository", "name": repository, "actions": ["pull", "push", "delete"]});
        self.token(&[access], now(), now() + 3600, 0)
    }

    /// Returns the public key as a JSON Web Key Set, for the registry.
    pub fn key_set(&self) -> String {
        let key = BASE64_URL_SAFE_NO_PAD.encode(self.0.der_bytes());
        json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": KEY_ID, "use": "sig", "alg": "EdDSA", "x": key}]})
            .to_string()
    }
}

struct Shared {
    signer: Arc<Signer>,
    behavior: Mutex<Behavior>,
    requests: Mutex<Vec<TokenRequest>>,
}

/// A running token server; it ends with the test's runtime. It grants requested permissions to `USER` with `PASSWORD`
/// only.
pub struct TokenServer {
    base: String,
    shared: Arc<Shared>,
}

impl TokenServer {
    /// Starts a server without TLS.
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts a server with a certificate of this authority.
    pub async fn start_tls(authority: &Authority) -> Self {
        Self::start_with(Some(authority)).await
    }

    async fn start_with(authority: Option<&Authority>) -> Self {
        let (listener, shared, address) = prepare().await;
        let service = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let scheme = match authority {
            None => {
                tokio::spawn(async move { axum::serve(listener, service).await });
                "http"
            }
            Some(authority) => {
                let listener = TlsListener::new(listener, authority);
                tokio::spawn(async move { axum::serve(listener, service).await });
                "https"
            }
        };
        Self {
            base: format!("{scheme}://{address}"),
            shared,
        }
    }

    /// Returns the realm of challenges: the URL for token requests.
    pub fn realm(&self) -> String {
        format!("{}/token", self.base)
    }

    pub fn signer(&self) -> Arc<Signer> {
        Arc::clone(&self.shared.signer)
    }

    /// Allows anonymous pulls from now on, like Docker Hub.
    pub fn allow_anonymous_pulls(&self) {
        self.configure(|behavior| behavior.anonymous = true);
    }

    /// Denies this repository (or `catalog`) from now on: tokens are valid, but their access is empty.
    pub fn deny(&self, name: &str) {
        self.configure(|behavior| behavior.denied.extend([name.to_owned()]));
    }

    /// Issues expired tokens for this many requests.
    pub fn expire(&self, tokens: usize) {
        self.configure(|behavior| behavior.expired = tokens);
    }

    /// Sets `expires_in` of responses, regardless of the tokens' lifetime.
    pub fn claim_lifetime(&self, seconds: u64) {
        self.configure(|behavior| behavior.lifetime = seconds);
    }

    /// Returns tokens as `access_token`, like OAuth 2, instead of `token`.
    pub fn use_access_token_field(&self) {
        self.configure(|behavior| behavior.field = "access_token");
    }

    /// Responds to one request with this status and an optional `Retry-After`, after previously requested ones.
    pub fn refuse_once(&self, status: u16, retry_after: Option<&str>) {
        let status = StatusCode::from_u16(status).expect("a status");
        self.configure(|behavior| behavior.refusals.push_back((status, retry_after.map(str::to_owned))));
    }

    /// Returns the recorded requests, oldest first.
    pub fn requests(&self) -> Vec<TokenRequest> {
        self.shared.requests.lock().expect("mutex is not poisoned").clone()
    }

    fn configure(&self, change: impl FnOnce(&mut Behavior)) {
        change(&mut self.shared.behavior.lock().expect("mutex is not poisoned"));
    }
}

async fn prepare() -> (TcpListener, Arc<Shared>, std::net::SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port is free");
    let address = listener.local_addr().expect("a bound socket has an address");
    let behavior = Behavior {
        anonymous: false,
        denied: HashSet::new(),
        expired: 0,
        lifetime: 300,
        field: "token",
        refusals: VecDeque::new(),
        issued: 0,
    };
    let shared = Shared {
        signer: Arc::new(Signer(
            KeyPair::generate_for(&PKCS_ED25519).expect("ring generates keys"),
        )),
        behavior: Mutex::new(behavior),
        requests: Mutex::default(),
    };
    (listener, Arc::new(shared), address)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is set").as_secs()
}

/// Returns the `Authorization` header of `USER`.
pub fn basic_authorization() -> String {
    format!("Basic {}", BASE64_STANDARD.encode(format!("{USER}:{PASSWORD}")))
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let query: Vec<(String, String)> =
        url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes())
            .into_owned()
            .collect();
    let values = |wanted: &str| {
        let found: Vec<String> = query
            .iter()
            .filter(|(name, _)| name == wanted)
            .map(|(_, value)| value.clone())
            .collect();
        found
    };
    let authorization = request.headers().get(header::AUTHORIZATION);
    let authorization = authorization.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let scopes: Vec<String> = values("scope")
        .iter()
        .flat_map(|scope| scope.split_whitespace())
        .map(str::to_owned)
        .collect();
    let response = {
        let mut behavior = shared.behavior.lock().expect("mutex is not poisoned");
        if request.method() == Method::GET && request.uri().path() == "/token" {
            behavior.decide(&shared.signer, authorization.as_deref(), &scopes)
        } else {
            respond(StatusCode::NOT_FOUND, None, &json!({}))
        }
    };
    shared
        .requests
        .lock()
        .expect("mutex is not poisoned")
        .push(TokenRequest {
            method: request.method().clone(),
            service: values("service").into_iter().next(),
            scopes,
            authorization,
            status: response.status(),
        });
    response
}

impl Behavior {
    fn decide(&mut self, signer: &Signer, authorization: Option<&str>, scopes: &[String]) -> Response<Body> {
        if let Some((status, retry_after)) = self.refusals.pop_front() {
            return respond(
                status,
                retry_after.as_deref(),
                &json!({"details": "injected by the test"}),
            );
        }
        let known = authorization == Some(&basic_authorization());
        if !known && (authorization.is_some() || !self.anonymous) {
            return respond(
                StatusCode::UNAUTHORIZED,
                None,
                &json!({"details": "wrong user or password"}),
            );
        }
        let access: Vec<Value> = scopes.iter().filter_map(|scope| self.granted(scope, known)).collect();
        let now = now();
        // Registries tolerate a clock difference of one minute.
        let expires = if self.expired > 0 { now - 120 } else { now + 300 };
        self.expired = self.expired.saturating_sub(1);
        self.issued += 1;
        let token = signer.token(&access, now, expires, self.issued);
        respond(
            StatusCode::OK,
            None,
            &json!({self.field: token, "expires_in": self.lifetime}),
        )
    }

    /// Returns the granted part of a scope such as `repository:harbour/charts:pull,push`.
    fn granted(&self, scope: &str, known: bool) -> Option<Value> {
        let (kind, rest) = scope.split_once(':')?;
        let (name, actions) = rest.rsplit_once(':')?;
        let actions: Vec<&str> = actions.split(',').filter(|action| known || *action == "pull").collect();
        (!self.denied.contains(name)).then(|| json!({"type": kind, "name": name, "actions": actions}))
    }
}

fn respond(status: StatusCode, retry_after: Option<&str>, body: &Value) -> Response<Body> {
    let mut response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/json");
    if let Some(value) = retry_after {
        response = response.header(header::RETRY_AFTER, value);
    }
    response.body(body.to_string().into()).expect("the response is valid")
}
