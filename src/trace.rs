//! Spans of traces (`--otlp-endpoint`). The log does not show them: its context is the reconcile.
//!
//! Attributes are names of objects, kinds and results, never texts from outside, URLs or errors.

#[cfg(test)]
pub(crate) mod log_lines;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The target of these spans.
pub const TARGET: &str = "portolan::trace";

/// Creates a span of a trace: its name, then its attributes. Attributes are evaluated only if a layer wants the span.
macro_rules! trace_span {
    ($name:literal $(, $($attributes:tt)+)?) => {
        tracing::debug_span!(target: crate::trace::TARGET, $name $(, $($attributes)+)?)
    };
}
pub(crate) use trace_span;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// The metrics of exported spans.
#[derive(Clone, Debug, Default)]
pub struct SpanMetrics(Family<ResultLabel, Counter>);

impl SpanMetrics {
    pub fn register(&self, registry: &mut Registry) {
        // Without a first value, a rate would miss the first event.
        for result in ["exported", "failed", "dropped"] {
            self.count(result, 0);
        }
        let help = "Total number of spans by result: exported, failed, or dropped because the queue was full";
        registry.register("portolan_trace_spans", help, self.0.clone());
    }

    pub fn count(&self, result: &'static str, spans: usize) {
        self.0.get_or_create(&ResultLabel { result }).inc_by(spans as u64);
    }
}
