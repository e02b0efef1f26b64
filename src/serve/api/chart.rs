//! The routes of a chart, its versions, and a version, for rows of any writer.

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use url::{ParseError, Url};

use super::address::{Names, NamesAndVersion, address, address_of_version};
use super::charts::Summary;
use super::files::{self, FilesView};
use super::parameters::Parameters;
use crate::serve::problem::Problem;
use crate::serve::respond::{Content, JSON, negotiate, send};
use crate::serve::rows::Decoded;
use crate::serve::site::Site;
use crate::serve::summary::{ChartSummary, known_time};
use crate::text::{printable, redacted_url};

/// Every field is optional, and unknown fields are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::serve) struct Row {
    pub(in crate::serve) home: Option<String>,
    icon: Option<String>,
    pub(in crate::serve) sources: Option<Vec<Option<String>>>,
    pub(in crate::serve) maintainers: Option<Vec<Option<Maintainer>>>,
    #[serde(rename = "chartVersions")]
    pub(in crate::serve) versions: Option<Vec<VersionRow>>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub(in crate::serve) struct Maintainer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) url: Option<String>,
}

impl Maintainer {
    fn public(&self) -> Self {
        Self {
            name: self.name.clone(),
            email: self.email.clone(),
            url: self.url.as_deref().map(public),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(in crate::serve) struct VersionRow {
    version: Option<String>,
    pub(in crate::serve) app_version: Option<String>,
    pub(in crate::serve) created: Option<String>,
    digest: Option<String>,
    urls: Option<Vec<Option<String>>>,
}

impl VersionRow {
    pub(in crate::serve) fn version(&self) -> &str {
        self.version.as_deref().unwrap_or_default()
    }

    /// Of the archive; empty if it is unknown.
    pub(in crate::serve) fn digest(&self) -> &str {
        self.digest.as_deref().unwrap_or_default()
    }
}

/// The row of a chart, decoded for a response.
pub(in crate::serve) struct ChartRow {
    pub(in crate::serve) summary: ChartSummary,
    pub(in crate::serve) row: Row,
}

impl ChartRow {
    pub(in crate::serve) fn decode(chart_id: &str, info: &str) -> Option<Self> {
        Some(Self {
            summary: ChartSummary::decode(chart_id, info)?,
            row: serde_json::from_str(info).ok()?,
        })
    }

    fn versions(&self) -> &[VersionRow] {
        self.row.versions.as_deref().unwrap_or_default()
    }

    /// Of duplicate versions the first counts.
    pub(super) fn into_version(self, wanted: &str) -> Option<ChartVersion> {
        let mut versions = self.row.versions.into_iter().flatten();
        let row = versions.find(|row| row.version.as_deref() == Some(wanted))?;
        Some(ChartVersion {
            chart: self.summary.name,
            row,
        })
    }
}

/// A version, with the name of its chart.
pub(super) struct ChartVersion {
    chart: Box<str>,
    pub(super) row: VersionRow,
}

#[derive(Serialize)]
struct Chart<'a> {
    #[serde(flatten)]
    summary: Summary<'a>,
    home: String,
    /// The URL that the chart declares.
    icon: String,
    sources: Vec<String>,
    maintainers: Vec<Maintainer>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Version<'a> {
    version: &'a str,
    app_version: &'a str,
    created: Option<Timestamp>,
    digest: &'a str,
    urls: Vec<String>,
}

#[derive(Serialize)]
struct Versions<'a> {
    items: Vec<Version<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
struct OneVersion<'a> {
    namespace: &'a str,
    repository: &'a str,
    name: &'a str,
    #[serde(flatten)]
    version: Version<'a>,
    files: FilesView,
}

impl<'a> Version<'a> {
    fn new(row: &'a VersionRow) -> Self {
        let urls = row.urls.iter().flatten().flatten();
        Self {
            version: row.version(),
            app_version: row.app_version.as_deref().unwrap_or_default(),
            created: row.created.as_deref().and_then(known_time),
            digest: row.digest(),
            urls: urls.map(|url| public(url)).filter(|url| !url.is_empty()).collect(),
        }
    }
}

/// Returns a URL, or one relative to its repository, without what may be secret; empty if that can't be told.
pub(in crate::serve) fn public(text: &str) -> String {
    // `//user:password@host/` is relative too.
    let has_host = text.trim_start().chars().take(2).all(|c| matches!(c, '/' | '\\'));
    match Url::parse(text.trim()) {
        Err(ParseError::RelativeUrlWithoutBase) if !has_host => {
            printable(text.split(['?', '#']).next().unwrap_or_default())
        }
        Ok(url) if !url.cannot_be_a_base() => redacted_url(text),
        _ => String::new(),
    }
}

pub(super) async fn show(State(site): State<Site>, headers: HeaderMap, names: Names) -> Result<Response, Problem> {
    let address = address(names)?;
    negotiate(&headers, &[JSON])?;
    let Decoded {
        value: mut decoded,
        memory,
    } = address.read(&site, &headers).await?;
    let summary = &mut decoded.summary;
    summary.has_icon = summary.has_icon
        || site
            .rows()
            .has_svg_icon(&address.repository, &address.chart_id())
            .await?;
    let row = &decoded.row;
    let public_of = |url: &Option<String>| url.as_deref().map(public).unwrap_or_default();
    let chart = Chart {
        summary: Summary::new(&address.repository, &decoded.summary),
        home: public_of(&row.home),
        icon: public_of(&row.icon),
        sources: row
            .sources
            .iter()
            .flatten()
            .map(public_of)
            .filter(|url| !url.is_empty())
            .collect(),
        maintainers: row
            .maintainers
            .iter()
            .flatten()
            .flatten()
            .map(Maintainer::public)
            .collect(),
    };
    let content = Content::json(&chart)?;
    send(&headers, Content { memory, ..content }).await
}

/// The number of versions up to the last one of a page, and that version.
type Position = (usize, String);

pub(super) async fn versions(
    State(site): State<Site>,
    headers: HeaderMap,
    names: Names,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let address = address(names)?;
    let list = format!("{}/{}", address.repository, address.chart);
    let parameters = Parameters::list(query.as_deref(), &list, &[])?;
    let (limit, after) = (parameters.limit()?, parameters.cursor::<Position>()?);
    negotiate(&headers, &[JSON])?;
    let Decoded { value: chart, memory } = address.read(&site, &headers).await?;
    let all = chart.versions();
    let start = after.map_or(0, |after| start(all, &after));
    let page = all.get(start..).unwrap_or_default();
    let items: Vec<Version<'_>> = page.iter().take(limit).map(Version::new).collect();
    let last = items.last().filter(|_| page.len() > limit);
    let next = last.map(|last| parameters.next(&(start + limit, last.version)));
    let next = next.transpose()?;
    let content = Content::json(&Versions { items, next })?;
    send(&headers, Content { memory, ..content }).await
}

/// Returns the start of the next page, also if versions were added or removed before it.
fn start(all: &[VersionRow], (before, last): &Position) -> usize {
    let is_last = |row: &VersionRow| row.version() == last;
    let at_the_same_place = before.checked_sub(1).and_then(|at| all.get(at)).is_some_and(is_last);
    if at_the_same_place {
        return *before;
    }
    all.iter().rposition(is_last).map_or(*before, |at| at + 1)
}

pub(super) async fn version(
    State(site): State<Site>,
    headers: HeaderMap,
    names: NamesAndVersion,
) -> Result<Response, Problem> {
    let (address, version) = address_of_version(names)?;
    negotiate(&headers, &[JSON])?;
    let ChartVersion { chart, row } = address.read_version(&site, &headers, &version).await?;
    let version = OneVersion {
        namespace: &address.repository.namespace,
        repository: &address.repository.name,
        name: &chart,
        version: Version::new(&row),
        files: files::view(&site, &address, &row).await?,
    };
    let content = Content::json(&version)?;
    let content = content.reserve(site.rows(), &address.repository.namespace).await?;
    send(&headers, content).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lose_what_may_be_secret() {
        for (stored, shown) in [
            ("web-1.0.0.tgz", "web-1.0.0.tgz"),
            ("charts/web.tgz?token=hush#hush", "charts/web.tgz"),
            (
                "https://me:hush@charts.example/web.tgz?sig=hush",
                "https://charts.example/web.tgz",
            ),
            ("/charts/web.tgz", "/charts/web.tgz"),
            ("oci://registry.example/web:1.0.0", "oci://registry.example/web:1.0.0"),
            ("//me:hush@charts.example/web.tgz", ""),
            ("me:hush@charts.example", ""),
        ] {
            assert_eq!(public(stored), shown, "{stored}");
        }
    }

    #[test]
    fn a_page_continues_after_its_last_version_if_others_were_added() {
        let rows = |versions: &[&str]| -> Vec<VersionRow> {
            let row = |version: &&str| VersionRow {
                version: Some((*version).to_owned()),
                ..VersionRow::default()
            };
            versions.iter().map(row).collect()
        };
        let after = (2, "2".to_owned());
        assert_eq!(start(&rows(&["3", "2", "1"]), &after), 2);
        assert_eq!(start(&rows(&["4", "3", "2", "1"]), &after), 3);
        assert_eq!(start(&rows(&["2", "2", "1"]), &(1, "2".to_owned())), 1);
        assert_eq!(start(&rows(&["3", "1"]), &after), 2);
    }
}
