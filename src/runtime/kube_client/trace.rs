//! Spans of requests to the API server.

use axum::http::{Method, Request};
use tracing::{Span, field};

use crate::trace::trace_span;

/// Verb and resource are named as in audit logs. Renewals of Leases have no span: each would be a trace of its own.
pub(super) fn request_span<B>(request: &Request<B>) -> Span {
    let RequestTarget {
        resource,
        namespace,
        has_name,
    } = RequestTarget::parse(request.uri().path());
    if resource.ends_with("leases") {
        return Span::none();
    }
    let query = request.uri().query().unwrap_or_default();
    let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
    trace_span!(
        "api request",
        verb = verb(request.method(), has_name, is_watch),
        resource,
        namespace,
        otel.kind = "client",
        otel.status_code = field::Empty,
        http.response.status_code = field::Empty
    )
}

pub(super) fn record_status(span: &Span, status: Option<u16>) {
    if let Some(status) = status {
        span.record("http.response.status_code", status);
    }
    if status.is_none_or(|status| status >= 400) {
        span.record("otel.status_code", "ERROR");
    }
}

fn verb(method: &Method, has_name: bool, is_watch: bool) -> &'static str {
    match method.as_str() {
        "GET" if is_watch => "watch",
        "GET" if has_name => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if has_name => "delete",
        "DELETE" => "deletecollection",
        _ => "other",
    }
}

#[derive(Debug, PartialEq, Eq)]
struct RequestTarget<'a> {
    /// As `apps/deployments`, with the subresource. Empty if the path names no resource.
    resource: String,
    namespace: &'a str,
    has_name: bool,
}

impl<'a> RequestTarget<'a> {
    fn parse(path: &'a str) -> Self {
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, path) = match segments.as_slice() {
            ["api", _version, path @ ..] => ("", path),
            ["apis", group, _version, path @ ..] => (*group, path),
            _ => ("", &[][..]),
        };
        let (namespace, path) = match path {
            ["namespaces", namespace, path @ ..] if !path.is_empty() => (*namespace, path),
            _ => ("", path),
        };
        let name = match path {
            [] => String::new(),
            [resource] | [resource, _] => (*resource).to_owned(),
            [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        };
        Self {
            resource: match group {
                "" => name,
                group => format!("{group}/{name}"),
            },
            namespace,
            has_name: path.len() > 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("/api/v1/namespaces/web/configmaps/a", "configmaps", "web", true)]
    #[case("/api/v1/namespaces/web/configmaps", "configmaps", "web", false)]
    #[case("/api/v1/namespaces/web", "namespaces", "", true)]
    #[case("/api/v1/pods", "pods", "", false)]
    #[case(
        "/apis/apps/v1/namespaces/web/deployments/a/scale",
        "apps/deployments/scale",
        "web",
        true
    )]
    #[case("/apis/app.k8s.io/v1beta1/applications", "app.k8s.io/applications", "", false)]
    #[case("/apis/apps/v1", "apps/", "", false)]
    #[case("/version", "", "", false)]
    fn a_path_names_resource_and_namespace(
        #[case] path: &str,
        #[case] resource: &str,
        #[case] namespace: &str,
        #[case] has_name: bool,
    ) {
        let target = RequestTarget::parse(path);
        assert_eq!(
            (target.resource.as_str(), target.namespace, target.has_name),
            (resource, namespace, has_name)
        );
    }

    #[test]
    fn verbs_are_those_of_audit_logs() {
        assert_eq!(verb(&Method::GET, false, true), "watch");
        assert_eq!(verb(&Method::GET, false, false), "list");
        assert_eq!(verb(&Method::GET, true, false), "get");
        assert_eq!(verb(&Method::DELETE, false, false), "deletecollection");
    }
}
