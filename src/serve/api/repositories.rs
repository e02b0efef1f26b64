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
use crate::serve::site::{Freshness, Site, Visit};
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
pub(in crate::serve) struct Item<'a> {
    pub(in crate::serve) namespace: &'a str,
    pub(in crate::serve) name: &'a str,
    /// `portolan`, or `kubeapps` if only its syncer has written the charts. Then there is no health.
    pub(in crate::serve) managed_by: &'static str,
    #[serde(rename = "type")]
    pub(in crate::serve) kind: &'a str,
    pub(in crate::serve) url: String,
    /// Null before the first sync, and without health.
    pub(in crate::serve) ready: Option<bool>,
    pub(in crate::serve) reason: &'a str,
    pub(in crate::serve) message: &'a str,
    pub(in crate::serve) stalled: bool,
    pub(in crate::serve) failures: u32,
    pub(in crate::serve) charts: usize,
    pub(in crate::serve) versions: usize,
    pub(in crate::serve) last_attempt_time: Option<Timestamp>,
    pub(in crate::serve) last_success_time: Option<Timestamp>,
    pub(in crate::serve) next_sync_time: Option<Timestamp>,
    /// For `helm repo add`: only a path without `--external-url`.
    pub(in crate::serve) helm_url: String,
}

impl<'a> Item<'a> {
    pub(in crate::serve) fn new(
        site: &Site,
        loaded: &'a Loaded,
        name: &'a NamespacedName,
        repository: &'a Repository,
    ) -> Self {
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
            failures: state.map_or(0, |state| state.failures),
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

/// A list as a request asks for it.
pub(in crate::serve) struct Query {
    parameters: Parameters,
    ready: Option<Option<bool>>,
    limit: usize,
    after: Option<NamespacedName>,
}

/// A page of a list.
pub(in crate::serve) struct Found<'a> {
    pub(in crate::serve) items: Vec<Item<'a>>,
    /// The cursor of the next page.
    pub(in crate::serve) next: Option<String>,
    /// Only for callers who may list in all namespaces.
    pub(in crate::serve) hidden: Option<usize>,
}

impl Query {
    pub(in crate::serve) fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let parameters = Parameters::list(query, "repositories", &PARAMETERS)?;
        let after: Option<Position> = parameters.cursor()?;
        Ok(Self {
            ready: parse_ready(parameters.get("ready"))?,
            limit: parameters.limit()?,
            after: after.map(|after| NamespacedName::new(after.namespace, after.name)),
            parameters,
        })
    }

    pub(in crate::serve) fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name)
    }

    pub(in crate::serve) fn find<'a>(&self, site: &Site, visit: &'a Visit) -> Result<Found<'a>, Problem> {
        let loaded = visit.loaded();
        let namespace = self.get("namespace");
        let is_wanted = |name: &NamespacedName| {
            let record = loaded.records.get(name).map(|record| &**record);
            namespace.is_none_or(|namespace| namespace == name.namespace)
                && self.ready.is_none_or(|wanted| wanted == ready(record))
                && self.after.as_ref().is_none_or(|after| name > after)
        };
        let mut found = visit.repositories().filter(|(name, _)| is_wanted(name));
        let page: Vec<_> = found.by_ref().take(self.limit).collect();
        let has_more = found.next().is_some();
        let last = page.last().filter(|_| has_more).map(|(name, _)| Position {
            namespace: name.namespace.clone(),
            name: name.name.clone(),
        });
        let items = page.into_iter();
        Ok(Found {
            items: items
                .map(|(name, repository)| Item::new(site, loaded, name, repository))
                .collect(),
            next: last.map(|last| self.parameters.next(&last)).transpose()?,
            hidden: matches!(visit.caller.namespaces, Visible::All).then(|| loaded.snapshot.hidden()),
        })
    }
}

pub(super) async fn list(
    State(site): State<Site>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::parse(query.as_deref())?;
    let visit = site.enter(&headers, query.get("namespace")).await?;
    let found = query.find(&site, &visit)?;
    let list = List {
        items: found.items,
        next: found.next,
        hidden: found.hidden,
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
