//! Logs to the standard error output, as text or JSON.
//!
//! Logged names, URLs and responses are untrusted. Here they lose characters that control a terminal, forge log lines or hide text.

mod file;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt,
    io::{self, IsTerminal, Write},
    panic::PanicHookInfo,
    path::PathBuf,
};

use tracing::{Subscriber, field::Field};
use tracing_subscriber::{
    EnvFilter, Layer,
    field::MakeExt,
    filter::filter_fn,
    fmt::{
        FormatFields, MakeWriter,
        format::{Writer, debug_fn},
        writer::MakeWriterExt,
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use super::flags::{LogFlags, LogFormat, non_empty};
use super::output::progress;
use super::{Error, failed_to};
use crate::text::{is_control, is_invisible, printable, sanitize};
use file::LogFile;

/// The default filter. At info, the scheduler logs every job, sqlx every existing table and notify every removed watch.
const DEFAULT_FILTER: &str = "info,tokio_cron_scheduler=warn,sqlx=warn,notify=warn";

/// The target of kube's warnings that contain a complete response, such as annotations of Secrets. The caller gets the error.
const BODIES: &str = "kube_client::client";

/// The target of kube's warnings about missing permissions, which repeat at each attempt. The watch reports them itself.
const WATCHER: &str = "kube_runtime::watcher";

/// A file in addition to the standard error output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    pub path: PathBuf,
    /// In bytes; 0 for no limit.
    pub max_size: u64,
}

/// Starts logging. `default_filter` applies without flags and environment variable.
pub fn start(flags: &LogFlags, file: Option<&FileOptions>, default_filter: Option<&str>) -> Result<(), Error> {
    let filter = filter(flags, default_filter, std::env::var("RUST_LOG").ok().as_deref())?;
    let layer = match file {
        None => layer(flags.log_format, io::stderr().is_terminal(), || StandardError),
        Some(FileOptions { path, max_size }) => {
            let file = LogFile::open(path, *max_size);
            let file = file.map_err(failed_to(format!("open the log file {}", path.display())))?;
            layer(flags.log_format, false, (|| StandardError).and(file))
        }
    };
    // Fails if a test has started logging already.
    let _ = tracing_subscriber::registry().with(filter).with(layer).try_init();
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Logs panics, so that a log in JSON stays JSON.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("no message");
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!(location, %backtrace, "panicked: {message}"),
        _ => tracing::error!(location, "panicked: {message}"),
    }
}

fn filter(flags: &LogFlags, default_filter: Option<&str>, environment: Option<&str>) -> Result<EnvFilter, Error> {
    let level = non_empty(flags.log_level.as_deref()).or(flags.debug.then_some("debug"));
    let text = match level {
        Some(level) => format!("{DEFAULT_FILTER},{level}"),
        None => {
            let environment = environment.filter(|text| !text.is_empty());
            environment.or(default_filter).unwrap_or(DEFAULT_FILTER).to_owned()
        }
    };
    EnvFilter::try_new(&text).map_err(|error| {
        Error::Usage(format!(
            "invalid value for --log-level: {error}; use a level such as debug, or a list such as info,portolan::http=debug"
        ))
    })
}

fn layer<S, W>(format: LogFormat, ansi: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // A filter of its own, because users can set the filter of levels.
    let is_wanted = filter_fn(|metadata| {
        metadata.target() != BODIES && (metadata.target() != WATCHER || *metadata.level() != tracing::Level::WARN)
    });
    match format {
        LogFormat::Text => tracing_subscriber::fmt::layer()
            .with_ansi(ansi)
            .fmt_fields(text_fields())
            .with_writer(writer)
            .with_filter(is_wanted)
            .boxed(),
        // JSON escapes ASCII control characters except DEL. The writer removes the others.
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(StripControls(writer))
            .with_filter(is_wanted)
            .boxed(),
    }
}

fn text_fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    debug_fn(|writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = format!("{value:?}");
        match field.name() {
            "message" => write!(writer, "{}", sanitize(&value)),
            // Our own text, and long.
            "backtrace" => write!(writer, "backtrace={}", printable(&value)),
            name => write!(writer, "{name}={}", sanitize(&value)),
        }
    })
    .delimited(" ")
}

/// The standard error output, above the progress line.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        progress::above(|| io::stderr().lock().write_all(line)).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Replaces or removes the characters that JSON does not escape.
struct StripControls<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for StripControls<W> {
    type Writer = StripControls<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        StripControls(self.0.make_writer())
    }
}

impl<W: Write> Write for StripControls<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let clean: String = text
            .chars()
            .filter(|c| !is_invisible(*c))
            .map(|c| if is_control(c) && c != '\n' { ' ' } else { c })
            .collect();
        self.0.write_all(clean.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

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
        let subscriber = tracing_subscriber::registry().with(layer(format, false, move || writer.clone()));
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
        let subscriber = tracing_subscriber::registry().with(layer(LogFormat::Text, false, move || writer.clone()));
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

    #[tokio::test]
    async fn a_response_that_cannot_be_decoded_is_not_logged_at_any_level() {
        use k8s_openapi::api::core::v1::Secret;
        use kube::client::Body;

        for format in [LogFormat::Text, LogFormat::Json] {
            let lines = Lines::default();
            let writer = lines.clone();
            let filter = EnvFilter::try_new("trace").unwrap();
            let layer = layer(format, false, move || writer.clone());
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
        let layer = layer(LogFormat::Text, false, move || writer.clone());
        let filter = EnvFilter::try_new("info").unwrap();
        let _logging = tracing_subscriber::registry().with(filter).with(layer).set_default();
        let server = tower::service_fn(|_: axum::http::Request<Body>| async {
            let status =
                r#"{"kind": "Status", "status": "Failure", "message": "no", "reason": "Forbidden", "code": 403}"#;
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
    fn the_flag_overrides_the_environment_and_limits_the_scheduler_to_warnings() {
        let flags = LogFlags {
            log_level: Some("debug".to_owned()),
            ..LogFlags::default()
        };
        let text = filter(&flags, None, Some("error")).unwrap().to_string();
        assert!(
            text.contains("debug") && text.contains("tokio_cron_scheduler=warn") && !text.contains("error"),
            "{text}"
        );
        let text = filter(&LogFlags::default(), Some("warn"), Some("error"))
            .unwrap()
            .to_string();
        assert_eq!(text, "error");
        let text = filter(&LogFlags::default(), Some("warn"), None).unwrap().to_string();
        assert_eq!(text, "warn");
    }

    #[test]
    fn an_invalid_filter_is_invalid_usage() {
        let flags = LogFlags {
            log_level: Some("portolan=loud".to_owned()),
            ..LogFlags::default()
        };
        assert!(matches!(filter(&flags, None, None), Err(Error::Usage(_))));
    }
}
