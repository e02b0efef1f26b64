//! Exports spans to an OpenTelemetry collector.
//!
//! ```text
//!  span ends ─► queue (full: dropped) ─► batch, at least every second ─► POST (failed: dropped)
//! ```
//! A collector that does not answer costs spans, and nothing else: no span waits for the queue, and none is sent twice.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::registry::LookupSpan;

use crate::cmd::flags::traces::TraceOptions;
use crate::cmd::{Error, failed_to};
use crate::trace::{SpanMetrics, TARGET};

/// The maximum number of spans that wait to be exported: about 2 MiB.
const QUEUE_LENGTH: usize = 2048;
const BATCH_LENGTH: usize = 512;
/// The maximum time that a span waits for others in its request.
const BATCH_DELAY: Duration = Duration::from_secs(1);
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for the last spans at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The export of spans. Until it runs, they wait in the queue.
pub struct Traces {
    exporter: SpanExporter,
    queue: Receiver<SpanData>,
    metrics: SpanMetrics,
    /// The last export has failed.
    is_failing: bool,
}

/// Returns the layer that records the spans of [`crate::trace`], and their export.
pub fn layer<S>(options: &TraceOptions) -> Result<(impl Layer<S> + Send + Sync + 'static, Traces), Error>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let resource = resource();
    let mut exporter = exporter(options)?;
    exporter.set_resource(&resource);
    let (sender, queue) = channel(QUEUE_LENGTH);
    let metrics = SpanMetrics::default();
    let enqueue = EnqueueSpans {
        queue: sender,
        metrics: metrics.clone(),
    };
    let provider = SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
            options.ratio,
        ))))
        .with_resource(resource)
        .with_span_processor(enqueue)
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("portolan"))
        .with_location(false)
        .with_threads(false)
        .with_level(false)
        .with_target(false)
        .with_tracked_inactivity(false)
        .with_context_activation(false);
    // Dynamic, so that all filters are asked about each span and event. A cached result would leave the result of another
    // span in place, and the log would lose a line.
    let filter = dynamic_filter_fn(|metadata, _| metadata.target() == TARGET).with_max_level_hint(LevelFilter::DEBUG);
    let traces = Traces {
        exporter,
        queue,
        metrics,
        is_failing: false,
    };
    Ok((layer.with_filter(filter), traces))
}

fn resource() -> Resource {
    // The name of the pod.
    let instance = std::env::var("HOSTNAME").ok().filter(|name| !name.is_empty());
    Resource::builder_empty()
        .with_service_name("portolan")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attributes(instance.map(|name| KeyValue::new("service.instance.id", name)))
        .build()
}

fn exporter(options: &TraceOptions) -> Result<SpanExporter, Error> {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(failed_to("create the client for --otlp-endpoint"))?;
    SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(options.endpoint.as_str())
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(failed_to("set up --otlp-endpoint"))
}

#[derive(Debug)]
struct EnqueueSpans {
    queue: Sender<SpanData>,
    metrics: SpanMetrics,
}

impl SpanProcessor for EnqueueSpans {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        if self.queue.try_send(span).is_err() {
            self.metrics.count("dropped", 1);
        }
    }

    /// [`Traces::run`] flushes.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Traces {
    pub fn metrics(&self) -> SpanMetrics {
        self.metrics.clone()
    }

    /// Exports spans until `shutdown`, and then those that are left, for at most [`FLUSH_TIMEOUT`].
    pub async fn run(mut self, shutdown: CancellationToken) {
        let flush_ended = async {
            shutdown.cancelled().await;
            sleep(FLUSH_TIMEOUT).await;
        };
        tokio::select! {
            () = self.export_until(&shutdown) => {}
            () = flush_ended => tracing::warn!("the last spans could not be exported in time and were dropped"),
        }
    }

    async fn export_until(&mut self, shutdown: &CancellationToken) {
        let mut batch = Vec::new();
        while shutdown.run_until_cancelled(self.fill(&mut batch)).await.is_some() {
            self.export(std::mem::take(&mut batch)).await;
        }
        self.queue.close();
        loop {
            while batch.len() < BATCH_LENGTH
                && let Ok(span) = self.queue.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            self.export(std::mem::take(&mut batch)).await;
        }
    }

    /// Receives spans until the batch is full, or [`BATCH_DELAY`] after the first.
    async fn fill(&mut self, batch: &mut Vec<SpanData>) {
        self.receive(batch).await;
        let fill = async {
            while batch.len() < BATCH_LENGTH {
                self.receive(batch).await;
            }
        };
        // A batch that is not full is exported too.
        let _ = timeout(BATCH_DELAY, fill).await;
    }

    async fn receive(&mut self, batch: &mut Vec<SpanData>) {
        if self.queue.recv_many(batch, BATCH_LENGTH - batch.len()).await == 0 {
            // No layer is left, and the caller ends at the shutdown.
            std::future::pending().await
        }
    }

    async fn export(&mut self, batch: Vec<SpanData>) {
        let spans = batch.len();
        let result = timeout(EXPORT_TIMEOUT, self.exporter.export(batch))
            .await
            .map_err(|_| format!("no response within {EXPORT_TIMEOUT:?}"));
        match result.and_then(|result| result.map_err(|error| error.to_string())) {
            Ok(()) => {
                self.metrics.count("exported", spans);
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("exporting traces again");
                }
            }
            Err(error) => {
                self.metrics.count("failed", spans);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(
                        error,
                        "failed to export traces, check --otlp-endpoint; further failures are only counted"
                    );
                }
            }
        }
    }
}
