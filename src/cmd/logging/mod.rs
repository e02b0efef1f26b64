//! Logs to the standard error output, as text or JSON.
//!
//! Logged names, URLs and responses are untrusted. Here they lose characters that control a terminal, forge log lines or hide text.

mod file;
mod filter;
mod json;
#[cfg(not(feature = "otel"))]
mod no_traces;
#[cfg(feature = "otel")]
mod traces;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    fmt,
    io::{self, IsTerminal, Write},
    panic::PanicHookInfo,
    path::PathBuf,
    sync::Arc,
};

use tracing::{Metadata, Subscriber, field::Field, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer,
    field::MakeExt,
    filter::{FilterExt, FilterFn, filter_fn},
    fmt::{
        FormatFields, MakeWriter,
        format::{JsonFields, Writer, debug_fn},
        writer::{BoxMakeWriter, MakeWriterExt},
    },
    layer::{Filter, SubscriberExt},
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt,
};

use super::flags::traces::TraceOptions;
use super::flags::{LogFlags, LogFormat};
use super::output::progress;
use super::{Error, failed_to};
use crate::server::LogFilter;
use crate::text::{printable, sanitize};
use crate::trace;
use file::LogFile;
use json::JsonLines;
#[cfg(not(feature = "otel"))]
use no_traces as traces;
pub use traces::Traces;

/// The target of kube's warnings that contain a complete response, such as annotations of Secrets. The caller gets the error.
const BODIES: &str = "kube_client::client";

/// The target of kube's warnings about missing permissions, which repeat at each attempt. The watch reports them itself.
const WATCHER: &str = "kube_runtime::watcher";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    pub path: PathBuf,
    /// In bytes; 0 for no limit.
    pub max_size: u64,
}

pub struct Logging {
    pub filter: Arc<dyn LogFilter>,
    /// The export of traces, which the caller runs.
    pub traces: Option<Traces>,
}

/// Starts logging. `default_filter` applies without flags and environment variable.
pub fn start(
    flags: &LogFlags,
    file: Option<&FileOptions>,
    default_filter: Option<&str>,
    traces: Option<&TraceOptions>,
) -> Result<Logging, Error> {
    let filter = filter::filter(flags, default_filter, std::env::var("RUST_LOG").ok().as_deref())?;
    let (filter, handle) = reload::Layer::new(filter);
    let writer = match file {
        None => BoxMakeWriter::new(|| StandardError),
        Some(FileOptions { path, max_size }) => {
            let file =
                LogFile::open(path, *max_size).map_err(failed_to(format!("open the log file {}", path.display())))?;
            BoxMakeWriter::new((|| StandardError).and(file))
        }
    };
    let ansi = file.is_none() && io::stderr().is_terminal();
    let registry = tracing_subscriber::registry();
    // Fails if a test has started logging already.
    let (_, traces) = match traces {
        // A global filter: spans and events below its level cost next to nothing.
        None => {
            let layer = layer(flags.log_format, ansi, writer, wanted());
            (registry.with(filter).with(layer).try_init(), None)
        }
        Some(options) => {
            let layer = layer(flags.log_format, ansi, writer, wanted().and(filter));
            let (spans, traces) = traces::layer(options)?;
            (registry.with(layer).with(spans).try_init(), Some(traces))
        }
    };
    std::panic::set_hook(Box::new(log_panic));
    let filter = Arc::new(handle);
    Ok(Logging { filter, traces })
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

/// Returns a filter of its own, because users can set the filter of levels.
fn wanted() -> FilterFn<fn(&Metadata<'_>) -> bool> {
    let is_wanted: fn(&Metadata<'_>) -> bool = |metadata| {
        let target = metadata.target();
        target != BODIES && target != trace::TARGET && (target != WATCHER || *metadata.level() != tracing::Level::WARN)
    };
    // A filter without a hint would enable all levels.
    filter_fn(is_wanted).with_max_level_hint(LevelFilter::TRACE)
}

fn layer<S, W, F>(format: LogFormat, ansi: bool, writer: W, filter: F) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    F: Filter<S> + Send + Sync + 'static,
{
    match format {
        LogFormat::Text => tracing_subscriber::fmt::layer()
            .with_ansi(ansi)
            .fmt_fields(text_fields())
            .with_writer(writer)
            .with_filter(filter)
            .boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .fmt_fields(JsonFields::new())
            .event_format(JsonLines)
            .with_ansi(false)
            .with_writer(writer)
            .with_filter(filter)
            .boxed(),
    }
}

fn text_fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    debug_fn(|writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
        let value = clean_value(field.name(), &format!("{value:?}"));
        match field.name() {
            "message" => write!(writer, "{value}"),
            name => write!(writer, "{name}={value}"),
        }
    })
    .delimited(" ")
}

fn clean_value(name: &str, value: &str) -> String {
    match name {
        // Our own text, and long.
        "backtrace" => printable(value),
        _ => sanitize(value),
    }
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

#[cfg(test)]
mod tests;
