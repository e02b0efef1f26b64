//! Decoders of registry documents. Registries differ, so unknown fields and invalid names are ignored. Missing required
//! fields are errors: an error page with status 200 must not decode as an empty list.

use std::collections::HashSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::lenient::{Keys, LenientList, LenientScalar};
use super::name;
use crate::http::secret::Secret;
use crate::text::{printable, truncate};

/// Limit of names per document, far above any registry's page size.
const MAX_NAMES: usize = 100_000;

type Names = LenientList<LenientScalar, MAX_NAMES>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OciDecodeError {
    #[error("invalid JSON document: {0}")]
    Invalid(String),
    #[error("missing {0}")]
    Missing(&'static str),
    #[error("unsupported digest {0}, expected SHA-256")]
    Digest(String),
    #[error("the token is not a valid HTTP header value")]
    Token,
}

/// Parses JSON. The error is sanitized, because it may quote the untrusted document.
pub(super) fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, OciDecodeError> {
    const MAX_BYTES: usize = 256;
    serde_json::from_slice(bytes)
        .map_err(|error| OciDecodeError::Invalid(truncate(&printable(&error.to_string()), MAX_BYTES)))
}

/// Returns the distinct valid tags of a tag list. Docker's registry writes `tags: null` for an empty repository.
pub fn tag_list(bytes: &[u8]) -> Result<Vec<String>, OciDecodeError> {
    #[derive(Deserialize)]
    struct TagList {
        name: Option<LenientScalar>,
        #[serde(default, deserialize_with = "present")]
        tags: Option<Names>,
    }
    let list: TagList = json(bytes)?;
    match list.tags {
        // Registries written in Go omit an empty list.
        None if list.name.is_none() => Err(OciDecodeError::Missing("tags")),
        tags => Ok(distinct(tags.unwrap_or_default(), name::is_tag)),
    }
}

/// Returns the distinct valid names of a page of `/v2/_catalog`.
pub fn catalog_page(bytes: &[u8]) -> Result<Vec<String>, OciDecodeError> {
    #[derive(Deserialize)]
    struct Page {
        #[serde(default, deserialize_with = "present")]
        repositories: Option<Names>,
    }
    let page: Page = json(bytes)?;
    let names = page.repositories.ok_or(OciDecodeError::Missing("repositories"))?;
    Ok(distinct(names, name::is_repository_name))
}

/// Returns the sorted names of charts in a `charts-index`, the format that Kubeapps reads.
pub fn charts_index(bytes: &[u8]) -> Result<Vec<String>, OciDecodeError> {
    #[derive(Deserialize)]
    struct RawIndex {
        entries: Option<Keys<MAX_NAMES>>,
    }
    let index: RawIndex = json(bytes)?;
    let Keys(mut names) = index.entries.ok_or(OciDecodeError::Missing("entries"))?;
    names.retain(|name| name::is_repository_name(name));
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubPage {
    /// Repositories without the namespace.
    pub names: Vec<String>,
    pub next: Option<String>,
}

pub fn hub_page(bytes: &[u8]) -> Result<HubPage, OciDecodeError> {
    #[derive(Deserialize)]
    struct HubRepository {
        #[serde(default)]
        name: LenientScalar,
    }
    #[derive(Deserialize)]
    struct Page {
        results: Option<LenientList<HubRepository, MAX_NAMES>>,
        next: Option<String>,
    }
    let page: Page = json(bytes)?;
    let LenientList(results) = page.results.ok_or(OciDecodeError::Missing("results"))?;
    let names = LenientList(results.into_iter().map(|repository| repository.name).collect());
    Ok(HubPage {
        names: distinct(names, name::is_repository_name),
        next: page.next.filter(|next| !next.is_empty()),
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerToken {
    pub value: Secret,
    /// Starts with the request.
    pub lifetime: Duration,
}

/// Decodes the response of a token server: `token` or `access_token`, and `expires_in` in seconds, by default 60.
pub fn token(bytes: &[u8]) -> Result<BearerToken, OciDecodeError> {
    const DEFAULT_LIFETIME: Duration = Duration::from_secs(60);
    /// Servers do not accept longer headers.
    const MAX_BYTES: usize = 16 * 1024;
    /// Prevents overflow of the clock.
    const MAX_SECONDS: f64 = 24.0 * 60.0 * 60.0;
    #[derive(Deserialize)]
    struct TokenResponse {
        token: Option<String>,
        access_token: Option<String>,
        expires_in: Option<Value>,
    }
    // The parser's message may quote a part of the token.
    let response: TokenResponse =
        json(bytes).map_err(|_| OciDecodeError::Invalid("expected a token and its lifetime".to_owned()))?;
    let tokens = [response.token, response.access_token];
    let value = tokens.into_iter().flatten().find(|token| !token.is_empty());
    let value = value.ok_or(OciDecodeError::Missing("token"))?;
    if value.len() > MAX_BYTES || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(OciDecodeError::Token);
    }
    let seconds = response.expires_in.and_then(|seconds| seconds.as_f64());
    let seconds = seconds.filter(|seconds| *seconds >= 1.0);
    Ok(BearerToken {
        value: Secret::new(value),
        lifetime: seconds.map_or(DEFAULT_LIFETIME, |seconds| {
            Duration::from_secs_f64(seconds.min(MAX_SECONDS))
        }),
    })
}

/// Distinguishes a null field from a missing one.
fn present<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn distinct(names: Names, is_valid: fn(&str) -> bool) -> Vec<String> {
    let mut seen = HashSet::new();
    let texts = names.0.into_iter().filter_map(|name| match name {
        LenientScalar::Text(text) if is_valid(&text) => Some(text),
        _ => None,
    });
    texts.filter(|text| seen.insert(text.clone())).collect()
}
