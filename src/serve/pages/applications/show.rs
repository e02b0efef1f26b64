//! The page of an Application: its components, workflow, objects, conditions, revisions and events.

use askama::Template;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State as Shared};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use jiff::Timestamp;

use super::components::{of_app, of_steps, of_vela, phase, place_of};
use super::objects::{Application, Event, List, Partial};
use super::state::State;
use super::tree::Tree;
use super::{ClosedPage, Kind, enter, respond};
use crate::api::oam::labels::APP_NAME;
use crate::api::oam::{AppliedResource, Condition, WorkflowStatus};
use crate::api::{NamespacedName, is_object_name};
use crate::serve::access::CallerToken;
use crate::serve::api::parameters::Parameters;
use crate::serve::cluster::{ClusterReader, Content, ReadError};
use crate::serve::pages::shown::{Badge, When, count};
use crate::serve::pages::{Frame, PageError, links, page};
use crate::serve::problem::Problem;
use crate::serve::site::Site;
use crate::text::{printable, sanitize};

/// Events and revisions of a request to the API server.
const PAGE_SIZE: &str = "250";
const MAX_EVENTS: usize = 50;
const MAX_REVISIONS: usize = 50;
const MAX_OBJECTS: usize = 1000;
const MAX_CONDITIONS: usize = 100;

#[derive(Template)]
#[template(path = "applications/show.html", config = "src/serve/pages/askama.toml")]
struct ShowPage {
    frame: Frame,
    name: String,
    namespace: String,
    list: String,
    kind: Kind,
    badge: Badge,
    cause: String,
    facts: Vec<(&'static str, String)>,
    created: Option<When>,
    components: Tree,
    workflow: Option<Workflow>,
    objects: Vec<Object>,
    objects_left_out: Option<String>,
    conditions: Vec<ConditionRow>,
    /// `None` for app.k8s.io, which has none.
    revisions: Option<Part<Revision>>,
    events: Part<EventRow>,
    /// Stops the reloads; `None` if there are none.
    stop: Option<String>,
}

/// Rows that the caller may read, or the words of the API server.
enum Part<T> {
    Shown(Vec<T>),
    Failed(String),
}

impl<T> Part<T> {
    fn of<O>(read: Result<List<O>, ReadError>, rows: impl FnOnce(Vec<O>) -> Vec<T>) -> Self {
        match read {
            Ok(list) => Self::Shown(rows(list.items)),
            Err(error) => Self::Failed(error.to_string()),
        }
    }
}

struct Workflow {
    badge: Badge,
    message: String,
    steps: Tree,
}

impl Workflow {
    fn new(status: &WorkflowStatus) -> Self {
        Self {
            badge: if status.suspend {
                phase("suspending")
            } else {
                phase(&status.phase)
            },
            message: sanitize(&status.message),
            steps: of_steps(&status.steps),
        }
    }
}

/// An object that an Application of KubeVela manages.
struct Object {
    kind: String,
    api_version: String,
    name: String,
    place: String,
    link: Option<String>,
}

impl Object {
    fn new(prefix: &str, applied: &AppliedResource) -> Self {
        let group = applied.api_version.split_once('/').map_or("", |(group, _)| group);
        let is_here = applied.cluster.is_empty() || applied.cluster == "local";
        let application = Kind::of(group, &applied.kind).filter(|_| is_here);
        Self {
            link: application.map(|kind| kind.page(prefix, &applied.namespace, &applied.name)),
            kind: sanitize(&applied.kind),
            api_version: sanitize(&applied.api_version),
            name: sanitize(&applied.name),
            place: place_of(&applied.namespace, &applied.cluster),
        }
    }
}

struct ConditionRow {
    name: String,
    status: String,
    cause: String,
    since: Option<When>,
}

impl ConditionRow {
    fn new(condition: &Condition, now: Timestamp) -> Self {
        let cause = match (condition.reason.as_str(), condition.message.as_str()) {
            (reason, "") => reason.to_owned(),
            ("", message) => message.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        let since = condition.last_transition_time.as_ref();
        Self {
            name: sanitize(&condition.type_),
            status: sanitize(&condition.status),
            cause: sanitize(&cause),
            since: since.map(|time| When::new(time.0, now)),
        }
    }
}

struct Revision {
    name: String,
    created: Option<When>,
    is_latest: bool,
}

struct EventRow {
    is_warning: bool,
    reason: String,
    message: String,
    seen: Option<When>,
}

pub(super) async fn show(
    Shared(site): Shared<Site>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
    names: Result<Path<(String, String, String)>, PathRejection>,
) -> Result<Response, PageError> {
    let Path((namespace, kind, name)) = names.map_err(|_| Problem::unknown_path())?;
    let kind = Kind::parse(&kind).ok_or_else(Problem::unknown_path)?;
    let name = NamespacedName::new(namespace, name);
    let query = Parameters::only(query.as_deref(), &["reload"])?;
    let (frame, token) = enter(&site, &headers).await?;
    let (Some(cluster), Some(token)) = (site.cluster(), token) else {
        return page(&site, &headers, &ClosedPage::new(&site, frame));
    };
    // They become parts of a path.
    if !is_object_name(&name.namespace) || !is_object_name(&name.name) {
        return Err(missing(kind, &name).into());
    }
    let (application, revisions, events) = futures::join!(
        read(cluster, &token, kind, &name),
        revisions(cluster, &token, kind, &name),
        events(cluster, &token, kind, &name),
    );
    let application = application?;
    let now = Timestamp::now();
    let state = State::new(kind, &application.metadata, &application.status.health, now);
    let is_reloading = state.is_progressing && query.get("reload") != Some("off");
    let latest = application.status.latest_revision.as_ref();
    let latest = latest.map_or("", |revision| revision.name.as_str());
    let stop = links::with_query(
        &kind.page(site.prefix(), &name.namespace, &name.name),
        [("reload", "off")],
    );
    let shown = ShowPage {
        revisions: revisions.map(|read| Part::of(read, |items| revision_rows(items, latest, now))),
        events: Part::of(events, |items| event_rows(items, now)),
        stop: is_reloading.then_some(stop),
        ..ShowPage::new(site.prefix(), frame, kind, &name, &application, state, now)
    };
    respond(&site, &headers, &shown, is_reloading)
}

fn missing(kind: Kind, name: &NamespacedName) -> Problem {
    let title = kind.title();
    Problem::not_found(format!("there is no Application {name} of {title}"))
}

async fn read(
    cluster: &ClusterReader,
    token: &CallerToken,
    kind: Kind,
    name: &NamespacedName,
) -> Result<Application, Problem> {
    let path = format!("{}/{}", kind.objects(Some(&name.namespace)), name.name);
    let read = cluster.get(token, &path, Content::Objects).await;
    read.map_err(|error| match error {
        ReadError::Refused { status, .. } if status == StatusCode::NOT_FOUND => missing(kind, name),
        error => error.into(),
    })
}

async fn revisions(
    cluster: &ClusterReader,
    token: &CallerToken,
    kind: Kind,
    name: &NamespacedName,
) -> Option<Result<List<Partial>, ReadError>> {
    if kind == Kind::App {
        return None;
    }
    let path = format!(
        "/apis/{}/v1beta1/namespaces/{}/applicationrevisions",
        kind.group(),
        name.namespace
    );
    let selector = format!("{APP_NAME}={}", name.name);
    let path = links::with_query(&path, [("labelSelector", selector.as_str()), ("limit", PAGE_SIZE)]);
    Some(cluster.get(token, &path, Content::Metadata).await)
}

async fn events(
    cluster: &ClusterReader,
    token: &CallerToken,
    kind: Kind,
    name: &NamespacedName,
) -> Result<List<Event>, ReadError> {
    let path = format!("/api/v1/namespaces/{}/events", name.namespace);
    let selector = format!(
        "involvedObject.kind=Application,involvedObject.apiVersion={}/v1beta1,involvedObject.name={}",
        kind.group(),
        name.name
    );
    let path = links::with_query(&path, [("fieldSelector", selector.as_str()), ("limit", PAGE_SIZE)]);
    cluster.get(token, &path, Content::Objects).await
}

/// Returns the newest first.
fn revision_rows(mut items: Vec<Partial>, latest: &str, now: Timestamp) -> Vec<Revision> {
    items.sort_by_key(|item| std::cmp::Reverse(item.metadata.creation_timestamp));
    let rows = items.iter().take(MAX_REVISIONS).map(|Partial { metadata }| Revision {
        name: sanitize(&metadata.name),
        created: metadata.creation_timestamp.map(|time| When::new(time, now)),
        is_latest: metadata.name == latest,
    });
    rows.collect()
}

/// Returns the latest first.
fn event_rows(mut items: Vec<Event>, now: Timestamp) -> Vec<EventRow> {
    items.sort_by_key(|event| std::cmp::Reverse(event.last_seen()));
    let rows = items.iter().take(MAX_EVENTS).map(|event| EventRow {
        is_warning: event.type_ == "Warning",
        reason: sanitize(&event.reason),
        message: sanitize(&event.message),
        seen: event.last_seen().map(|time| When::new(time, now)),
    });
    rows.collect()
}

impl ShowPage {
    fn new(
        prefix: &str,
        frame: Frame,
        kind: Kind,
        name: &NamespacedName,
        application: &Application,
        state: State,
        now: Timestamp,
    ) -> Self {
        let status = &application.status;
        let components = match kind {
            Kind::Vela => of_vela(&application.spec.components, &status.health.services),
            Kind::App => of_app(prefix, &name.namespace, &status.components),
        };
        let applied = &status.applied_resources;
        let left_out = applied.len().saturating_sub(MAX_OBJECTS);
        let conditions = status.health.conditions.iter().take(MAX_CONDITIONS);
        let list = format!("{prefix}/applications");
        Self {
            frame,
            name: printable(&name.name),
            list: links::with_query(&list, [("namespace", name.namespace.as_str())]),
            namespace: printable(&name.namespace),
            kind,
            badge: state.badge,
            cause: state.cause,
            facts: facts(application),
            created: application.metadata.creation_timestamp.map(|time| When::new(time, now)),
            components,
            workflow: status.workflow.as_ref().map(Workflow::new),
            objects: applied
                .iter()
                .take(MAX_OBJECTS)
                .map(|applied| Object::new(prefix, applied))
                .collect(),
            objects_left_out: (left_out > 0).then(|| count(left_out, "object")),
            conditions: conditions.map(|condition| ConditionRow::new(condition, now)).collect(),
            revisions: None,
            events: Part::Shown(Vec::new()),
            stop: None,
        }
    }
}

fn facts(application: &Application) -> Vec<(&'static str, String)> {
    let (status, descriptor) = (&application.status, &application.spec.descriptor);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let revision = status.latest_revision.as_ref();
    let facts = [
        ("Phase", status.health.phase.clone()),
        (
            "Revision",
            revision.map_or_else(String::new, |revision| revision.name.clone()),
        ),
        ("Ready components", status.components_ready.clone()),
        ("Type", text(&descriptor.type_)),
        ("Version", text(&descriptor.version)),
        ("Description", text(&descriptor.description)),
    ];
    let facts = facts.into_iter().filter(|(_, text)| !text.is_empty());
    facts.map(|(name, text)| (name, sanitize(&text))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn list<T: serde::de::DeserializeOwned>(items: Value) -> Vec<T> {
        serde_json::from_value(items).unwrap()
    }

    #[test]
    fn the_newest_revisions_and_events_come_first() {
        let time = |day: usize| format!("2026-01-{day:02}T00:00:00Z");
        let revisions = json!([
            { "metadata": { "name": "web-v1", "creationTimestamp": time(1) } },
            { "metadata": { "name": "web-v2", "creationTimestamp": time(2) } },
        ]);
        let rows = revision_rows(list(revisions), "web-v2", now());
        let rows: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.is_latest)).collect();
        assert_eq!(rows, [("web-v2", true), ("web-v1", false)]);

        let event = |day: usize| json!({ "type": "Warning", "reason": day.to_string(), "lastTimestamp": time(day) });
        let events: Vec<Value> = (1..=28).chain(1..=28).map(event).collect();
        let rows = event_rows(list(Value::Array(events)), now());
        assert_eq!(rows.len(), MAX_EVENTS);
        assert!(rows[0].is_warning && rows[0].reason == "28");
    }

    #[test]
    fn an_application_that_another_one_applies_has_a_link() {
        let applied = |cluster: &str, api_version: &str| {
            let applied = json!({ "cluster": cluster, "apiVersion": api_version, "kind": "Application",
                "namespace": "team-a", "name": "shop" });
            Object::new("", &serde_json::from_value(applied).unwrap()).link
        };
        let link = applied("", "core.oam.dev/v1beta1");
        assert_eq!(link.as_deref(), Some("/applications/team-a/vela/shop"));
        assert_eq!(applied("east", "core.oam.dev/v1beta1"), None);
        assert_eq!(applied("", "argoproj.io/v1alpha1"), None);
    }
}
