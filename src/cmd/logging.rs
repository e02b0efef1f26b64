//! The log: tracing to the standard error output, as text or JSON.
//!
//! Much of what is logged comes from outside: names, URLs, answers of servers. None of it may drive the terminal that shows the log, or forge
//! a line of it. So control characters are taken out here, in one place, and no caller has to think of it.

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt,
    io::{self, IsTerminal, Write},
    panic::PanicHookInfo,
};

use tracing::{Subscriber, field::Field};
use tracing_subscriber::{
    EnvFilter, Layer,
    field::MakeExt,
    filter::filter_fn,
    fmt::{
        FormatFields, MakeWriter,
        format::{Writer, debug_fn},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use super::{
    Failure,
    flags::{LogFlags, LogFormat},
    progress,
};
use crate::text::printable;

/// What is logged when nothing else is said: the scheduler tells of each job that it is given at info, and the database of each
/// table that is there already.
const DEFAULT_FILTER: &str = "info,tokio_cron_scheduler=warn,sqlx=warn";

/// Where the client of the API server logs the whole of an answer that it can't decode, as a warning, whatever is in it: annotations
/// of Secrets, for one. Whoever asked gets the error and tells it.
const BODIES: &str = "kube_client::client";

/// Starts logging; `quiet_level` is the filter where neither flag nor environment says anything (reading commands want warnings only).
///
/// # Errors
/// When the filter can't be read.
pub fn start(flags: &LogFlags, quiet_level: Option<&str>) -> Result<(), Failure> {
    let filter = filter(flags, quiet_level, std::env::var("RUST_LOG").ok().as_deref())?;
    let layer = layer(flags.log_format, io::stderr().is_terminal(), || StandardError);
    // A second start, as tests make it, changes nothing.
    let _ = tracing_subscriber::registry().with(filter).with(layer).try_init();
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

/// Panics go into the log like all else, so that one in JSON stays JSON. Workers catch theirs; this tells where it came from.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let message = panic.payload_as_str().unwrap_or("a panic without a message");
    let location = panic.location().map(ToString::to_string).unwrap_or_default();
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => tracing::error!(location, %backtrace, "panicked: {message}"),
        _ => tracing::error!(location, "panicked: {message}"),
    }
}

fn filter(flags: &LogFlags, quiet_level: Option<&str>, environment: Option<&str>) -> Result<EnvFilter, Failure> {
    let asked = flags.log_level.as_deref().filter(|text| !text.trim().is_empty());
    let text = match (asked, flags.debug) {
        (Some(text), _) => format!("{DEFAULT_FILTER},{text}"),
        (None, true) => format!("{DEFAULT_FILTER},debug"),
        (None, false) => match (environment.filter(|text| !text.is_empty()), quiet_level) {
            (Some(text), _) => text.to_owned(),
            (None, Some(level)) => level.to_owned(),
            (None, None) => DEFAULT_FILTER.to_owned(),
        },
    };
    EnvFilter::try_new(&text).map_err(|error| {
        Failure::usage(format!("--log-level can't be read ({error}): write a level such as debug, or a list such as info,portolan::source=debug"))
    })
}

/// The layer that writes log lines to what `writer` makes.
fn layer<S, W>(format: LogFormat, ansi: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // Not by the filter of levels, which the user sets.
    let holds_no_body = filter_fn(|metadata| metadata.target() != BODIES);
    match format {
        LogFormat::Text => tracing_subscriber::fmt::layer()
            .with_ansi(ansi)
            .fmt_fields(text_fields())
            .with_writer(writer)
            .with_filter(holds_no_body)
            .boxed(),
        // JSON escapes the control characters of ASCII itself; the writer takes out the others.
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(Stripping(writer))
            .with_filter(holds_no_body)
            .boxed(),
    }
}

/// Fields as text, each without its control characters.
fn text_fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    debug_fn(|writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = printable(&format!("{value:?}"));
        match field.name() {
            "message" => write!(writer, "{value}"),
            name => write!(writer, "{name}={value}"),
        }
    })
    .delimited(" ")
}

/// The standard error output, shared with a progress line.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        progress::above(|| io::stderr().lock().write_all(line)).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Takes out of lines of JSON the control characters that JSON lets through: DEL and those beyond ASCII, some of which terminals obey.
struct Stripping<W>(W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Stripping<W> {
    type Writer = Stripped<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Stripped(self.0.make_writer())
    }
}

/// What [`Stripping`] writes with; it is given whole lines.
struct Stripped<W>(W);

impl<W: Write> Write for Stripped<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let clean: String = text
            .chars()
            .map(|c| if c.is_control() && c != '\n' { ' ' } else { c })
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

    const HOSTILE: &str = "chart\u{1b}[2J\u{9b}31m\u{7f}\n2026-01-01T00:00:00Z  INFO forged";

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
    fn control_characters_from_outside_neither_drive_the_terminal_nor_forge_a_line() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let out = logged(format);
            assert_eq!(out.matches('\n').count(), 1, "{out}");
            assert!(out.ends_with('\n'));
            assert!(!out.trim_end().contains(char::is_control), "{out:?}");
            assert!(out.contains("forged"), "{out}");
        }
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
    async fn an_answer_that_can_t_be_decoded_is_not_logged_at_any_level() {
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
            tracing::warn!(%error, "told");
            let out = String::from_utf8(lines.0.lock().clone()).unwrap();
            assert!(out.contains("told") && !out.contains("confidential"), "{out}");
        }
    }

    #[test]
    fn the_flag_stands_above_the_environment_and_keeps_the_scheduler_quiet() {
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
    fn a_filter_that_can_not_be_read_is_wrong_usage() {
        let flags = LogFlags {
            log_level: Some("portolan=loud".to_owned()),
            ..LogFlags::default()
        };
        assert!(matches!(filter(&flags, None, None), Err(Failure::Usage(_))));
    }
}
