use std::error::Error as _;
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use reqwest::redirect::Policy;
use reqwest::{Client, RequestBuilder, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::cmd::{Error, failed_to};
use crate::http::user_agent;
use crate::text::truncate;

const PROBLEM: &[u8] = b"application/problem+json";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For a request with its response.
const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// The most that the API allows in one page.
const PAGE_SIZE: usize = 200;
/// A server could continue a list without an end.
const MAX_PAGES: usize = 1_000;
const MAX_DETAIL: usize = 500;
const WRONG_ADDRESS: &str = "is this the address of portolan serve?";

/// A client of the REST API below one address.
pub struct ServerClient {
    address: Url,
    token: Option<HeaderValue>,
    client: Client,
}

/// The items of a list, up to a limit.
pub struct Listed<T> {
    pub items: Vec<T>,
    pub has_more: bool,
    /// Charts are left out, because the server has no memory for them.
    pub is_incomplete: bool,
}

#[derive(Deserialize)]
struct Page<T> {
    items: Vec<T>,
    next: Option<String>,
    #[serde(default)]
    incomplete: bool,
    #[serde(default)]
    stale: bool,
}

#[derive(Deserialize)]
struct Problem {
    title: String,
    detail: String,
}

impl ServerClient {
    pub(super) fn new(address: Url, token: Option<HeaderValue>) -> Result<Self, Error> {
        let is_plain = address.scheme() == "http";
        let builder = || {
            let builder = Client::builder()
                .user_agent(user_agent(""))
                // Another host must not get the token or the names of charts.
                .redirect(Policy::none())
                .connect_timeout(CONNECT_TIMEOUT)
                .timeout(TIMEOUT);
            // A proxy of the environment could read a request to this host.
            if is_plain { builder.no_proxy() } else { builder }
        };
        // Without certificates of the system, plain HTTP must still work.
        let built = builder().build();
        let client = match built {
            Err(_) if is_plain => builder().tls_certs_only([]).build(),
            built => built,
        };
        Ok(Self {
            address,
            token,
            client: client.map_err(failed_to("create an HTTP client"))?,
        })
    }

    /// Returns a resource, `None` if it is not there or not visible to the caller.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Option<T>, Error> {
        self.send(self.client.get(self.endpoint(path))).await
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<T, Error> {
        let body = serde_json::to_vec(body)?;
        let request = self
            .client
            .post(self.endpoint(path))
            .header(CONTENT_TYPE, "application/json");
        self.found(request.body(body)).await
    }

    /// Returns the first `limit` items of a list.
    pub async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        limit: usize,
    ) -> Result<Listed<T>, Error> {
        let mut listed = Listed {
            items: Vec::new(),
            has_more: false,
            is_incomplete: false,
        };
        let mut cursor: Option<String> = None;
        let mut is_stale = false;
        for _ in 0..MAX_PAGES {
            let missing = limit.saturating_sub(listed.items.len());
            let mut url = self.endpoint(path);
            url.query_pairs_mut()
                .extend_pairs(query)
                .append_pair("limit", &missing.clamp(1, PAGE_SIZE).to_string())
                .extend_pairs(cursor.iter().map(|cursor| ("cursor", cursor)));
            let page: Page<T> = self.found(self.client.get(url)).await?;
            listed.items.extend(page.items);
            listed.is_incomplete |= page.incomplete;
            is_stale |= page.stale;
            cursor = page.next;
            if cursor.is_none() || listed.items.len() >= limit {
                break;
            }
        }
        listed.has_more = cursor.is_some() || listed.items.len() > limit;
        listed.items.truncate(limit);
        if is_stale {
            warn_of_stale_answer();
        }
        Ok(listed)
    }

    fn endpoint(&self, path: &[&str]) -> Url {
        let mut url = self.address.clone();
        // URLs with a host have a path.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        url
    }

    async fn found<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Error> {
        let found = self.send(request).await?;
        found.ok_or_else(|| self.error("not found; the server may be of an older release"))
    }

    fn error(&self, message: &str) -> Error {
        Error::Failed(format!("{}: {}", self.address, message))
    }

    async fn send<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<Option<T>, Error> {
        let request = match &self.token {
            Some(token) => request.header(AUTHORIZATION, token.clone()),
            None => request,
        };
        let response = request.send().await.map_err(|error| self.error(&cause(&error)))?;
        let status = response.status();
        let media_type = response.headers().get(CONTENT_TYPE).cloned();
        let body = self.read(response).await?;
        if status == StatusCode::OK {
            let decoded = serde_json::from_slice(&body);
            return decoded.map_err(|error| self.error(&format!("unexpected response: {error}; {WRONG_ADDRESS}")));
        }
        let is_problem = media_type.is_some_and(|value| value.as_bytes().starts_with(PROBLEM));
        match serde_json::from_slice(&body).ok().filter(|_| is_problem) {
            Some(Problem { .. }) if status == StatusCode::NOT_FOUND => Ok(None),
            problem => Err(self.error(&self.refusal(status, problem))),
        }
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.error(&cause(&error)))? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(self.error(&format!("the response is larger than {MAX_RESPONSE_BYTES} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn refusal(&self, status: StatusCode, problem: Option<Problem>) -> String {
        let code = status.as_u16();
        let refusal = match problem {
            Some(Problem { title, detail }) => truncate(&format!("{title}: {detail}"), MAX_DETAIL),
            None if status.is_redirection() => {
                format!("status {code}; set --server to the address that it redirects to")
            }
            None => format!("status {code}; {WRONG_ADDRESS}"),
        };
        match &self.token {
            None if status == StatusCode::UNAUTHORIZED => {
                format!("{refusal}; no token was sent, because the kubeconfig has none: set --token-file")
            }
            _ => refusal,
        }
    }
}

pub fn warn_of_stale_answer() {
    eprintln!("the database of the server is away; this is its last state");
}

/// Returns the root cause of an error, whose own message is the URL.
fn cause(error: &reqwest::Error) -> String {
    match std::iter::successors(error.source(), |&cause| cause.source()).last() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    }
}
