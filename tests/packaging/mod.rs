//! The Helm chart, rendered by the real helm and judged by a real API server.
