use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;

use super::*;
use crate::text::{is_control, is_invisible};

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const HOSTILE: &str = "chart\u{1b}[2J\u{9b}31m\u{7f}\u{202e}\u{200b}\u{2028}\n2026-01-01T00:00:00Z  INFO forged";

fn logged(format: LogFormat) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::registry().with(layer(format, false, move || writer.clone(), wanted()));
    tracing::subscriber::with_default(subscriber, || {
        let span = tracing::info_span!("sync", namespace = %HOSTILE);
        let _entered = span.enter();
        tracing::info!(name = %HOSTILE, quoted = HOSTILE, number = 7, "message {HOSTILE}");
    });
    let bytes = lines.0.lock().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn logged_control_characters_neither_control_the_terminal_nor_forge_lines() {
    for format in [LogFormat::Text, LogFormat::Json] {
        let out = logged(format);
        assert_eq!(out.matches('\n').count(), 1, "{out}");
        assert!(out.ends_with('\n'));
        assert!(
            !out.trim_end().contains(|c| is_control(c) || is_invisible(c)),
            "{out:?}"
        );
        assert!(out.contains("forged"), "{out}");
    }
}

#[test]
fn long_values_are_cut() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber =
        tracing_subscriber::registry().with(layer(LogFormat::Text, false, move || writer.clone(), wanted()));
    tracing::subscriber::with_default(subscriber, || tracing::warn!(error = %"x".repeat(1 << 20), "failed"));
    let length = lines.0.lock().len();
    assert!((1_000..2_000).contains(&length), "{length}");
}

#[test]
fn text_shows_the_message_and_then_the_fields() {
    let out = logged(LogFormat::Text);
    assert!(out.contains(" INFO "), "{out}");
    assert!(out.contains("message chart"), "{out}");
    assert!(out.contains(" number=7"), "{out}");
}

#[test]
fn json_lines_can_be_parsed() {
    let out: serde_json::Value = serde_json::from_str(&logged(LogFormat::Json)).unwrap();
    assert_eq!(out["level"], "INFO");
    assert_eq!(out["number"], 7);
}

#[test]
fn a_json_line_has_each_field_of_the_event_and_of_its_spans_once() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber =
        tracing_subscriber::registry().with(layer(LogFormat::Json, false, move || writer.clone(), wanted()));
    tracing::subscriber::with_default(subscriber, || {
        let _reconcile = tracing::error_span!(
            "reconcile",
            controller = "apprepository",
            namespace = "team",
            name = "stable",
            priority = 2
        )
        .entered();
        let _sync = tracing::info_span!("sync", name = "other", part = "index").entered();
        tracing::warn!(error = %HOSTILE, name = "stable", ready = false, "failed");
    });
    let out = String::from_utf8(lines.0.lock().clone()).unwrap();
    for field in [
        "controller",
        "namespace",
        "name",
        "priority",
        "part",
        "error",
        "message",
        "timestamp",
    ] {
        assert_eq!(out.matches(&format!("\"{field}\":")).count(), 1, "{field}: {out}");
    }
    let line: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (
            &line["controller"],
            &line["namespace"],
            &line["name"],
            &line["part"],
            &line["ready"]
        ),
        (
            &"apprepository".into(),
            &"team".into(),
            &"stable".into(),
            &"index".into(),
            &false.into()
        )
    );
    assert_eq!(
        (&line["level"], &line["target"]),
        (&"WARN".into(), &module_path!().into())
    );
    assert_eq!(line["priority"], 2);
    assert!(line.get("span").is_none() && line.get("spans").is_none(), "{out}");
}

#[tokio::test]
async fn a_response_that_cannot_be_decoded_is_not_logged_at_any_level() {
    use k8s_openapi::api::core::v1::Secret;
    use kube::client::Body;

    for format in [LogFormat::Text, LogFormat::Json] {
        let lines = Lines::default();
        let writer = lines.clone();
        let filter = EnvFilter::try_new("trace").unwrap();
        let layer = layer(format, false, move || writer.clone(), wanted());
        let _logging = tracing_subscriber::registry().with(filter).with(layer).set_default();
        let server = tower::service_fn(|_: axum::http::Request<Body>| async {
            let list =
                r#"{"metadata": {}, "items": [{"metadata": {"annotations": {"a": "confidential"}, "labels": 7}}]}"#;
            Ok::<_, std::convert::Infallible>(axum::http::Response::new(Body::from(list.as_bytes().to_vec())))
        });
        let secrets: kube::Api<Secret> = kube::Api::all(kube::Client::new(server, "default"));
        let error = secrets.list(&kube::api::ListParams::default()).await.unwrap_err();
        tracing::warn!(%error, "logged");
        let out = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert!(out.contains("logged") && !out.contains("confidential"), "{out}");
    }
}

#[tokio::test]
async fn a_watch_that_is_not_allowed_is_not_logged_at_each_attempt() {
    use futures::StreamExt;
    use k8s_openapi::api::core::v1::Secret;
    use kube::client::Body;

    let lines = Lines::default();
    let writer = lines.clone();
    let layer = layer(LogFormat::Text, false, move || writer.clone(), wanted());
    let filter = EnvFilter::try_new("info").unwrap();
    let _logging = tracing_subscriber::registry().with(filter).with(layer).set_default();
    let server = tower::service_fn(|_: axum::http::Request<Body>| async {
        let status = r#"{"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403}"#;
        let mut response = axum::http::Response::new(Body::from(status.as_bytes().to_vec()));
        *response.status_mut() = axum::http::StatusCode::FORBIDDEN;
        Ok::<_, std::convert::Infallible>(response)
    });
    let secrets: kube::Api<Secret> = kube::Api::all(kube::Client::new(server, "default"));
    let watch = kube::runtime::watcher(secrets, kube::runtime::watcher::Config::default());
    let mut watch = std::pin::pin!(watch);
    let mut refused = 0;
    while refused < 2 {
        refused += usize::from(watch.next().await.unwrap().is_err());
    }
    assert_eq!(String::from_utf8(lines.0.lock().clone()).unwrap(), "");
}

#[test]
fn spans_of_traces_are_not_logged() {
    let lines = Lines::default();
    let writer = lines.clone();
    let layer = layer(LogFormat::Text, false, move || writer.clone(), wanted());
    let filter = EnvFilter::try_new("debug").unwrap();
    let subscriber = tracing_subscriber::registry().with(filter).with(layer);
    tracing::subscriber::with_default(subscriber, || {
        let _reconcile = tracing::error_span!("reconcile", name = "stable").entered();
        let _fetch = trace::trace_span!("fetch").entered();
        tracing::debug!("logged");
    });
    let out = String::from_utf8(lines.0.lock().clone()).unwrap();
    assert!(
        out.contains(r#"reconcile{name="stable"}: portolan"#) && out.contains("logged"),
        "{out}"
    );
    assert!(!out.contains("fetch"), "{out}");
}

#[cfg(feature = "otel")]
#[test]
fn no_line_is_lost_or_added_beside_traces() {
    use crate::cmd::flags::traces::TraceOptions;

    crate::http::install_crypto_provider();
    for ratio in [0.0, 0.5, 1.0] {
        let endpoint = url::Url::parse("http://127.0.0.1:9/v1/traces").unwrap();
        let (spans, _traces) = traces::layer(&TraceOptions { endpoint, ratio }).unwrap();
        let lines = Lines::default();
        let writer = lines.clone();
        let (filter, handle) = reload::Layer::new(EnvFilter::try_new("warn").unwrap());
        let layer = layer(LogFormat::Text, false, move || writer.clone(), wanted().and(filter));
        let subscriber = tracing_subscriber::registry().with(layer).with(spans);
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..100 {
                if number == 50 {
                    LogFilter::replace(&handle, "info").unwrap();
                }
                let _reconcile = tracing::error_span!("reconcile", number).entered();
                tracing::debug!("hidden");
                let _sync = trace::trace_span!("sync").entered();
                tracing::info!("from 50 on");
                let _other = tracing::debug_span!("hidden").entered();
                // Asks the filters about a span that is not created.
                let _ = tracing::enabled!(target: trace::TARGET, tracing::Level::DEBUG);
                let _ = tracing::enabled!(tracing::Level::TRACE);
                tracing::warn!("always");
            }
        });
        let out = String::from_utf8(lines.0.lock().clone()).unwrap();
        assert_eq!(out.matches("always").count(), 100, "{out}");
        assert_eq!(out.matches("from 50 on").count(), 50, "{out}");
        assert_eq!(out.matches("reconcile{number=99}").count(), 2, "{out}");
        assert!(!out.contains("hidden") && !out.contains("sync"), "{out}");
    }
}
