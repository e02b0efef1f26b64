use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use super::sink::{Format, SinkError};
use super::*;
use crate::catalog::news::{ChartNews, EventKind, VersionChange};
use crate::runtime::manifests::SecretContent;

const ORIGIN: &str = "eu-1/0b7c";

fn secret(values: &[(&str, &str)]) -> SecretContent {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), value.as_bytes().to_vec());
    SecretContent {
        version: String::new(),
        data: values.iter().map(pair).collect::<BTreeMap<_, _>>(),
    }
}

fn sink(more: &[(&str, &str)]) -> Sink {
    let values = [[("url", "https://example.com/hook"), ("token", "key")].as_slice(), more].concat();
    Sink::parse(&secret(&values)).unwrap()
}

fn error(values: &[(&str, &str)]) -> SinkError {
    Sink::parse(&secret(values)).err().unwrap()
}

fn change(chart: &str, version: &str, change: VersionChange) -> ChartNews {
    ChartNews {
        chart: chart.to_owned(),
        version: version.to_owned(),
        app_version: (change == VersionChange::Added).then(|| "1.27".to_owned()),
        digest: None,
        change,
    }
}

fn row(kind: EventKind, charts: Vec<ChartNews>, more: u64, message: Option<&str>) -> NewsRow {
    let created: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
    NewsRow {
        id: "abc".to_owned(),
        namespace: "team-a".to_owned(),
        name: "stable".to_owned(),
        sink: "team-a/hook".to_owned(),
        event: crate::catalog::news::Event {
            kind,
            namespace: "team-a".to_owned(),
            repository: "stable".to_owned(),
            charts,
            more,
            message: message.map(str::to_owned),
        },
        created,
        tries: 0,
        next_try: created,
    }
}

fn two_changes() -> NewsRow {
    let charts = vec![
        change("nginx", "1.2.3", VersionChange::Added),
        change("redis", "0.1.0", VersionChange::Removed),
    ];
    row(EventKind::Versions, charts, 0, None)
}

/// Returns the bodies of a row in a format.
fn bodies(row: &NewsRow, sink: &Sink, format: Format) -> Vec<Value> {
    let bodies = messages(&row.event, sink)
        .into_iter()
        .map(|message| message.body(row, format, ORIGIN).bytes);
    bodies.map(|bytes| serde_json::from_slice(&bytes).unwrap()).collect()
}

#[test]
fn a_change_is_a_cloud_event() {
    let row = two_changes();
    let message = messages(&row.event, &sink(&[]))
        .remove(0)
        .body(&row, Format::CloudEvents, ORIGIN);
    assert_eq!(message.content_type, "application/cloudevents+json; charset=utf-8");
    assert_eq!(
        bodies(&row, &sink(&[]), Format::CloudEvents),
        [
            json!({
                "specversion": "1.0",
                "id": "abc-0",
                "source": "/portolan/eu-1%2F0b7c/team-a/stable",
                "type": "dev.portolan.chart.version.added",
                "subject": "nginx",
                "time": "2026-01-02T03:04:05Z",
                "datacontenttype": "application/json",
                "data": {
                    "namespace": "team-a", "repository": "stable",
                    "chart": "nginx", "version": "1.2.3", "appVersion": "1.27", "change": "added",
                },
            }),
            json!({
                "specversion": "1.0",
                "id": "abc-1",
                "source": "/portolan/eu-1%2F0b7c/team-a/stable",
                "type": "dev.portolan.chart.version.removed",
                "subject": "redis",
                "time": "2026-01-02T03:04:05Z",
                "datacontenttype": "application/json",
                "data": {
                    "namespace": "team-a", "repository": "stable",
                    "chart": "redis", "version": "0.1.0", "change": "removed",
                },
            }),
        ]
    );
}

#[test]
fn a_change_is_an_event_of_flux() {
    let event = &bodies(&two_changes(), &sink(&[]), Format::Flux)[1];
    let expected = json!({
        "involvedObject": {
            "apiVersion": "kubeapps.com/v1alpha1", "kind": "AppRepository", "namespace": "team-a", "name": "stable",
        },
        "severity": "info",
        "timestamp": "2026-01-02T03:04:05Z",
        "message": "redis 0.1.0 was removed from team-a/stable",
        "reason": "ChartVersionRemoved",
        "metadata": { "id": "abc-1", "chart": "redis", "revision": "0.1.0" },
        "reportingController": "portolan",
    });
    assert_eq!(*event, expected);
    let failed = row(EventKind::Failed, Vec::new(), 0, Some("NotFound: no index"));
    let event = &bodies(&failed, &sink(&[]), Format::Flux)[0];
    assert_eq!(event["severity"], "error");
    assert_eq!(event["reason"], "RepositoryFailed");
    assert_eq!(event["message"], "team-a/stable can't be synced: NotFound: no index");
}

#[test]
fn a_text_for_slack_can_neither_mention_nor_link() {
    let hostile = row(
        EventKind::Versions,
        vec![change("<!channel>&\n", "1.0.0", VersionChange::Added)],
        0,
        None,
    );
    let expected = json!({ "text": "&lt;!channel&gt;&amp;  1.0.0 (app 1.27) is new in team-a/stable" });
    assert_eq!(bodies(&hostile, &sink(&[]), Format::Slack), [expected]);
    let recovered = row(EventKind::Recovered, Vec::new(), 0, None);
    let expected = json!({ "text": "team-a/stable is synced again" });
    assert_eq!(bodies(&recovered, &sink(&[]), Format::Slack), [expected]);
}

#[test]
fn more_changes_than_are_listed_make_a_summary() {
    let flood = row(EventKind::Versions, two_changes().event.charts, 998, None);
    let all = bodies(&flood, &sink(&[]), Format::CloudEvents);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0]["type"], "dev.portolan.repository.synced");
    assert_eq!(all[0]["id"], "abc-0");
    assert_eq!(all[0]["data"]["changes"].as_array().unwrap().len(), 2);
    assert_eq!(all[0]["data"]["more"], 998);
    let text = &bodies(&flood, &sink(&[]), Format::Slack)[0]["text"];
    let expected = "1000 versions changed in team-a/stable, among them nginx 1.2.3 (app 1.27), redis 0.1.0 (removed)";
    assert_eq!(text, expected);
    let first = row(EventKind::FirstSync, Vec::new(), 40, None);
    let text = &bodies(&first, &sink(&[]), Format::Slack)[0]["text"];
    assert_eq!(text, "team-a/stable was synced for the first time, with 40 versions");
}

#[test]
fn a_sink_gets_the_charts_it_names_with_their_places() {
    let both = two_changes();
    let of = |charts: &str| {
        let bodies = bodies(&both, &sink(&[("charts", charts)]), Format::CloudEvents);
        let ids: Vec<String> = bodies
            .iter()
            .map(|body| body["id"].as_str().unwrap().to_owned())
            .collect();
        ids
    };
    assert_eq!(of(" redis \n\nmysql-*"), ["abc-1"]);
    assert_eq!(of("*"), ["abc-0", "abc-1"]);
    assert!(of("postgres").is_empty());
    let failed = row(EventKind::Failed, Vec::new(), 0, Some("x"));
    let only_postgres = sink(&[("charts", "postgres")]);
    assert_eq!(messages(&failed.event, &only_postgres).len(), 1);
}

#[test]
fn the_secret_of_a_sink_has_defaults() {
    let parsed = Sink::parse(&secret(&[
        ("url", " https://example.com:8443/a?b\n"),
        ("token", "key\n"),
    ]))
    .ok()
    .unwrap();
    assert_eq!(parsed.format, Format::CloudEvents);
    assert_eq!(parsed.host(), "example.com:8443");
    // Flux takes all bytes of its Secret.
    assert_eq!(parsed.key.as_deref(), Some(b"key\n".as_slice()));
    let slack = Sink::parse(&secret(&[("url", "https://example.com"), ("format", "slack")])).unwrap();
    assert!(slack.format == Format::Slack && slack.key.is_none());
}

#[rstest]
#[case(&[], SinkError::InvalidUrl)]
#[case(&[("url", "")], SinkError::InvalidUrl)]
#[case(&[("url", "file:///etc/passwd"), ("token", "key")], SinkError::InvalidUrl)]
#[case(&[("url", "https://example.com")], SinkError::NoToken)]
#[case(&[("url", "https://example.com"), ("format", "flux"), ("token", "")], SinkError::NoToken)]
#[case(&[("url", "https://example.com"), ("format", "teams"), ("token", "key")], SinkError::UnknownFormat)]
fn an_invalid_secret_is_refused_by_name(#[case] values: &[(&str, &str)], #[case] expected: SinkError) {
    assert_eq!(error(values), expected);
}

#[test]
fn the_size_of_a_secret_is_limited() {
    let long = format!("https://example.com/{}", "x".repeat(2048));
    assert_eq!(error(&[("url", &long), ("token", "key")]), SinkError::InvalidUrl);
    for charts in ["a\n".repeat(1001), "x".repeat(254)] {
        let values = [
            ("url", "https://example.com"),
            ("token", "key"),
            ("charts", charts.as_str()),
        ];
        assert_eq!(error(&values), SinkError::InvalidCharts);
    }
}

fn failure(kind: FailureKind, reason: &'static str) -> Failure {
    Failure {
        kind,
        reason,
        message: String::new(),
        retry_after: None,
    }
}

#[test]
fn a_failure_is_reported_once_until_a_message_is_accepted() {
    let (timeout, refused) = (
        failure(FailureKind::Transient, "Timeout"),
        failure(FailureKind::Transient, "ConnectFailed"),
    );
    let mut state = SinkState::default();
    state.begin(&two_changes());
    assert!(state.failed(&timeout));
    assert!(!state.failed(&timeout));
    assert!(state.failed(&refused));
    assert_eq!(state.failures, 3);
    state.accepted(0);
    assert_eq!((state.failures, state.next_message), (0, 1));
    assert!(state.failed(&refused));
}

#[test]
fn a_retry_continues_after_the_accepted_messages_of_its_row_only() {
    let mut state = SinkState::default();
    let first = two_changes();
    state.begin(&first);
    state.accepted(0);
    state.failed(&failure(FailureKind::Rejected, "Rejected"));
    state.end(&RowEnd::Postponed(Duration::ZERO));
    state.begin(&first);
    assert_eq!((state.next_message, state.rejections), (1, 1));
    let second = NewsRow {
        id: "def".to_owned(),
        ..first
    };
    state.begin(&second);
    assert_eq!((state.next_message, state.rejections, state.failures), (0, 0, 1));
    state.accepted(1);
    state.end(&RowEnd::Delivered);
    assert_eq!(state, SinkState::default());
}

#[tokio::test]
async fn a_namespace_and_a_sink_have_few_rows_in_progress() {
    let mut deliveries = Deliveries::default();
    let of_sink = |sink: &str| NewsRow {
        sink: sink.to_owned(),
        ..two_changes()
    };
    for number in 0..10 {
        deliveries.start(of_sink(&format!("team-a/{number}")), |_, _| std::future::pending());
    }
    deliveries.start(of_sink("team-b/hook"), |_, state| std::future::ready(state));
    let mut sinks = deliveries.sinks();
    sinks.sort();
    assert_eq!(sinks, ["team-a/0", "team-a/1", "team-a/2", "team-a/3", "team-b/hook"]);
    deliveries.next_end().await;
    assert_eq!(deliveries.sinks().len(), 4);
}
