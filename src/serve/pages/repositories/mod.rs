//! Repositories: their health, history, and how clients use them.

mod plot;
mod snippets;

use askama::Template;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::Timestamp;

use super::shown::{Badge, When, count, number};
use super::{Frame, PageError, links, page};
use crate::api::NamespacedName;
use crate::catalog::HistoryEntry;
use crate::serve::api::repositories::{Found, Item, Query};
use crate::serve::helm::origin;
use crate::serve::problem::Problem;
use crate::serve::site::{Site, Visit};
use crate::text::printable;
use plot::{Plot, is_failed};
pub(super) use snippets::install;
use snippets::{Snippet, snippets};

const READY_FILTERS: [(&str, &str); 4] = [
    ("", "All"),
    ("true", "Ready"),
    ("false", "Not ready"),
    ("unknown", "Unknown"),
];

/// The state of a repository.
struct Row {
    name: String,
    link: String,
    health: Badge,
    reason: String,
    message: String,
    charts: String,
    versions: String,
    last_success: Option<When>,
    next_sync: Option<When>,
}

impl Row {
    fn new(prefix: &str, item: &Item<'_>, now: Timestamp) -> Self {
        let name = NamespacedName::new(item.namespace, item.name);
        Self {
            link: links::repository(prefix, &name),
            name: printable(&name.to_string()),
            health: health(item),
            reason: printable(item.reason),
            message: printable(item.message),
            charts: number(item.charts),
            versions: number(item.versions),
            last_success: item.last_success_time.map(|time| When::new(time, now)),
            next_sync: item.next_sync_time.map(|time| When::new(time, now)),
        }
    }
}

pub(super) fn health(item: &Item<'_>) -> Badge {
    let (class, label) = match item.ready {
        Some(true) => ("ok", "Ready"),
        Some(false) if item.stalled => ("bad", "Stalled"),
        Some(false) => ("bad", "Not ready"),
        None if item.managed_by == "kubeapps" => ("unknown", "Managed by Kubeapps"),
        None if item.last_success_time.is_none() => ("unknown", "Waiting for its first sync"),
        None => ("unknown", "Unknown"),
    };
    Badge { class, label }
}

#[derive(Template)]
#[template(path = "repositories.html", config = "src/serve/pages/askama.toml")]
struct ListPage {
    frame: Frame,
    filters: Vec<Filter>,
    is_filtered: bool,
    rows: Vec<Row>,
    next: Option<String>,
    /// Repositories of the database that may be those of another cluster.
    hidden: Option<String>,
}

/// A link to the repositories with one health.
struct Filter {
    label: &'static str,
    link: String,
    is_current: bool,
}

pub(super) async fn list(
    State(site): State<Site>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let query = Query::parse(query.as_deref())?;
    let visit = site.enter(&headers, query.get("namespace")).await?;
    let found = query.find(&site, &visit)?;
    page(&site, &headers, &ListPage::new(&site, &visit, &query, &found))
}

impl ListPage {
    fn new(site: &Site, visit: &Visit, query: &Query, found: &Found<'_>) -> Self {
        let (prefix, now) = (site.prefix(), Timestamp::now());
        let path = format!("{prefix}/repositories");
        let (namespace, ready) = (query.get("namespace"), query.get("ready"));
        let link = |ready: Option<&str>, cursor: Option<&str>| {
            let pairs = [("namespace", namespace), ("ready", ready), ("cursor", cursor)];
            let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
            links::with_query(&path, pairs)
        };
        let filters = READY_FILTERS.into_iter().map(|(value, label)| Filter {
            label,
            link: link((!value.is_empty()).then_some(value), None),
            is_current: ready.unwrap_or_default() == value,
        });
        let hidden = found.hidden.filter(|hidden| *hidden > 0);
        Self {
            frame: Frame::new(site, visit, "repositories"),
            filters: filters.collect(),
            is_filtered: namespace.is_some() || ready.is_some() || query.get("cursor").is_some(),
            rows: found.items.iter().map(|item| Row::new(prefix, item, now)).collect(),
            next: found.next.as_deref().map(|next| link(ready, Some(next))),
            hidden: hidden.map(number),
        }
    }
}

#[derive(Template)]
#[template(path = "repository.html", config = "src/serve/pages/askama.toml")]
struct RepositoryPage {
    frame: Frame,
    row: Row,
    charts_link: String,
    /// Empty if only Kubeapps' syncer has written the charts.
    url: String,
    kind: String,
    last_attempt: Option<When>,
    unreadable: Option<String>,
    left_out: Option<String>,
    history: History,
    snippets: [Snippet; 3],
    namespace: String,
    has_credentials: bool,
    /// The address is that of the request, which other computers may not reach.
    has_external_url: bool,
}

enum History {
    /// The database is away.
    Unavailable,
    Empty,
    Shown {
        plot: Option<Box<Plot>>,
        syncs: Vec<SyncRow>,
    },
}

/// A sync that changed something, failed or recovered.
struct SyncRow {
    started: When,
    badge: Badge,
    /// Of a failure.
    cause: String,
    versions: String,
    changes: String,
}

impl SyncRow {
    fn new(entry: &HistoryEntry, now: Timestamp) -> Self {
        let (class, label) = match entry.result.as_str() {
            "Succeeded" => ("ok", "Succeeded"),
            "Stalled" => ("bad", "Stalled"),
            _ => ("bad", "Failed"),
        };
        let cause = match (entry.reason.as_str(), entry.message.as_str()) {
            _ if !is_failed(entry) => String::new(),
            (reason, "") => printable(reason),
            (reason, message) => printable(&format!("{reason}: {message}")),
        };
        Self {
            started: When::new(entry.started_at, now),
            badge: Badge { class, label },
            cause,
            versions: number(usize::try_from(entry.versions).unwrap_or(usize::MAX)),
            changes: changes(entry),
        }
    }
}

fn changes(entry: &HistoryEntry) -> String {
    let parts = [
        (entry.added, "added"),
        (entry.changed, "changed"),
        (entry.removed, "removed"),
        (entry.skipped, "invalid"),
    ];
    let parts = parts.into_iter().filter(|(amount, _)| *amount > 0);
    let parts: Vec<String> = parts
        .map(|(amount, name)| format!("{} {name}", number(usize::try_from(amount).unwrap_or(usize::MAX))))
        .collect();
    if parts.is_empty() {
        "none".to_owned()
    } else {
        parts.join(", ")
    }
}

pub(super) async fn show(
    State(site): State<Site>,
    headers: HeaderMap,
    names: Result<Path<(String, String)>, PathRejection>,
) -> Result<Response, PageError> {
    let Path((namespace, name)) = names.map_err(|_| Problem::unknown_path())?;
    let name = NamespacedName::new(namespace, name);
    let visit = site.enter(&headers, Some(&name.namespace)).await?;
    visit.repository(&name)?;
    let now = Timestamp::now();
    let history = match site.rows().history(&name).await {
        Err(_) => History::Unavailable,
        Ok(entries) if entries.is_empty() => History::Empty,
        Ok(entries) => History::Shown {
            plot: Plot::new(&entries, now).map(Box::new),
            syncs: entries.iter().map(|entry| SyncRow::new(entry, now)).collect(),
        },
    };
    let repository = RepositoryPage::new(&site, &visit, &headers, &name, history)?;
    page(&site, &headers, &repository)
}

impl RepositoryPage {
    fn new(
        site: &Site,
        visit: &Visit,
        headers: &HeaderMap,
        name: &NamespacedName,
        history: History,
    ) -> Result<Self, Problem> {
        let (prefix, now) = (site.prefix(), Timestamp::now());
        let repository = visit.repository(name)?;
        let item = Item::new(site, visit.loaded(), name, repository);
        let shown = |amount: usize| (amount > 0).then(|| count(amount, "chart"));
        let full_name = name.to_string();
        let has_credentials = visit.caller.user.is_some();
        let base = format!("{}{prefix}/helm", origin(site, headers));
        Ok(Self {
            frame: Frame::new(site, visit, "repositories"),
            row: Row::new(prefix, &item, now),
            charts_link: links::with_query(&format!("{prefix}/"), [("repository", full_name.as_str())]),
            url: printable(&item.url),
            kind: printable(item.kind),
            last_attempt: item.last_attempt_time.map(|time| When::new(time, now)),
            unreadable: shown(repository.unreadable),
            left_out: shown(repository.left_out),
            history,
            snippets: snippets(&base, name, has_credentials),
            namespace: printable(&name.namespace),
            has_credentials,
            has_external_url: site.external_origin().is_some(),
        })
    }
}
