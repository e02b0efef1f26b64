//! The documents of a registry, as pure functions over their bytes.
//!
//! A registry's own documents keep to no schema that all registries share, so they are read leniently: what is not needed
//! is passed over, and a name that is none is dropped. A document that lacks what it is for is refused all the same, so
//! that an error page that comes with status 200 never reads as "there are no tags".

use std::collections::HashSet;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::lenient::{Keys, List, Scalar};
use super::name;
use crate::http::secret::Secret;
use crate::text::{printable, truncate};

/// Names that one document may hold. Many more than any registry lists at once, and few enough to be kept.
const NAMES: usize = 100_000;

/// A list of names, as long as they are not looked at.
type Names = List<Scalar, NAMES>;

/// Why a document is refused. Decoding the same bytes again fails in the same way.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is no JSON, or its fields have other types.
    #[error("it is no JSON of the right form: {0}")]
    Invalid(String),
    /// It is JSON and lacks what it is for.
    #[error("it lacks {0}")]
    Lacks(&'static str),
    /// A digest is none that can be checked.
    #[error("its digest {0} is no SHA-256 digest, the only kind that is taken")]
    Digest(String),
    /// A token that no header can hold, or none that servers take.
    #[error("its token can't be sent in a header")]
    Token,
}

/// Reads JSON. The parser's message may quote the document, which anybody may have written.
pub(super) fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    const SHOWN_BYTES: usize = 256;
    serde_json::from_slice(bytes)
        .map_err(|error| DecodeError::Invalid(truncate(&printable(&error.to_string()), SHOWN_BYTES)))
}

/// The tags of a tag list, in its order and each once; what is no tag is dropped. `tags: null` is what Docker's registry
/// says of a repository without any.
///
/// # Errors
/// [`DecodeError`] when it is no tag list.
pub fn tag_list(bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
    #[derive(Deserialize)]
    struct TagList {
        name: Option<Scalar>,
        #[serde(default, deserialize_with = "present")]
        tags: Option<Names>,
    }
    let list: TagList = json(bytes)?;
    match list.tags {
        // Registries in Go leave out what is empty.
        None if list.name.is_none() => Err(DecodeError::Lacks("tags")),
        tags => Ok(distinct(tags.unwrap_or_default(), name::is_tag)),
    }
}

/// The repositories of a page of `/v2/_catalog`, in its order and each once; what is no name is dropped.
///
/// # Errors
/// [`DecodeError`] when it is no such page.
pub fn catalog_page(bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
    #[derive(Deserialize)]
    struct Page {
        #[serde(default, deserialize_with = "present")]
        repositories: Option<Names>,
    }
    let page: Page = json(bytes)?;
    let names = page.repositories.ok_or(DecodeError::Lacks("repositories"))?;
    Ok(distinct(names, name::is_repository_name))
}

/// The names of the charts in a `charts-index`, sorted: the keys of its `entries`, as Kubeapps takes them.
///
/// # Errors
/// [`DecodeError`] when it is no such index.
pub fn charts_index(bytes: &[u8]) -> Result<Vec<String>, DecodeError> {
    #[derive(Deserialize)]
    struct Index {
        entries: Option<Keys<NAMES>>,
    }
    let index: Index = json(bytes)?;
    let Keys(mut names) = index.entries.ok_or(DecodeError::Lacks("entries"))?;
    names.retain(|name| name::is_repository_name(name));
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// A page of Docker Hub's listing of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubPage {
    /// Names of repositories within the namespace.
    pub names: Vec<String>,
    /// Where the next page stands.
    pub next: Option<String>,
}

/// Reads a page of Docker Hub's listing of a namespace.
///
/// # Errors
/// [`DecodeError`] when it is no such page.
pub fn hub_page(bytes: &[u8]) -> Result<HubPage, DecodeError> {
    #[derive(Deserialize)]
    struct Repository {
        #[serde(default)]
        name: Scalar,
    }
    #[derive(Deserialize)]
    struct Page {
        results: Option<List<Repository, NAMES>>,
        next: Option<String>,
    }
    let page: Page = json(bytes)?;
    let List(results) = page.results.ok_or(DecodeError::Lacks("results"))?;
    let names = List(results.into_iter().map(|repository| repository.name).collect());
    Ok(HubPage {
        names: distinct(names, name::is_repository_name),
        next: page.next.filter(|next| !next.is_empty()),
    })
}

/// A token, as a token server gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What goes behind `Bearer `.
    pub value: Secret,
    /// For how long it holds, by its server.
    pub holds: Duration,
}

/// Reads the answer of a token server by the rules of Docker's token authentication: `token` or `access_token`, and
/// `expires_in` in seconds, 60 where that is missing.
///
/// # Errors
/// [`DecodeError`] when it holds no token that can be used.
pub fn token(bytes: &[u8]) -> Result<Token, DecodeError> {
    const DEFAULT: Duration = Duration::from_secs(60);
    /// Real ones have a few thousand, and servers take no longer headers.
    const BYTES: usize = 16 * 1024;
    /// No server means to give a token for longer, and a longer time might not fit a clock.
    const LONGEST: f64 = 24.0 * 60.0 * 60.0;
    #[derive(Deserialize)]
    struct Answer {
        token: Option<String>,
        access_token: Option<String>,
        expires_in: Option<Value>,
    }
    // The parser's message may quote a piece of what is a secret here.
    let answer: Answer =
        json(bytes).map_err(|_| DecodeError::Invalid("a token and its time were expected".to_owned()))?;
    let named = [answer.token, answer.access_token];
    let value = named.into_iter().flatten().find(|token| !token.is_empty());
    let value = value.ok_or(DecodeError::Lacks("token"))?;
    if value.len() > BYTES || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(DecodeError::Token);
    }
    let seconds = answer.expires_in.and_then(|seconds| seconds.as_f64());
    let seconds = seconds.filter(|seconds| *seconds >= 1.0);
    Ok(Token {
        value: Secret::new(value),
        holds: seconds.map_or(DEFAULT, |seconds| Duration::from_secs_f64(seconds.min(LONGEST))),
    })
}

/// Tells a field that is null from one that is missing.
fn present<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The texts that are good, each once, in their order.
fn distinct(names: Names, is_good: fn(&str) -> bool) -> Vec<String> {
    let mut seen = HashSet::new();
    let texts = names.0.into_iter().filter_map(|name| match name {
        Scalar::Text(text) if is_good(&text) => Some(text),
        _ => None,
    });
    texts.filter(|text| seen.insert(text.clone())).collect()
}
