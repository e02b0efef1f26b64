//! Releases of the cluster, and the newest versions of their charts in the catalog.

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::response::Response;

use super::shown::{Badge, Choice};
use super::{Frame, PageError, links, page};
use crate::api::NamespacedName;
use crate::releases::{JudgedRelease, Match, ReleaseState, RepositoryName, Status, Verdict};
use crate::serve::releases::{Found, Query, STATUSES, enter};
use crate::serve::site::{Site, Visit};
use crate::text::printable;

#[derive(Template)]
#[template(path = "outdated.html", config = "src/serve/pages/askama.toml")]
struct OutdatedPage {
    frame: Frame,
    /// Empty for all.
    namespace: String,
    statuses: Vec<Choice>,
    is_filtered: bool,
    content: Content,
}

enum Content {
    NotWatched,
    /// The caller may list releases in no namespace that has one.
    NoneVisible,
    Shown {
        rows: Vec<Row>,
        next: Option<String>,
        is_incomplete: bool,
        unreadable: Vec<String>,
    },
}

struct Row {
    name: String,
    namespace: String,
    kind: String,
    /// `None` for a deployed release.
    state: Option<String>,
    chart: String,
    installed: String,
    newest: [Option<String>; 3],
    badge: Badge,
    is_deprecated: bool,
    repositories: Vec<Link>,
}

struct Link {
    name: String,
    path: String,
}

impl Row {
    fn new(prefix: &str, item: &JudgedRelease) -> Self {
        let (release, judgement) = (&item.release, &item.judgement);
        let verdict = judgement.verdict.as_ref();
        let newest = |version: fn(&Verdict) -> &Option<String>| {
            let version = verdict.and_then(|verdict| version(verdict).as_deref());
            version.map(printable)
        };
        let link = |RepositoryName { namespace, name }: &RepositoryName| {
            let name = NamespacedName::new(namespace, name);
            Link {
                path: links::repository(prefix, &name),
                name: printable(&name.to_string()),
            }
        };
        Self {
            name: printable(&release.name),
            namespace: printable(&release.namespace),
            kind: release.kind.to_string(),
            state: state(&release.state),
            chart: printable(&release.chart.name),
            installed: printable(&release.chart.version),
            newest: [
                newest(|verdict| &verdict.newest_patch),
                newest(|verdict| &verdict.newest_minor),
                newest(|verdict| &verdict.newest_major),
            ],
            badge: badge(judgement.matched, verdict),
            is_deprecated: verdict.is_some_and(|verdict| verdict.deprecated),
            repositories: judgement.repositories.iter().map(link).collect(),
        }
    }
}

fn state(state: &ReleaseState) -> Option<String> {
    match state {
        ReleaseState::Deployed => None,
        ReleaseState::Failed => Some("failed".to_owned()),
        ReleaseState::Pending => Some("pending".to_owned()),
        ReleaseState::Other(state) => Some(printable(state)),
    }
}

fn badge(matched: Match, verdict: Option<&Verdict>) -> Badge {
    let (class, label) = match verdict.map(|verdict| verdict.status) {
        None if matched == Match::Ambiguous => ("unknown", "Several repositories"),
        None => ("unknown", "Not in the catalog"),
        Some(Status::Current) => ("ok", "Current"),
        Some(Status::Patch) => ("bad", "Patch available"),
        Some(Status::Minor) => ("bad", "Minor version available"),
        Some(Status::Major) => ("bad", "Major version available"),
        Some(Status::Withdrawn) => ("bad", "Withdrawn"),
        Some(Status::NotListed) => ("unknown", "Not listed"),
    };
    Badge { class, label }
}

pub(super) async fn list(
    State(site): State<Site>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let query = Query::parse(query.as_deref())?;
    let visit = enter(&site, &headers, query.namespace()).await?;
    let Some(reader) = site.releases() else {
        return page(
            &site,
            &headers,
            &OutdatedPage::new(&site, &visit, &query, Content::NotWatched),
        );
    };
    let releases = reader.releases.get();
    let visible = reader.visible(&site, &headers, &releases, query.namespace()).await?;
    let content = if visible.is_empty() && !releases.namespaces.is_empty() {
        Content::NoneVisible
    } else {
        let found = query.find(&releases, &visible, &visit.caller.namespaces)?;
        shown(&site, &query, found)
    };
    page(&site, &headers, &OutdatedPage::new(&site, &visit, &query, content))
}

fn shown(site: &Site, query: &Query, found: Found<'_>) -> Content {
    let prefix = site.prefix();
    let next = |cursor: &str| {
        let pairs = [
            ("namespace", query.namespace()),
            ("status", query.status()),
            ("cursor", Some(cursor)),
        ];
        let pairs = pairs.into_iter().filter_map(|(name, value)| Some((name, value?)));
        links::with_query(&format!("{prefix}/outdated"), pairs)
    };
    Content::Shown {
        rows: found.items.iter().map(|item| Row::new(prefix, item)).collect(),
        next: found.next.as_deref().map(next),
        is_incomplete: found.is_incomplete,
        unreadable: found.unreadable.into_iter().map(printable).collect(),
    }
}

impl OutdatedPage {
    fn new(site: &Site, visit: &Visit, query: &Query, content: Content) -> Self {
        let status = query.status();
        let statuses = STATUSES.into_iter().map(|(value, label)| Choice {
            value: value.to_owned(),
            label: label.to_owned(),
            is_selected: status == Some(value),
        });
        Self {
            frame: Frame::new(site, visit, "outdated"),
            namespace: query.namespace().map(printable).unwrap_or_default(),
            statuses: statuses.collect(),
            is_filtered: query.namespace().is_some() || status.is_some() || query.is_continued(),
            content,
        }
    }
}
