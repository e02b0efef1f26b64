//! Differences of a file between two versions: by key, or as a unified diff.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;

use super::address::{Address, Names, address};
use super::chart::VersionRow;
use super::files::{FileName, FilesView, Lookup, look_up};
use super::keys::{self, Item};
use super::parameters::Parameters;
use crate::serve::links::segment;
use crate::serve::problem::Problem;
use crate::serve::respond::{Content, JSON, negotiate, send};
use crate::serve::site::Site;
use crate::serve::values::{self, Keys, Kind, MAX_BYTES, ValueKey, ValuesError};
use crate::text::printable;

const FROM: &str = "from";
const TO: &str = "to";
const FILE: &str = "file";
const TEXT_DIFF: &str = "text/x-diff";

#[derive(Serialize)]
struct View<'a> {
    from: &'a str,
    to: &'a str,
    file: &'a str,
    added: Vec<Item<'a>>,
    removed: Vec<Item<'a>>,
    changed: Vec<Change<'a>>,
    /// Keys are left out because of a limit.
    incomplete: bool,
}

#[derive(Serialize)]
struct Change<'a> {
    path: &'a str,
    from: Option<String>,
    to: Option<String>,
    /// Of the new default.
    #[serde(rename = "type")]
    kind: Kind,
    comment: &'a str,
    line: usize,
}

impl<'a> Change<'a> {
    fn new((from, to): (&ValueKey, &'a ValueKey)) -> Self {
        Self {
            path: &to.path,
            from: keys::default(from),
            to: keys::default(to),
            kind: to.kind,
            comment: &to.comment,
            line: to.line,
        }
    }
}

/// A README has no keys.
const fn formats(file: &FileName) -> &'static [&'static str] {
    match file {
        FileName::Readme => &[TEXT_DIFF],
        FileName::Values | FileName::OtherValues(_) | FileName::Schema => &[JSON, TEXT_DIFF],
    }
}

/// Shared by the threads that read keys and lines.
pub(in crate::serve) type Texts = Arc<[String; 2]>;

/// A file in two versions.
pub(in crate::serve) struct Pair<'a> {
    pub(in crate::serve) address: &'a Address,
    pub(in crate::serve) file: &'a FileName,
    pub(in crate::serve) versions: [&'a str; 2],
}

pub(super) async fn show(
    State(site): State<Site>,
    headers: HeaderMap,
    names: Names,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let address = address(names)?;
    let parameters = Parameters::only(query.as_deref(), &[FROM, TO, FILE])?;
    let versions = [parameters.required(FROM)?, parameters.required(TO)?];
    let file = FileName::parse(parameters.get(FILE).unwrap_or("values"));
    let file = &file
        .ok_or_else(|| Problem::parameter(FILE, "unknown value of file; use readme, values, values-NAME or schema"))?;
    let format = negotiate(&headers, formats(file))?;
    let pair = Pair {
        address: &address,
        file,
        versions,
    };
    let texts = pair.read(&site, &headers).await?;
    if format == TEXT_DIFF {
        pair.send_text(&site, &headers, texts).await
    } else {
        pair.send_keys(&site, &headers, texts).await
    }
}

impl Pair<'_> {
    /// Reads both files. One that only one version has is empty in the other.
    pub(in crate::serve) async fn read(&self, site: &Site, headers: &HeaderMap) -> Result<Texts, Problem> {
        let (address, file) = (self.address, self.file);
        let [from, to] = self.versions;
        let from = address.read_version(site, headers, from).await?.row;
        let to = address.read_version(site, headers, to).await?.row;
        let old = self.look_up(site, &from).await?;
        let new = self.look_up(site, &to).await?;
        let texts = match (old, new) {
            (Ok(old), Ok(new)) => [old, new],
            (Ok(old), Err(missing)) if missing.is_complete() => [old, String::new()],
            (Err(missing), Ok(new)) if missing.is_complete() => [String::new(), new],
            (Ok(_), Err(missing)) => return Err(missing.missing(address, &to, file)),
            (Err(missing), _) => return Err(missing.missing(address, &from, file)),
        };
        Ok(Arc::new(texts))
    }

    /// Returns a text without the memory of its row, so that no request waits for memory while it holds some. It is as large as
    /// a row without a reservation at most.
    async fn look_up(&self, site: &Site, row: &VersionRow) -> Result<Result<String, FilesView>, Problem> {
        match look_up(site, self.address, row, self.file).await? {
            Lookup::Found(found) if found.text.len() > MAX_BYTES => Err(self.too_long(site)),
            Lookup::Found(found) => Ok(Ok(found.text)),
            Lookup::Missing(view) => Ok(Err(view)),
        }
    }

    async fn send_keys(&self, site: &Site, headers: &HeaderMap, texts: Texts) -> Result<Response, Problem> {
        let [from, to] = self.versions;
        let [old, new] = self.keys(site, texts).await?;
        let difference = values::compare(&old, &new);
        let items = |keys: Vec<_>| keys.into_iter().map(Item::new).collect();
        let view = View {
            from,
            to,
            file: self.file.name(),
            added: items(difference.added),
            removed: items(difference.removed),
            changed: difference.changed.into_iter().map(Change::new).collect(),
            incomplete: old.is_incomplete || new.is_incomplete,
        };
        self.send(site, headers, Content::json(&view)?).await
    }

    /// Reads the keys of both texts.
    pub(in crate::serve) async fn keys(&self, site: &Site, texts: Texts) -> Result<[Keys; 2], Problem> {
        let work = move || {
            let [old, new] = &*texts;
            [values::parse(old), values::parse(new)]
        };
        let [old, new] = site.rows().compute(&self.address.repository.namespace, work).await?;
        let readable = |keys: Result<Keys, ValuesError>, version: &str| {
            keys.map_err(|error| keys::unreadable(self.address, site, version, self.file, &error))
        };
        let [from, to] = self.versions;
        Ok([readable(old, from)?, readable(new, to)?])
    }

    async fn send_text(&self, site: &Site, headers: &HeaderMap, texts: Texts) -> Result<Response, Problem> {
        let diff = self.text(site, texts).await?;
        self.send(site, headers, Content::new(TEXT_DIFF, diff.into_bytes()))
            .await
    }

    /// Returns a unified diff, empty if the texts are equal.
    pub(in crate::serve) async fn text(&self, site: &Site, texts: Texts) -> Result<String, Problem> {
        let names = self.versions.map(|version| {
            let name = format!("{}-{version}/{}", self.address.chart, self.file.name());
            printable(&name)
        });
        let work = move || {
            let [old, new] = &*texts;
            let [from, to] = &names;
            values::unified_diff(old, new, [from, to])
        };
        let diff = site.rows().compute(&self.address.repository.namespace, work).await?;
        diff.ok_or_else(|| self.too_long(site))
    }

    async fn send(&self, site: &Site, headers: &HeaderMap, content: Content) -> Result<Response, Problem> {
        let content = content.reserve(site.rows(), &self.address.repository.namespace).await?;
        send(headers, content).await
    }

    fn too_long(&self, site: &Site) -> Problem {
        let path = self.address.path(site);
        let [from, to] = self
            .versions
            .map(|version| format!("{path}/versions/{}/{}", segment(version), self.file.name()));
        Problem::unreadable(format!("the files are too long for a diff; compare {from} and {to}"))
    }
}
