//! The page of a chart: a header about one version, and one of six tabs.
//!
//! ```text
//!  path ─► Site::enter ─► row of the chart ─► Shown ─┬─► files, Chart.yaml ─► Header ─┬─► page, beside the runtime
//!                                                    └─► tab ─────────────────────────┘
//! ```

mod about;
mod annotations;
mod changes;
mod diff;
mod header;
mod markup;
mod readme;
mod schema;
mod text;
mod values;
mod versions;

use askama::Template;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{self, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use jiff::Timestamp;
use serde::Deserialize;

use super::shown::number;
use super::{Frame, PageError, large_page, links};
use crate::catalog::ChartMetadata;
use crate::serve::api::address::{Address, Names, NamesAndVersion, address, address_of_version};
use crate::serve::api::chart::{ChartRow, VersionRow};
use crate::serve::api::files::{self, FileName, Opened};
use crate::serve::links::segment;
use crate::serve::problem::Problem;
use crate::serve::rows::Decoded;
use crate::serve::site::{Site, Visit};
use crate::serve::summary::known_time;
use crate::text::{printable, truncate};
use about::AboutTab;
use changes::ChangesTab;
use header::Header;
use readme::ReadmeTab;
use schema::SchemaTab;
use values::ValuesTab;
use versions::VersionsTab;

/// Versions that a page knows, the newest first.
const MAX_VERSIONS: usize = 2_000;
/// Longer versions are left out: they identify a version, and can't be cut.
const MAX_VERSION_BYTES: usize = 1024;
const MAX_APP_VERSION_BYTES: usize = 256;
/// Of sources and maintainers.
const MAX_ENTRIES: usize = 64;

/// No valid version is named `diff`, so this path is not that of a version.
pub(super) fn routes() -> Router<Site> {
    Router::new()
        .route("/charts/{namespace}/{repository}/{chart}", get(show))
        .route("/charts/{namespace}/{repository}/{chart}/diff", get(diff::show))
        .route("/charts/{namespace}/{repository}/{chart}/{version}", get(show_version))
}

/// The parameters of the page. Others are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Query {
    tab: Option<String>,
    /// Words of the filter of keys.
    q: Option<String>,
    from: Option<String>,
    to: Option<String>,
    /// Of the form that selects a version.
    version: Option<String>,
    /// Such as `values-production`.
    file: Option<String>,
    /// `keys` or `file`.
    view: Option<String>,
}

/// The version of a chart that a page shows. Names are as stored: templates show them through `shown::name` and `printable`.
struct Shown {
    names: Address,
    namespace: String,
    /// With `%2F` for each slash.
    chart: String,
    version: String,
    /// At most [`MAX_VERSIONS`], the newest first.
    versions: Vec<VersionLine>,
    version_count: usize,
    /// Without versions; sources and maintainers are limited to [`MAX_ENTRIES`].
    info: ChartRow,
    row: VersionRow,
    /// Chart.yaml, read for the page of a version.
    metadata: Option<ChartMetadata>,
}

struct VersionLine {
    version: String,
    app_version: String,
    created: Option<Timestamp>,
}

impl VersionLine {
    fn new(row: &VersionRow) -> Self {
        Self {
            version: row.version().to_owned(),
            app_version: truncate(row.app_version.as_deref().unwrap_or_default(), MAX_APP_VERSION_BYTES),
            created: row.created.as_deref().and_then(known_time),
        }
    }
}

/// The parts of a row that a page needs. The rest, and its memory, is given back before files are read.
struct Parts {
    info: ChartRow,
    versions: Vec<VersionLine>,
    version_count: usize,
    row: Option<VersionRow>,
}

impl Parts {
    fn decode(chart_id: &str, info: &str, wanted: Option<&str>) -> Option<Self> {
        let mut info = ChartRow::decode(chart_id, info)?;
        let mut rows = info.row.versions.take().unwrap_or_default();
        rows.retain(|row| (1..=MAX_VERSION_BYTES).contains(&row.version().len()));
        if let Some(maintainers) = &mut info.row.maintainers {
            maintainers.truncate(MAX_ENTRIES);
        }
        if let Some(sources) = &mut info.row.sources {
            sources.truncate(MAX_ENTRIES);
        }
        let wanted = wanted.unwrap_or(&info.summary.version);
        Some(Self {
            versions: rows.iter().take(MAX_VERSIONS).map(VersionLine::new).collect(),
            version_count: rows.len(),
            // Of duplicate versions the first counts.
            row: rows.into_iter().find(|row| row.version() == wanted),
            info,
        })
    }
}

impl Shown {
    /// Reads a version, or the newest stable one.
    async fn read(site: &Site, visit: &Visit, names: Address, version: Option<&str>) -> Result<Self, Problem> {
        let (chart_id, wanted) = (names.chart_id(), version.map(str::to_owned));
        let decode = move |info: &str| Parts::decode(&chart_id, info, wanted.as_deref());
        let Decoded { value: parts, .. } = names.decode_in(site, visit, decode).await?;
        let Parts {
            info,
            versions,
            version_count,
            row,
        } = parts;
        let row = row.ok_or_else(|| {
            Problem::not_found(match version {
                Some(version) => format!(
                    "the chart {:?} of {} has no version {version:?}",
                    names.chart, names.repository
                ),
                None => format!("the chart {:?} of {} has no versions", names.chart, names.repository),
            })
        })?;
        Ok(Self {
            namespace: names.repository.namespace.clone(),
            chart: names.chart.clone(),
            version: row.version().to_owned(),
            versions,
            version_count,
            info,
            row,
            names,
            metadata: None,
        })
    }

    async fn with_metadata(self, site: &Site) -> Result<Self, Problem> {
        let (repository, chart_id) = (&self.names.repository, self.names.chart_id());
        let metadata = site.rows().metadata(repository, &chart_id, &self.version).await?;
        Ok(Self { metadata, ..self })
    }

    fn app_version(&self) -> String {
        let app_version = self.row.app_version.as_deref().unwrap_or_default();
        printable(&truncate(app_version, MAX_APP_VERSION_BYTES))
    }

    fn created(&self) -> Option<Timestamp> {
        self.row.created.as_deref().and_then(known_time)
    }

    /// Returns the path of the chart, whose page shows its newest version.
    fn chart_address(&self, prefix: &str) -> String {
        links::chart(prefix, "/charts", &self.names.repository, &self.names.chart_id())
    }

    /// Returns the path of the page of this version.
    fn address(&self, prefix: &str) -> String {
        format!("{}/{}", self.chart_address(prefix), segment(&self.version))
    }

    /// Returns the path of a file of this version in the API.
    fn file_address(&self, site: &Site, file: &FileName) -> String {
        let (chart, version) = (self.names.path(site), segment(&self.version));
        format!("{chart}/versions/{version}/{}", segment(file.name()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TabName {
    Readme,
    Values,
    Schema,
    Changes,
    Versions,
    About,
}

impl TabName {
    const ALL: [Self; 6] = [
        Self::Readme,
        Self::Values,
        Self::Schema,
        Self::Changes,
        Self::Versions,
        Self::About,
    ];

    fn parse(query: &Query) -> Self {
        let wanted = query.tab.as_deref();
        let found = Self::ALL.into_iter().find(|tab| Some(tab.name()) == wanted);
        found.unwrap_or(Self::Readme)
    }

    /// Returns the value of the parameter `tab`.
    const fn name(self) -> &'static str {
        match self {
            Self::Readme => "readme",
            Self::Values => "values",
            Self::Schema => "schema",
            Self::Changes => "changes",
            Self::Versions => "versions",
            Self::About => "about",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Readme => "README",
            Self::Values => "Values",
            Self::Schema => "Schema",
            Self::Changes => "Changes",
            Self::Versions => "Versions",
            Self::About => "About",
        }
    }

    fn file(self, query: &Query) -> Option<FileName> {
        match self {
            Self::Readme => Some(FileName::Readme),
            Self::Values => Some(values::file(query)),
            Self::Schema => Some(FileName::Schema),
            Self::Changes | Self::Versions | Self::About => None,
        }
    }

    async fn load(
        self,
        site: &Site,
        visit: &Visit,
        headers: &HeaderMap,
        shown: &Shown,
        query: &Query,
        opened: Opened,
    ) -> Result<Tab, Problem> {
        Ok(match self {
            Self::Readme => Tab::Readme(ReadmeTab::load(site, shown, opened).await?),
            Self::Values => Tab::Values(ValuesTab::load(site, shown, query, opened).await?),
            Self::Schema => Tab::Schema(SchemaTab::new(site, shown, opened)),
            Self::Changes => Tab::Changes(ChangesTab::load(site, headers, shown, query).await?),
            Self::Versions => Tab::Versions(VersionsTab::new(site, shown)),
            Self::About => Tab::About(AboutTab::new(site, visit, shown)?),
        })
    }
}

/// Each is a template of its own.
enum Tab {
    Readme(ReadmeTab),
    Values(ValuesTab),
    Schema(SchemaTab),
    Changes(ChangesTab),
    Versions(VersionsTab),
    About(AboutTab),
}

#[derive(Template)]
#[template(path = "chart/chart.html", config = "src/serve/pages/askama.toml")]
struct ChartPage {
    frame: Frame,
    header: Header,
    tabs: Vec<TabLink>,
    tab_title: &'static str,
    tab: Tab,
}

struct TabLink {
    label: String,
    link: String,
    is_current: bool,
}

type QueryResult = Result<extract::Query<Query>, QueryRejection>;

async fn show(
    State(site): State<Site>,
    headers: HeaderMap,
    names: Names,
    query: QueryResult,
) -> Result<Response, PageError> {
    let (names, query) = (address(names)?, parse(query)?);
    if let Some(version) = text_of(query.version.as_deref()) {
        return Ok(redirect(&site, &names, version, &query));
    }
    respond(&site, &headers, names, None, &query).await
}

async fn show_version(
    State(site): State<Site>,
    headers: HeaderMap,
    names: NamesAndVersion,
    query: QueryResult,
) -> Result<Response, PageError> {
    let (names, version) = address_of_version(names)?;
    respond(&site, &headers, names, Some(&version), &parse(query)?).await
}

fn parse(query: QueryResult) -> Result<Query, Problem> {
    let query = query.map_err(|_| Problem::query("a parameter is given twice, or is not UTF-8"))?;
    Ok(query.0)
}

/// Returns the value of a parameter, `None` if it is empty: forms send empty ones.
fn text_of(parameter: Option<&str>) -> Option<&str> {
    parameter.map(str::trim).filter(|text| !text.is_empty())
}

/// Redirects from the form that selects a version. It tells nothing about the chart.
fn redirect(site: &Site, names: &Address, version: &str, query: &Query) -> Response {
    let chart = links::chart(site.prefix(), "/charts", &names.repository, &names.chart_id());
    let path = format!("{chart}/{}", segment(version));
    let tab = query.tab.as_deref().map(|tab| ("tab", tab));
    Redirect::to(&links::with_query(&path, tab)).into_response()
}

async fn respond(
    site: &Site,
    headers: &HeaderMap,
    names: Address,
    version: Option<&str>,
    query: &Query,
) -> Result<Response, PageError> {
    let visit = site.enter(headers, Some(&names.repository.namespace)).await?;
    let shown = Shown::read(site, &visit, names, version).await?;
    let shown = shown.with_metadata(site).await?;
    let tab = TabName::parse(query);
    let opened = files::open(site, &shown.names, &shown.row, tab.file(query)).await?;
    let header = Header::load(site, &visit, headers, &shown, &opened.view, tab.name()).await?;
    let page = ChartPage {
        frame: Frame::new(site, &visit, "catalog"),
        header,
        tabs: tab_links(&shown, site.prefix(), tab),
        tab_title: tab.title(),
        tab: tab.load(site, &visit, headers, &shown, query, opened).await?,
    };
    large_page(site, headers, &shown.namespace, page).await
}

fn tab_links(shown: &Shown, prefix: &str, current: TabName) -> Vec<TabLink> {
    let address = shown.address(prefix);
    let link = |tab: TabName| TabLink {
        label: match tab {
            TabName::Versions => format!("{} ({})", tab.title(), number(shown.version_count)),
            _ => tab.title().to_owned(),
        },
        link: links::with_query(&address, [("tab", tab.name())]),
        is_current: tab == current,
    };
    TabName::ALL.into_iter().map(link).collect()
}
