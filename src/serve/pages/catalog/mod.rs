//! The start page: search, filters, and charts as cards.

mod card;
mod selection;

use std::collections::BTreeSet;

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::Timestamp;

use super::shown::{Choice, choices, count};
use super::{Frame, PageError, page};
use crate::serve::api::charts::{Found, Query};
use crate::serve::site::{Site, Visit};
use crate::text::printable;
use card::Card;
use selection::Selection;

/// Fills columns of 1, 2, 3 and 4 cards. Each icon is a request of its own, and a caller has 50 of them per second.
const PAGE_SIZE: usize = 24;
const SORTS: [(&str, &str); 3] = [
    ("relevance", "Best match"),
    ("name", "Name"),
    ("updated", "Newest release"),
];

#[derive(Template)]
#[template(path = "catalog.html", config = "src/serve/pages/askama.toml")]
struct CatalogPage {
    frame: Frame,
    categories: Vec<Choice>,
    repositories: Vec<Choice>,
    sorts: Vec<Choice>,
    /// Filters without a select element.
    keyword: Option<Removable>,
    namespace: Option<Removable>,
    has_filter: bool,
    cards: Vec<Card>,
    /// For the script, which fills it.
    blank: [Card; 1],
    page_size: usize,
    total: String,
    /// No name matches, but some are similar.
    only_similar: bool,
    next: Option<String>,
    is_continued: bool,
    notices: Notices,
}

/// A filter, and the link to the list without it.
struct Removable {
    value: String,
    without: String,
}

/// The state of the visible repositories.
struct Notices {
    has_repositories: bool,
    is_incomplete: bool,
    unreadable: Option<String>,
    /// Repositories before their first sync.
    waiting: Option<String>,
    failing: Option<String>,
}

impl Notices {
    fn new(visit: &Visit, is_incomplete: bool) -> Self {
        let (mut unreadable, mut waiting, mut failing) = (0, 0, 0);
        for (name, repository) in visit.repositories() {
            unreadable += repository.unreadable;
            if let Some(record) = visit.loaded().records.get(name) {
                failing += usize::from(record.state.ready == Some(false));
                waiting += usize::from(record.state.ready.is_none() && record.last_success.is_none());
            }
        }
        Self {
            has_repositories: visit.repositories().next().is_some(),
            is_incomplete,
            unreadable: (unreadable > 0).then(|| count(unreadable, "chart")),
            waiting: waiting_text(waiting),
            failing: failing_text(failing),
        }
    }
}

fn waiting_text(amount: usize) -> Option<String> {
    match amount {
        0 => None,
        1 => Some("1 repository waits for its first sync".to_owned()),
        _ => Some(format!("{amount} repositories wait for their first sync")),
    }
}

fn failing_text(amount: usize) -> Option<String> {
    match amount {
        0 => None,
        1 => Some("1 repository is not ready".to_owned()),
        _ => Some(format!("{amount} repositories are not ready")),
    }
}

pub(super) async fn show(
    State(site): State<Site>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let selection = Selection::parse(query.as_deref().unwrap_or_default());
    let query = Query::parse(Some(&selection.api_query(PAGE_SIZE)))?;
    let visit = site.enter(&headers, selection.namespace()).await?;
    let found = query.find(&visit)?;
    page(&site, &headers, &CatalogPage::new(&site, &visit, &selection, &found))
}

impl CatalogPage {
    fn new(site: &Site, visit: &Visit, selection: &Selection, found: &Found<'_>) -> Self {
        let (prefix, now) = (site.prefix(), Timestamp::now());
        let start = format!("{prefix}/");
        let removable = |name: &str| {
            selection.get(name).map(|value| Removable {
                value: printable(value),
                without: selection.link_with(&start, name, None),
            })
        };
        let cards: Vec<Card> = found.hits.iter().map(|hit| Card::new(prefix, *hit, now)).collect();
        Self {
            frame: Frame {
                query: selection.get("q").unwrap_or_default().to_owned(),
                ..Frame::new(site, visit, "catalog")
            },
            categories: categories(visit, selection.get("category")),
            repositories: repositories(visit, selection.get("repository")),
            sorts: sorts(selection.get("sort")),
            keyword: removable("keyword"),
            namespace: removable("namespace"),
            has_filter: selection.has_filter(),
            only_similar: !cards.is_empty() && cards.iter().all(|card| card.is_similar),
            cards,
            blank: [Card::blank()],
            page_size: PAGE_SIZE,
            total: count(found.total, "chart"),
            next: found
                .next
                .as_deref()
                .map(|next| selection.link_with(&start, "cursor", Some(next))),
            is_continued: selection.get("cursor").is_some(),
            notices: Notices::new(visit, found.is_incomplete),
        }
    }
}

fn categories(visit: &Visit, selected: Option<&str>) -> Vec<Choice> {
    let charts = visit
        .repositories()
        .flat_map(|(_, repository)| repository.charts.iter());
    let all: BTreeSet<&str> = charts
        .map(|chart| &*chart.category)
        .filter(|name| !name.is_empty())
        .collect();
    choices(all.into_iter().map(str::to_owned), selected)
}

fn repositories(visit: &Visit, selected: Option<&str>) -> Vec<Choice> {
    choices(visit.repositories().map(|(name, _)| name.to_string()), selected)
}

fn sorts(selected: Option<&str>) -> Vec<Choice> {
    let selected = selected.unwrap_or("relevance");
    let choice = |(value, label): (&str, &str)| Choice {
        value: value.to_owned(),
        label: label.to_owned(),
        is_selected: value == selected,
    };
    SORTS.into_iter().map(choice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_count_repositories() {
        assert_eq!(failing_text(0), None);
        assert_eq!(failing_text(1).unwrap(), "1 repository is not ready");
        assert_eq!(waiting_text(2).unwrap(), "2 repositories wait for their first sync");
    }
}
