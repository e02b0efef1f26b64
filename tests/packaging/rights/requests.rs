//! The rights that requests to the API server need.

use std::collections::BTreeSet;

use axum::http::Method;

use crate::support::fault_proxy::{ApiRequest, FaultProxy};

/// A verb on a resource, as a rule grants it and a request needs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    pub verb: String,
    /// `GROUP/PLURAL`, or `GROUP/PLURAL/SUBRESOURCE`.
    pub resource: String,
    pub name: Option<String>,
    pub namespace: Option<String>,
}

/// Returns the rights that all requests so far needed. A patch that creates the object needs `create` too.
pub fn used(proxy: &FaultProxy) -> BTreeSet<Right> {
    let requests = proxy.requests();
    let applied = proxy.applied();
    let created = applied.iter().filter_map(right).map(|right| Right {
        verb: "create".to_owned(),
        ..right
    });
    requests.iter().filter_map(right).chain(created).collect()
}

/// Returns `None` for discovery and other paths without resources.
fn right(request: &ApiRequest) -> Option<Right> {
    let parts: Vec<&str> = request.path.trim_matches('/').split('/').collect();
    let (group, parts) = match parts.as_slice() {
        ["api", _version, parts @ ..] => ("", parts),
        ["apis", group, _version, parts @ ..] => (*group, parts),
        _ => return None,
    };
    // A path like `namespaces/NAME` is the namespace itself.
    let (namespace, parts) = match parts {
        ["namespaces", namespace, parts @ ..] if !parts.is_empty() => (Some(*namespace), parts),
        parts => (None, parts),
    };
    let (plural, name, subresource) = match parts {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(*name), None),
        [plural, name, subresource] => (plural, Some(*name), Some(*subresource)),
        _ => return None,
    };
    let subresource = subresource.map_or_else(String::new, |subresource| format!("/{subresource}"));
    Some(Right {
        verb: verb(request, name.is_some()).to_owned(),
        resource: format!("{group}/{plural}{subresource}"),
        name: name.map(str::to_owned),
        namespace: namespace.map(str::to_owned),
    })
}

fn verb(request: &ApiRequest, has_name: bool) -> &'static str {
    match request.method {
        Method::GET if request.is_watch() => "watch",
        Method::GET if has_name => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if has_name => "delete",
        Method::DELETE => "deletecollection",
        _ => "unknown",
    }
}

#[test]
fn paths_are_read_like_in_the_api_server() {
    let request = |method: Method, path: &str, query: &[(&str, &str)]| {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let right = right(&ApiRequest {
            method,
            path: path.to_owned(),
            query: query.iter().map(owned).collect(),
            accept: String::new(),
            user: String::new(),
        })?;
        let words = [Some(right.verb), Some(right.resource), right.namespace, right.name];
        Some(words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    };
    let cases = [
        (Method::GET, "/api/v1/namespaces/sea", "get /namespaces sea"),
        (Method::GET, "/api/v1/namespaces/sea/pods", "list /pods sea"),
        (
            Method::DELETE,
            "/apis/apps/v1/namespaces/sea/deployments/web",
            "delete apps/deployments sea web",
        ),
        (
            Method::PATCH,
            "/apis/a.b/v1/things/one/status",
            "patch a.b/things/status one",
        ),
    ];
    for (method, path, expected) in cases {
        assert_eq!(request(method, path, &[]).as_deref(), Some(expected));
    }
    let watch = request(Method::GET, "/api/v1/pods", &[("watch", "true")]);
    assert_eq!(watch.as_deref(), Some("watch /pods"));
    for path in ["/version", "/apis", "/apis/apps/v1"] {
        assert_eq!(request(Method::GET, path, &[]), None, "{path}");
    }
}
