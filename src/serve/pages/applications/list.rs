//! Lists of Applications: of all namespaces if the caller may list them, or else of one.

use askama::Template;
use axum::extract::{RawQuery, State as Shared};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use jiff::Timestamp;

use super::objects::{List, Listed};
use super::state::State;
use super::{ClosedPage, Kind, enter, respond};
use crate::api::is_object_name;
use crate::serve::access::{AccessError, CallerToken};
use crate::serve::api::parameters::Parameters;
use crate::serve::cluster::{ClusterReader, Content, ReadError};
use crate::serve::pages::shown::{Badge, When};
use crate::serve::pages::{Frame, PageError, links, page};
use crate::serve::problem::Problem;
use crate::serve::site::Site;
use crate::text::sanitize;

/// Applications of a request to the API server: fewer if they are too large. One takes up to 1.5 MiB.
const PAGE_SIZES: [&str; 3] = ["250", "25", "4"];

#[derive(Template)]
#[template(path = "applications/list.html", config = "src/serve/pages/askama.toml")]
struct ListPage {
    frame: Frame,
    /// Empty for all.
    namespace: String,
    sections: Vec<Section>,
    /// A list goes on from an earlier page, or shows one kind only.
    is_part: bool,
    may_list_none: bool,
    /// Stops the reloads; `None` if there are none.
    stop: Option<String>,
}

struct Section {
    kind: Kind,
    content: Rows,
}

enum Rows {
    Shown {
        rows: Vec<Row>,
        next: Option<String>,
    },
    NotInstalled,
    /// In the words of the API server.
    Refused(String),
    Failed(String),
}

struct Row {
    name: String,
    link: String,
    namespace: String,
    badge: Badge,
    cause: String,
    created: Option<When>,
    is_progressing: bool,
}

impl Row {
    fn new(prefix: &str, kind: Kind, item: &Listed, now: Timestamp) -> Self {
        let metadata = &item.metadata;
        let state = State::new(kind, metadata, &item.status, now);
        Self {
            name: sanitize(&metadata.name),
            link: kind.page(prefix, &metadata.namespace, &metadata.name),
            namespace: sanitize(&metadata.namespace),
            badge: state.badge,
            cause: state.cause,
            created: metadata.creation_timestamp.map(|time| When::new(time, now)),
            is_progressing: state.is_progressing,
        }
    }
}

impl Section {
    fn label(&self) -> String {
        format!("Applications of {}", self.kind.title())
    }

    const fn is_refused(&self) -> bool {
        matches!(self.content, Rows::Refused(_))
    }

    const fn is_shown(&self) -> bool {
        matches!(self.content, Rows::Shown { .. })
    }

    fn is_progressing(&self) -> bool {
        match &self.content {
            Rows::Shown { rows, .. } => rows.iter().any(|row| row.is_progressing),
            _ => false,
        }
    }
}

/// The parameters of the page.
struct Query(Parameters);

impl Query {
    fn parse(query: Option<&str>) -> Result<Self, Problem> {
        let parameters = Parameters::only(query, &["namespace", "kind", "continue", "reload"])?;
        let query = Self(parameters);
        if query.namespace().is_some_and(|name| !is_object_name(name)) {
            return Err(Problem::parameter("namespace", "no namespace can have this name"));
        }
        if query.get("kind").is_some() && query.kind().is_none() {
            return Err(Problem::parameter("kind", "kind must be vela or app"));
        }
        if query.get("continue").is_some() && query.kind().is_none() {
            return Err(Problem::parameter("kind", "a list that continues needs its kind"));
        }
        Ok(query)
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)
    }

    fn namespace(&self) -> Option<&str> {
        self.get("namespace")
    }

    fn kind(&self) -> Option<Kind> {
        self.get("kind").and_then(Kind::parse)
    }

    fn includes(&self, kind: Kind) -> bool {
        self.kind().is_none_or(|only| only == kind)
    }

    /// Returns a link to this page with changed parameters.
    fn link(&self, prefix: &str, changed: &[(&str, &str)]) -> String {
        let same = ["namespace", "kind", "continue", "reload"].into_iter();
        let same = same.filter(|name| changed.iter().all(|(other, _)| other != name));
        let same = same.filter_map(|name| Some((name, self.get(name)?)));
        links::with_query(&format!("{prefix}/applications"), same.chain(changed.iter().copied()))
    }
}

pub(super) async fn list(
    Shared(site): Shared<Site>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, PageError> {
    let query = Query::parse(query.as_deref())?;
    let (frame, token) = enter(&site, &headers).await?;
    let (Some(cluster), Some(token)) = (site.cluster(), token) else {
        return page(&site, &headers, &ClosedPage::new(&site, frame));
    };
    let section = |kind| section(&site, cluster, &token, &query, kind);
    let (vela, app) = futures::join!(section(Kind::Vela), section(Kind::App));
    let sections: Vec<Section> = [vela?, app?].into_iter().flatten().collect();
    let has_none = !sections.iter().any(Section::is_shown);
    let is_refused = has_none && sections.iter().any(Section::is_refused);
    let is_progressing = sections.iter().any(Section::is_progressing);
    let is_reloading = is_progressing && query.get("reload") != Some("off");
    let list = ListPage {
        frame,
        namespace: query.namespace().unwrap_or_default().to_owned(),
        sections,
        is_part: query.kind().is_some(),
        may_list_none: is_refused && query.namespace().is_none(),
        stop: is_reloading.then(|| query.link(site.prefix(), &[("reload", "off")])),
    };
    if is_refused && query.namespace().is_some() {
        return refuse(&site, &list);
    }
    respond(&site, &headers, &list, is_reloading)
}

/// Without the headers of the request: a refusal is never what the browser has.
fn refuse(site: &Site, list: &ListPage) -> Result<Response, PageError> {
    let mut response = page(site, &HeaderMap::new(), list)?;
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().remove(header::ETAG);
    Ok(response)
}

/// Returns `None` for a kind that the page does not show.
async fn section(
    site: &Site,
    cluster: &ClusterReader,
    token: &CallerToken,
    query: &Query,
    kind: Kind,
) -> Result<Option<Section>, Problem> {
    if !query.includes(kind) {
        return Ok(None);
    }
    let content = match read(cluster, token, query, kind).await {
        Ok(list) => shown(site.prefix(), query, kind, &list),
        Err(ReadError::Refused { status, message }) => match status {
            StatusCode::UNAUTHORIZED => return Err(AccessError::Unauthenticated.into()),
            StatusCode::FORBIDDEN => Rows::Refused(message),
            StatusCode::NOT_FOUND => Rows::NotInstalled,
            _ => Rows::Failed(message),
        },
        Err(error) => Rows::Failed(error.to_string()),
    };
    Ok(Some(Section { kind, content }))
}

async fn read(
    cluster: &ClusterReader,
    token: &CallerToken,
    query: &Query,
    kind: Kind,
) -> Result<List<Listed>, ReadError> {
    let objects = kind.objects(query.namespace());
    let mut result = Err(ReadError::TooLarge);
    for limit in PAGE_SIZES {
        let next = query.get("continue").map(|next| ("continue", next));
        let path = links::with_query(&objects, [("limit", limit)].into_iter().chain(next));
        result = cluster.get(token, &path, Content::Objects).await;
        if !matches!(result, Err(ReadError::TooLarge)) {
            break;
        }
    }
    result
}

fn shown(prefix: &str, query: &Query, kind: Kind, list: &List<Listed>) -> Rows {
    let now = Timestamp::now();
    let next = |next: &str| query.link(prefix, &[("kind", kind.segment()), ("continue", next)]);
    Rows::Shown {
        rows: list
            .items
            .iter()
            .map(|item| Row::new(prefix, kind, item, now))
            .collect(),
        next: list.next().map(next),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn query(text: &str) -> Result<Query, Problem> {
        Query::parse(Some(text))
    }

    #[test]
    fn parameters_that_would_change_the_path_or_the_list_are_refused() {
        for text in [
            "namespace=..",
            "namespace=a%2Fb",
            "namespace=A",
            "kind=other",
            "continue=abc",
            "watch=true",
        ] {
            assert!(query(text).is_err(), "{text}");
        }
        let all = query("").unwrap();
        assert!(Kind::ALL.into_iter().all(|kind| all.includes(kind)));
        let vela = query("kind=vela&continue=abc").unwrap();
        assert!(vela.includes(Kind::Vela) && !vela.includes(Kind::App));
    }

    #[test]
    fn a_page_of_5000_applications_links_to_the_next_one() {
        let item = |number: usize| -> Value {
            json!({
                "metadata": { "name": format!("app-{number}"), "namespace": "team-a" },
                "status": { "status": "unhealthy", "services": [{ "name": "web", "message": "<b>\u{202e}" }] },
            })
        };
        let items: Vec<Value> = (0..5000).map(item).collect();
        let list = json!({ "metadata": { "continue": "a+b" }, "items": items });
        let list: List<Listed> = serde_json::from_value(list).unwrap();
        let query = query("namespace=team-a&reload=off").unwrap();
        let Rows::Shown { rows, next } = shown("/catalog", &query, Kind::Vela, &list) else {
            panic!("rows")
        };
        assert_eq!(rows.len(), 5000);
        assert_eq!(rows[4999].link, "/catalog/applications/team-a/vela/app-4999");
        assert_eq!((rows[0].badge.label, rows[0].cause.as_str()), ("Unhealthy", "web: <b>"));
        let expected = "/catalog/applications?namespace=team-a&reload=off&kind=vela&continue=a%2Bb";
        assert_eq!(next.as_deref(), Some(expected));
    }
}
