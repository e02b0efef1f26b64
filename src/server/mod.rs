//! HTTP: health and metrics.
