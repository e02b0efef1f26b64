mod cache;
pub mod clusters;
pub mod collect;
pub mod compression;
pub mod context;
pub mod definitions;
pub mod dispatch;
pub mod functions;
pub mod metrics;
pub mod objects;
mod options;
pub mod parse;
pub mod placement;
pub mod policies;
mod reconciler;
pub mod references;
pub mod render;
pub mod revisions;
pub mod rights;
pub mod source;
pub mod start;
pub mod steps;
pub mod trackers;
pub mod webhooks;
pub mod workflow;

pub use options::{
    ApplyOnceMode, CertificateSource, ControllerVersions, GatewayClient, JoinedOptions, Options, ReviewOptions,
    SelfSigned, WebhookOptions, shard_label,
};
pub use reconciler::{CONFIRMED, TRACKER_FINALIZER as APPLICATION_FINALIZER, failure_reasons};
pub use start::{SharedParts, setup};

pub const NAME: &str = "oam";

/// Number of times that a pass holds what it parses: as it was read, and as it is recorded.
const PASS_COPIES: u64 = 2;
