//! Values of a version by key.

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;

use super::address::{Address, NamesAndVersion, address_of_version};
use super::files::{self, FileName, FileText};
use super::parameters::Parameters;
use crate::serve::links::segment;
use crate::serve::problem::Problem;
use crate::serve::respond::{Content, JSON, negotiate, send};
use crate::serve::site::Site;
use crate::serve::values::{self, Keys, Kind, MAX_TEXT_BYTES, ValueKey, ValuesError};
use crate::text::truncate;

const QUERY: &str = "q";
/// Further words of a query are ignored, as in a search for charts.
const MAX_WORDS: usize = 16;

#[derive(Serialize)]
struct List<'a> {
    items: Vec<Item<'a>>,
    /// Keys are left out because of a limit.
    incomplete: bool,
}

#[derive(Serialize)]
pub(super) struct Item<'a> {
    path: &'a str,
    /// Null for a map or a list whose parts are listed.
    default: Option<String>,
    comment: &'a str,
    #[serde(rename = "type")]
    kind: Kind,
    line: usize,
}

impl<'a> Item<'a> {
    pub(super) fn new(key: &'a ValueKey) -> Self {
        Self {
            path: &key.path,
            default: default(key),
            comment: &key.comment,
            kind: key.kind,
            line: key.line,
        }
    }
}

pub(in crate::serve) fn default(key: &ValueKey) -> Option<String> {
    let default = key.default.as_deref();
    default.map(|default| truncate(default, MAX_TEXT_BYTES))
}

/// Reads the keys of a text with a CPU permit of the namespace.
async fn parse(site: &Site, address: &Address, file: FileText) -> Result<Result<Keys, ValuesError>, Problem> {
    let work = move || {
        let FileText { text, memory } = file;
        let keys = values::parse(&text);
        drop(memory);
        keys
    };
    Ok(site.rows().compute(&address.repository.namespace, work).await?)
}

pub(super) fn unreadable(
    address: &Address,
    site: &Site,
    version: &str,
    file: &FileName,
    error: &ValuesError,
) -> Problem {
    Problem::unreadable(format!(
        "the keys of the file can't be read: {error}; see the text at {}/versions/{}/{}",
        address.path(site),
        segment(version),
        file.name()
    ))
}

pub(super) async fn show(
    State(site): State<Site>,
    headers: HeaderMap,
    names: NamesAndVersion,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let (address, version) = address_of_version(names)?;
    let parameters = Parameters::only(query.as_deref(), &[QUERY])?;
    negotiate(&headers, &[JSON])?;
    let row = address.read_version(&site, &headers, &version).await?.row;
    let file = files::read(&site, &address, &row, &FileName::Values).await?;
    let keys = parse(&site, &address, file).await?;
    let mut keys = keys.map_err(|error| unreadable(&address, &site, &version, &FileName::Values, &error))?;
    if let Some(query) = parameters.get(QUERY) {
        let words = query.to_lowercase();
        let filter = move || {
            keys.items.retain(|key| matches(key, &words));
            keys
        };
        keys = site.rows().compute(&address.repository.namespace, filter).await?;
    }
    let list = List {
        items: keys.items.iter().map(Item::new).collect(),
        incomplete: keys.is_incomplete,
    };
    let content = Content::json(&list)?;
    let content = content.reserve(site.rows(), &address.repository.namespace).await?;
    send(&headers, content).await
}

/// Each word must be in the path or in the comment.
pub(in crate::serve) fn matches(key: &ValueKey, words: &str) -> bool {
    let (path, comment) = (key.path.to_lowercase(), key.comment.to_lowercase());
    words
        .split_whitespace()
        .take(MAX_WORDS)
        .all(|word| path.contains(word) || comment.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_are_in_the_path_or_in_the_comment() {
        let keys = values::parse("image: # Of the Server\n  pullPolicy: Always # Kubelet\n").unwrap();
        let key = &keys.items[1];
        for words in ["", "pullpolicy", "kubelet image"] {
            assert!(matches(key, words), "{words}");
        }
        assert!(!matches(key, "kubelet server"));
        assert!(matches(key, &("kubelet ".repeat(MAX_WORDS) + "server")));
    }
}
