//! Lists of charts.

use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::parameters::Parameters;
use crate::api::NamespacedName;
use crate::serve::problem::Problem;
use crate::serve::respond::respond;
use crate::serve::search::{Hit, Rank, Words, matches};
use crate::serve::site::{Freshness, Site, Visit};
use crate::serve::summary::{ChartSummary, fold};

const PARAMETERS: [&str; 6] = ["q", "namespace", "repository", "category", "keyword", "sort"];

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    items: Vec<Item<'a>>,
    /// The cursor of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// True if charts of these namespaces are left out, because --catalog-memory is used up.
    incomplete: bool,
    #[serde(flatten)]
    freshness: Freshness,
}

#[derive(Serialize)]
struct Item<'a> {
    #[serde(flatten)]
    summary: Summary<'a>,
    fuzzy: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary<'a> {
    namespace: &'a str,
    repository: &'a str,
    name: &'a str,
    version: &'a str,
    app_version: &'a str,
    description: &'a str,
    category: &'a str,
    keywords: &'a [Box<str>],
    created: Option<Timestamp>,
    versions: usize,
    /// Otherwise the icon is a letter.
    has_icon: bool,
}

impl<'a> Summary<'a> {
    pub(super) fn new(repository: &'a NamespacedName, chart: &'a ChartSummary) -> Self {
        Self {
            namespace: &repository.namespace,
            repository: &repository.name,
            name: &chart.name,
            version: &chart.version,
            app_version: &chart.app_version,
            description: &chart.description,
            category: &chart.category,
            keywords: &chart.keywords,
            created: chart.created,
            versions: chart.versions,
            has_icon: chart.has_icon,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// By name without words.
    Relevance,
    Name,
    /// The newest first.
    Updated,
}

impl Sort {
    fn parse(text: Option<&str>) -> Result<Self, Problem> {
        match text {
            None | Some("relevance") => Ok(Self::Relevance),
            Some("name") => Ok(Self::Name),
            Some("updated") => Ok(Self::Updated),
            Some(_) => Err(Problem::parameter(
                "sort",
                "unknown value of sort; use relevance, name or updated",
            )),
        }
    }

    fn order(self, (edits, score, length): Rank, chart: &ChartSummary) -> [i64; 3] {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        match self {
            Self::Relevance => [number(edits), -i64::from(score.0), number(length)],
            Self::Name => [0; 3],
            Self::Updated => [
                chart.created.map_or(i64::MAX, |created| -created.as_millisecond()),
                0,
                0,
            ],
        }
    }
}

/// The place of a chart in the order; also in a page that other rows precede now.
#[derive(Serialize, Deserialize)]
struct Position {
    order: [i64; 3],
    name: String,
    namespace: String,
    repository: String,
    chart_id: String,
}

type Key<'a> = ([i64; 3], &'a str, &'a str, &'a str, &'a str);

impl Position {
    fn key(&self) -> Key<'_> {
        (
            self.order,
            &self.name,
            &self.namespace,
            &self.repository,
            &self.chart_id,
        )
    }

    fn new((order, name, namespace, repository, chart_id): Key<'_>) -> Self {
        Self {
            order,
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            repository: repository.to_owned(),
            chart_id: chart_id.to_owned(),
        }
    }
}

fn key(sort: Sort, rank: Rank, hit: Hit<'_>) -> Key<'_> {
    let Hit { repository, chart, .. } = hit;
    (
        sort.order(rank, chart),
        &chart.name,
        &repository.namespace,
        &repository.name,
        &chart.chart_id,
    )
}

/// The charts that a request asks for, besides words.
struct Filter<'a> {
    namespace: Option<&'a str>,
    repository: Option<&'a str>,
    category: Option<&'a str>,
    keyword: Option<String>,
}

impl<'a> Filter<'a> {
    fn new(parameters: &'a Parameters) -> Self {
        Self {
            namespace: parameters.get("namespace"),
            repository: parameters.get("repository"),
            category: parameters.get("category"),
            keyword: parameters.get("keyword").map(fold),
        }
    }

    fn has_repository(&self, name: &NamespacedName) -> bool {
        self.namespace.is_none_or(|namespace| namespace == name.namespace)
            && self.repository.is_none_or(|repository| repository == name.name)
    }

    fn has_chart(&self, chart: &ChartSummary) -> bool {
        (self.category).is_none_or(|category| chart.category.eq_ignore_ascii_case(category))
            && self
                .keyword
                .as_deref()
                .is_none_or(|keyword| chart.folded.has_keyword(keyword))
    }
}

/// A list as a request asks for it.
pub(in crate::serve) struct Query {
    parameters: Parameters,
    sort: Sort,
    limit: usize,
    after: Option<Position>,
}

/// A page of a list.
pub(in crate::serve) struct Found<'a> {
    pub(in crate::serve) hits: Vec<Hit<'a>>,
    /// Number of charts on all pages.
    pub(in crate::serve) total: usize,
    /// The cursor of the next page.
    pub(in crate::serve) next: Option<String>,
    /// True if charts are left out, because --catalog-memory is used up.
    pub(in crate::serve) is_incomplete: bool,
}

impl Query {
    pub(in crate::serve) fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let parameters = Parameters::list(query, "charts", &PARAMETERS)?;
        Ok(Self {
            sort: Sort::parse(parameters.get("sort"))?,
            limit: parameters.limit()?,
            after: parameters.cursor()?,
            parameters,
        })
    }

    pub(in crate::serve) fn find<'a>(&self, visit: &'a Visit) -> Result<Found<'a>, Problem> {
        let filter = Filter::new(&self.parameters);
        let words = Words::new(self.parameters.get("q").unwrap_or_default().split_whitespace());
        let mut found = matches(charts(visit, &filter), &words);
        let total = found.len();
        let key = |(rank, hit): &(Rank, Hit<'a>)| key(self.sort, *rank, *hit);
        if let Some(after) = &self.after {
            found.retain(|found| key(found) > after.key());
        }
        let has_more = found.len() > self.limit;
        if has_more {
            // A page is much shorter than what is found.
            found.select_nth_unstable_by(self.limit, |one, other| key(one).cmp(&key(other)));
            found.truncate(self.limit);
        }
        found.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
        let last = found.last().filter(|_| has_more);
        let next = last.map(|last| self.parameters.next(&Position::new(key(last))));
        Ok(Found {
            next: next.transpose()?,
            hits: found.into_iter().map(|(_, hit)| hit).collect(),
            total,
            is_incomplete: is_incomplete(visit, &filter),
        })
    }
}

pub(super) async fn list(
    State(site): State<Site>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::parse(query.as_deref())?;
    let visit = site.enter(&headers, query.parameters.get("namespace")).await?;
    let found = query.find(&visit)?;
    let items = found.hits.iter().map(|hit| Item {
        summary: Summary::new(hit.repository, hit.chart),
        fuzzy: hit.fuzzy,
    });
    let list = List {
        items: items.collect(),
        next: found.next,
        incomplete: found.is_incomplete,
        freshness: visit.freshness(),
    };
    respond(&headers, &list)
}

fn is_incomplete(visit: &Visit, filter: &Filter<'_>) -> bool {
    let mut repositories = visit.repositories();
    repositories.any(|(name, repository)| filter.has_repository(name) && repository.is_incomplete())
}

fn charts<'a>(
    visit: &'a Visit,
    filter: &Filter<'_>,
) -> impl Iterator<Item = (&'a NamespacedName, &'a ChartSummary)> + Clone {
    let repositories = visit
        .repositories()
        .filter(move |(name, _)| filter.has_repository(name));
    repositories.flat_map(move |(name, repository)| {
        let charts = repository.charts.iter().filter(move |chart| filter.has_chart(chart));
        charts.map(move |chart| (name, chart))
    })
}
