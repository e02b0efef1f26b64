//! Differences of a file between two versions: by key, or as a unified diff.

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Serialize;

use super::address::{Address, Names, address};
use super::chart::VersionRow;
use super::files::{FileName, FileText, Lookup, look_up};
use super::keys::{self, Item};
use super::parameters::Parameters;
use crate::serve::links::segment;
use crate::serve::problem::Problem;
use crate::serve::respond::{Content, JSON, negotiate, respond, send};
use crate::serve::site::Site;
use crate::serve::values::{self, Keys, Kind, ValueKey};
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

/// The file in two versions.
struct Pair<'a> {
    address: &'a Address,
    file: &'a FileName,
    versions: [&'a str; 2],
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
    let chart = address.read(&site, &headers).await?;
    let [from, to] = versions.map(|version| address.version(&chart.value, version));
    let texts = read(&site, &address, [from?, to?], file).await?;
    let pair = Pair {
        address: &address,
        file,
        versions,
    };
    if format == TEXT_DIFF {
        pair.send_text(&site, &headers, texts).await
    } else {
        pair.send_keys(&site, &headers, texts).await
    }
}

/// A file that only one version has is empty in the other.
async fn read(
    site: &Site,
    address: &Address,
    rows: [&VersionRow; 2],
    file: &FileName,
) -> Result<[FileText; 2], Problem> {
    let [from, to] = rows;
    let old = look_up(site, address, from, file).await?;
    let new = look_up(site, address, to, file).await?;
    let empty = || FileText {
        text: String::new(),
        memory: None,
    };
    match (old, new) {
        (Lookup::Found(old), Lookup::Found(new)) => Ok([old, new]),
        (Lookup::Found(old), Lookup::Missing(view)) if view.is_complete() => Ok([old, empty()]),
        (Lookup::Missing(view), Lookup::Found(new)) if view.is_complete() => Ok([empty(), new]),
        (Lookup::Found(_), Lookup::Missing(view)) => Err(view.missing(address, to, file)),
        (Lookup::Missing(view), _) => Err(view.missing(address, from, file)),
    }
}

impl Pair<'_> {
    async fn send_keys(&self, site: &Site, headers: &HeaderMap, texts: [FileText; 2]) -> Result<Response, Problem> {
        let [old, new] = texts;
        let [from, to] = self.versions;
        let old = self.keys(site, from, old).await?;
        let new = self.keys(site, to, new).await?;
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
        respond(headers, &view)
    }

    async fn keys(&self, site: &Site, version: &str, file: FileText) -> Result<Keys, Problem> {
        let keys = keys::parse(site, self.address, file).await?;
        keys.map_err(|error| keys::unreadable(self.address, site, version, self.file, &error))
    }

    async fn send_text(&self, site: &Site, headers: &HeaderMap, texts: [FileText; 2]) -> Result<Response, Problem> {
        let names = self.versions.map(|version| {
            let name = format!("{}-{version}/{}", self.address.chart, self.file.name());
            printable(&name)
        });
        let work = move || {
            let [old, new] = &texts;
            let [from, to] = &names;
            values::unified_diff(&old.text, &new.text, [from, to])
        };
        let diff = site.rows().compute(&self.address.repository.namespace, work).await?;
        let diff = diff.ok_or_else(|| self.too_long(site))?;
        let content = Content {
            media_type: TEXT_DIFF,
            body: diff.into_bytes(),
            memory: None,
        };
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
