//! The messages of an event, and their bodies in each format.
//!
//! `cloudevents` is CloudEvents 1.0 in the structured mode of JSON. `slack` has a `text`, which Mattermost, Rocket.Chat and
//! others accept too. `flux` is the event that Flux's controllers send.

use reqwest::header::HeaderValue;
use serde::Serialize;
use serde_json::{Value, json};
use url::form_urlencoded::byte_serialize;

use super::sink::{Format, Sink};
use crate::catalog::news::{ChartNews, Event, EventKind, NewsRow, VersionChange};
use crate::controllers::FIELD_MANAGER;
use crate::text::sanitize;

pub struct Message<'a> {
    /// Place in the event, with or without other messages: it is the same for each delivery.
    pub index: usize,
    content: Content<'a>,
}

enum Content<'a> {
    Version(&'a ChartNews),
    Summary(Vec<&'a ChartNews>),
    Health,
}

pub struct Body {
    pub content_type: HeaderValue,
    pub bytes: Vec<u8>,
}

/// Returns a message for each change that the sink wants, or a summary if there are too many to list.
#[must_use]
pub fn messages<'a>(event: &'a Event, sink: &Sink) -> Vec<Message<'a>> {
    let one = |content| vec![Message { index: 0, content }];
    let changes = event.charts.iter().enumerate();
    let wanted = changes.filter(|(_, change)| sink.wants(&change.chart));
    match event.kind {
        EventKind::Failed | EventKind::Recovered => one(Content::Health),
        EventKind::Versions if event.more == 0 => {
            let message = |(index, change)| Message {
                index,
                content: Content::Version(change),
            };
            wanted.map(message).collect()
        }
        // The sink may want changes that are not listed.
        EventKind::Versions | EventKind::FirstSync => one(Content::Summary(wanted.map(|(_, change)| change).collect())),
    }
}

/// The names are those of the specification.
#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    time: String,
    datacontenttype: &'static str,
    data: Data<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    namespace: &'a str,
    repository: &'a str,
    #[serde(flatten)]
    change: Option<&'a ChartNews>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    changes: &'a [&'a ChartNews],
    /// Changes that are not listed.
    #[serde(skip_serializing_if = "is_zero")]
    more: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Message<'_> {
    /// `origin` is the ID of this cluster.
    #[must_use]
    pub fn body(&self, row: &NewsRow, format: Format, origin: &str) -> Body {
        let (content_type, body) = match format {
            Format::CloudEvents => (
                "application/cloudevents+json; charset=utf-8",
                self.cloud_event(row, origin),
            ),
            Format::Slack => ("application/json", json!({ "text": escaped(&self.text(&row.event)) })),
            Format::Flux => ("application/json", self.flux_event(row)),
        };
        Body {
            content_type: HeaderValue::from_static(content_type),
            bytes: body.to_string().into_bytes(),
        }
    }

    fn id(&self, row: &NewsRow) -> String {
        format!("{}-{}", row.id, self.index)
    }

    /// Returns the change that this message is about; `None` if there are several or none.
    fn change(&self) -> Option<&ChartNews> {
        match self.content {
            Content::Version(change) => Some(change),
            Content::Summary(_) | Content::Health => None,
        }
    }

    fn cloud_event(&self, row: &NewsRow, origin: &str) -> Value {
        let event = &row.event;
        let change = self.change();
        let changes: &[&ChartNews] = match &self.content {
            Content::Summary(changes) => changes,
            Content::Version(_) | Content::Health => &[],
        };
        let origin: String = byte_serialize(origin.as_bytes()).collect();
        json!(CloudEvent {
            specversion: "1.0",
            id: self.id(row),
            source: format!("/portolan/{origin}/{}/{}", event.namespace, event.repository),
            kind: match (event.kind, change.map(|change| change.change)) {
                (EventKind::Failed, _) => "dev.portolan.repository.failed",
                (EventKind::Recovered, _) => "dev.portolan.repository.recovered",
                (_, Some(VersionChange::Added)) => "dev.portolan.chart.version.added",
                (_, Some(VersionChange::Removed)) => "dev.portolan.chart.version.removed",
                (_, None) => "dev.portolan.repository.synced",
            },
            subject: change.map(|change| change.chart.as_str()),
            time: row.created.to_string(),
            datacontenttype: "application/json",
            data: Data {
                namespace: &event.namespace,
                repository: &event.repository,
                change,
                changes,
                more: event.more,
                message: event.message.as_deref(),
            },
        })
    }

    fn flux_event(&self, row: &NewsRow) -> Value {
        let event = &row.event;
        let change = self.change();
        let id = self.id(row);
        let metadata = match change {
            Some(change) => json!({ "id": id, "chart": change.chart, "revision": change.version }),
            None => json!({ "id": id }),
        };
        json!({
            "involvedObject": {
                "apiVersion": "kubeapps.com/v1alpha1",
                "kind": "AppRepository",
                "namespace": event.namespace,
                "name": event.repository,
            },
            "severity": if event.kind == EventKind::Failed { "error" } else { "info" },
            "timestamp": row.created.to_string(),
            "message": self.text(event),
            "reason": match (event.kind, change.map(|change| change.change)) {
                (EventKind::Failed, _) => "RepositoryFailed",
                (EventKind::Recovered, _) => "RepositoryRecovered",
                (_, Some(VersionChange::Added)) => "ChartVersionAdded",
                (_, Some(VersionChange::Removed)) => "ChartVersionRemoved",
                (_, None) => "RepositorySynced",
            },
            "metadata": metadata,
            "reportingController": FIELD_MANAGER,
        })
    }

    /// Returns a sentence for people. Names come from indexes, so they may contain anything.
    fn text(&self, event: &Event) -> String {
        let repository = format!("{}/{}", event.namespace, event.repository);
        let message = event.message.as_deref().unwrap_or_default();
        sanitize(&match (&self.content, event.kind) {
            (Content::Version(change), _) => format!("{} {} {repository}", version(change), verb(change.change)),
            (Content::Summary(changes), kind) => summary(event, kind, changes, &repository),
            (Content::Health, EventKind::Recovered) => format!("{repository} is synced again"),
            (Content::Health, _) => format!("{repository} can't be synced: {message}"),
        })
    }
}

fn summary(event: &Event, kind: EventKind, changes: &[&ChartNews], repository: &str) -> String {
    let total = event.more.saturating_add(event.charts.len() as u64);
    let mut text = if kind == EventKind::FirstSync {
        format!("{repository} was synced for the first time, with {total} versions")
    } else {
        format!("{total} versions changed in {repository}")
    };
    for (at, change) in changes.iter().enumerate() {
        text.push_str(if at == 0 { ", among them " } else { ", " });
        text.push_str(&version(change));
        if change.change == VersionChange::Removed {
            text.push_str(" (removed)");
        }
    }
    text
}

fn version(change: &ChartNews) -> String {
    match &change.app_version {
        Some(app_version) => format!("{} {} (app {app_version})", change.chart, change.version),
        None => format!("{} {}", change.chart, change.version),
    }
}

const fn verb(change: VersionChange) -> &'static str {
    match change {
        VersionChange::Added => "is new in",
        VersionChange::Removed => "was removed from",
    }
}

/// Escapes the characters that start links, mentions and entities in Slack.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
