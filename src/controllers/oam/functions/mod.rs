//! The functions that templates of workflow steps, components and traits call and that reach outside of the process.
//!
//! ```text
//!  call {provider, function, params} ─► http: Secrets, permit, rate limit ─► guarded client ─► {body, header, statusCode}
//!                                     ├► components: what to apply or render; the caller does it
//!                                     ├► config: Secrets with the label of configs
//!                                     ├► endpoints: addresses of live objects, which the caller reads
//!                                     ├► metrics: a request, and the decision by its response and those before
//!                                     ├► objects: what to read, list, delete or patch; the caller does it
//!                                     └► variables: values of the workflow
//! ```
//!
//! Parameters come from tenants. Messages name fields, hosts and Secrets, never their values.

pub mod components;
pub mod config;
pub mod endpoints;
pub mod http;
pub mod logs;
pub mod metrics;
pub mod objects;
mod params;
pub mod secrets;
pub mod variables;

pub use params::cluster;
