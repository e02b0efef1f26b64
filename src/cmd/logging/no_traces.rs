//! Refuses to export traces, in builds without the feature `otel`.

use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::Identity;

use crate::cmd::Error;
use crate::cmd::flags::traces::TraceOptions;
use crate::trace::SpanMetrics;

/// Has no values.
pub enum Traces {}

pub fn layer(_: &TraceOptions) -> Result<(Identity, Traces), Error> {
    Err(Error::Usage(
        "--otlp-endpoint is not available: this binary was built without the Cargo feature otel".to_owned(),
    ))
}

impl Traces {
    pub fn metrics(&self) -> SpanMetrics {
        match *self {}
    }

    pub async fn run(self, _: CancellationToken) {
        match self {}
    }
}
