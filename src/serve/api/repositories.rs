//! Repositories: their health, and the size of their charts.

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::parameters::Parameters;
use crate::api::NamespacedName;
use crate::catalog::{Record, SyncView};
use crate::runtime::cron;
use crate::serve::access::Visible;
use crate::serve::links::segment;
use crate::serve::live::Loaded;
use crate::serve::problem::Problem;
use crate::serve::respond::respond;
use crate::serve::site::{Freshness, Site};
use crate::serve::snapshot::Repository;
use crate::text::redacted_url;

const PARAMETERS: [&str; 2] = ["namespace", "ready"];

#[derive(Serialize)]
struct List<'a> {
    items: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Only for callers who may list in all namespaces: those of other clusters may have the same names.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<usize>,
    #[serde(flatten)]
    freshness: Freshness,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    namespace: &'a str,
    name: &'a str,
    /// `portolan`, or `kubeapps` if only its syncer has written the charts. Then there is no health.
    managed_by: &'static str,
    #[serde(rename = "type")]
    kind: &'a str,
    url: String,
    /// Null before the first sync, and without health.
    ready: Option<bool>,
    reason: &'a str,
    message: &'a str,
    stalled: bool,
    charts: usize,
    versions: usize,
    last_attempt_time: Option<Timestamp>,
    last_success_time: Option<Timestamp>,
    next_sync_time: Option<Timestamp>,
    /// For `helm repo add`: only a path without `--external-url`.
    helm_url: String,
}

impl<'a> Item<'a> {
    fn new(site: &Site, loaded: &'a Loaded, name: &'a NamespacedName, repository: &'a Repository) -> Self {
        let now = Timestamp::now();
        let record = loaded.records.get(name).map(|record| &**record);
        let state = record.map(|record| &record.state);
        let text = |text: Option<&'a String>| text.map(String::as_str).unwrap_or_default();
        Self {
            namespace: &name.namespace,
            name: &name.name,
            managed_by: if repository.keys.record.is_some() {
                "portolan"
            } else {
                "kubeapps"
            },
            kind: text(record.map(|record| &record.kind)),
            url: record.map(|record| redacted_url(&record.url)).unwrap_or_default(),
            ready: ready(record),
            reason: text(state.map(|state| &state.reason)),
            message: text(state.map(|state| &state.message)),
            stalled: state.is_some_and(|state| state.stalled),
            charts: repository.count(),
            versions: repository.versions,
            last_attempt_time: record.and_then(|record| record.last_attempt),
            last_success_time: record.and_then(|record| record.last_success),
            next_sync_time: record.and_then(|record| next_sync(record, now)),
            helm_url: site.external_url(&format!("/helm/{}/{}", segment(&name.namespace), segment(&name.name))),
        }
    }
}

fn ready(record: Option<&Record>) -> Option<bool> {
    record.and_then(|record| record.state.ready)
}

fn next_sync(record: &Record, now: Timestamp) -> Option<Timestamp> {
    cron::next_due(record.schedule.as_deref()?, &record.uid, now)
}

/// The last repository of a page.
#[derive(Serialize, Deserialize)]
struct Position {
    namespace: String,
    name: String,
}

pub(super) async fn list(
    State(site): State<Site>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let parameters = Parameters::list(query.as_deref(), "repositories", &PARAMETERS)?;
    let (namespace, limit) = (parameters.get("namespace"), parameters.limit()?);
    let wanted = parse_ready(parameters.get("ready"))?;
    let after: Option<Position> = parameters.cursor()?;
    let after = after.map(|after| NamespacedName::new(after.namespace, after.name));
    let visit = site.enter(&headers, namespace).await?;
    let loaded = visit.loaded();
    let is_wanted = |name: &NamespacedName| {
        let record = loaded.records.get(name).map(|record| &**record);
        namespace.is_none_or(|namespace| namespace == name.namespace)
            && wanted.is_none_or(|wanted| wanted == ready(record))
            && after.as_ref().is_none_or(|after| name > after)
    };
    let mut found = visit.repositories().filter(|(name, _)| is_wanted(name));
    let page: Vec<_> = found.by_ref().take(limit).collect();
    let has_more = found.next().is_some();
    let last = page.last().filter(|_| has_more).map(|(name, _)| Position {
        namespace: name.namespace.clone(),
        name: name.name.clone(),
    });
    let next = last.map(|last| parameters.next(&last)).transpose()?;
    let items = page.into_iter();
    let list = List {
        items: items
            .map(|(name, repository)| Item::new(&site, loaded, name, repository))
            .collect(),
        next,
        hidden: matches!(visit.caller.namespaces, Visible::All).then(|| loaded.snapshot.hidden()),
        freshness: visit.freshness(),
    };
    respond(&headers, &list)
}

fn parse_ready(text: Option<&str>) -> Result<Option<Option<bool>>, Problem> {
    match text {
        None => Ok(None),
        Some("true") => Ok(Some(Some(true))),
        Some("false") => Ok(Some(Some(false))),
        Some("unknown") => Ok(Some(None)),
        Some(_) => Err(Problem::parameter(
            "ready",
            "unknown value of ready; use true, false or unknown",
        )),
    }
}

type Names = Result<Path<(String, String)>, PathRejection>;

pub(super) async fn show(State(site): State<Site>, headers: HeaderMap, names: Names) -> Result<Response, Problem> {
    let Path((namespace, name)) = names.map_err(|_| Problem::unknown_path())?;
    let name = NamespacedName::new(namespace, name);
    let visit = site.enter(&headers, Some(&name.namespace)).await?;
    let repository = visit.repository(&name)?;
    respond(&headers, &Item::new(&site, visit.loaded(), &name, repository))
}

#[derive(Serialize)]
struct Syncs<'a> {
    items: Vec<SyncView<'a>>,
}

/// Shows the syncs that changed something, failed or recovered: the catalog keeps so few of each repository that there are no
/// pages. Repositories that only Kubeapps' syncer has written have none.
pub(super) async fn syncs(State(site): State<Site>, headers: HeaderMap, names: Names) -> Result<Response, Problem> {
    let Path((namespace, name)) = names.map_err(|_| Problem::unknown_path())?;
    let name = NamespacedName::new(namespace, name);
    let visit = site.enter(&headers, Some(&name.namespace)).await?;
    visit.repository(&name)?;
    let entries = site.rows().history(&name).await?;
    let items = entries.iter().map(SyncView::new).collect();
    respond(&headers, &Syncs { items })
}
