use rstest::rstest;

use super::*;

fn object(version: &str, kind: &str, more: Value) -> Value {
    let metadata = json!({ "name": "web", "namespace": "team", "uid": "u", "resourceVersion": "7" });
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": metadata });
    for (field, value) in more.as_object().unwrap() {
        match (&mut object[field], value) {
            (Value::Object(existing), Value::Object(more)) => existing.extend(more.clone()),
            (slot, value) => *slot = value.clone(),
        }
    }
    object
}

const WEB: EndpointOrigin<'static> = EndpointOrigin {
    cluster: LOCAL,
    component: "web",
};

fn service(spec: Value, status: Value) -> Value {
    object("v1", "Service", json!({ "spec": spec, "status": status }))
}

/// Returns host, port, protocol and path of endpoints, and true for inner ones.
fn short(endpoints: &[Value]) -> Vec<(String, u64, String, String, bool)> {
    let short = endpoints.iter().map(|one| {
        let endpoint = &one["endpoint"];
        let text = |field: &str| endpoint[field].as_str().unwrap_or_default().to_owned();
        (
            text("host"),
            endpoint["port"].as_u64().unwrap(),
            text("appProtocol"),
            text("path"),
            endpoint["inner"] == true,
        )
    });
    short.collect()
}

fn one(host: &str, port: u64, protocol: &str, path: &str, is_inner: bool) -> (String, u64, String, String, bool) {
    (host.to_owned(), port, protocol.to_owned(), path.to_owned(), is_inner)
}

#[test]
fn an_endpoint_has_the_fields_of_kubevela() {
    let live = service(
        json!({ "ports": [{ "name": "http", "port": 80, "protocol": "TCP" }] }),
        json!({}),
    );
    let expected = json!({
        "endpoint": {
            "protocol": "TCP", "appProtocol": "http", "host": "web.team", "port": 80, "portName": "http", "inner": true,
        },
        "ref": {
            "kind": "Service", "apiVersion": "v1", "namespace": "team", "name": "web", "uid": "u", "resourceVersion": "7",
        },
        "cluster": "east",
        "component": "front",
    });
    let origin = EndpointOrigin {
        cluster: "east",
        component: "front",
    };
    assert_eq!(of_service(&live, origin, ""), [expected]);
}

#[rstest]
#[case::inner(json!({}), json!({}), vec![one("web.team", 8080, "http", "", true)])]
#[case::external_name(json!({ "type": "ExternalName" }), json!({}), vec![one("web.team", 8080, "http", "", true)])]
#[case::node(json!({ "type": "NodePort" }), json!({}), vec![one("10.0.0.9", 30_080, "http", "", false)])]
#[case::pending(json!({ "type": "LoadBalancer" }), json!({}), vec![])]
#[case::balanced(
    json!({ "type": "LoadBalancer" }),
    json!({ "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }, { "hostname": "lb.example.com" }] } }),
    vec![one("1.2.3.4", 8080, "http", "", false), one("lb.example.com", 8080, "http", "", false)],
)]
#[case::unknown(json!({ "type": "Other" }), json!({}), vec![])]
fn a_service_is_reached_as_its_type_says(
    #[case] spec: Value,
    #[case] status: Value,
    #[case] expected: Vec<(String, u64, String, String, bool)>,
) {
    let mut spec = spec;
    spec["ports"] = json!([{ "port": 8080, "nodePort": 30_080 }]);
    assert_eq!(short(&of_service(&service(spec, status), WEB, "10.0.0.9")), expected);
}

#[test]
fn ports_of_nodes_without_an_address_are_no_endpoints() {
    let live = service(
        json!({ "type": "NodePort", "ports": [{ "nodePort": 30_080 }] }),
        json!({}),
    );
    assert!(of_service(&live, WEB, "").is_empty());
}

#[test]
fn no_more_endpoints_are_built_than_show_that_there_are_too_many() {
    let many: Vec<Value> = (0..50).map(|index| json!(index.to_string())).collect();
    let values = |field: &str| -> Vec<Value> { many.iter().map(|text| json!({ field: text })).collect() };
    let spec = json!({ "type": "LoadBalancer", "ports": vec![json!({ "port": 80 }); 50] });
    let balanced = service(spec, json!({ "loadBalancer": { "ingress": values("hostname") } }));
    let rules = vec![json!({ "host": "a", "http": { "paths": values("path") } }); 50];
    let ingress = object("networking.k8s.io/v1", "Ingress", json!({ "spec": { "rules": rules } }));
    let matches: Vec<Value> = many.iter().map(|path| json!({ "path": { "value": path } })).collect();
    let spec = json!({ "hostnames": many, "rules": [{ "matches": matches }] });
    let route = object("gateway.networking.k8s.io/v1", "HTTPRoute", json!({ "spec": spec }));
    for endpoints in [
        of_service(&balanced, WEB, ""),
        of_ingress(&ingress, WEB),
        of_route(&route, WEB, GatewayListener::default()),
    ] {
        assert_eq!(endpoints.len(), MAX_ENDPOINTS + 1);
    }
}

#[test]
fn an_ingress_is_reached_by_its_hosts_and_paths() {
    let paths = |paths: &[&str]| {
        let paths: Vec<Value> = paths.iter().map(|path| json!({ "path": path })).collect();
        json!({ "paths": paths })
    };
    let spec = json!({
        "tls": [{ "hosts": ["safe.example.com"] }],
        "rules": [
            { "host": "safe.example.com", "http": paths(&["/", "/api"]) },
            { "host": "plain.example.com", "http": paths(&["/"]) },
            { "http": paths(&["/any"]) },
            { "host": "empty.example.com" },
        ],
    });
    let annotations = json!({ "annotations": {
        "ingress.controller/host": "gate.example.com", "ingress.controller/http-port": "8000",
        "ingress.controller/https-port": "-1",
    } });
    let more = json!({ "spec": spec, "metadata": annotations });
    let live = object("networking.k8s.io/v1", "Ingress", more);
    let expected = [
        one("safe.example.com", 443, "https", "/", false),
        one("safe.example.com", 443, "https", "/api", false),
        one("plain.example.com", 8000, "http", "/", false),
        one("gate.example.com", 8000, "http", "/any", false),
    ];
    assert_eq!(short(&of_ingress(&live, WEB)), expected);
    let spec = json!({ "tls": [{ "secretName": "all" }], "rules": [{ "host": "a", "http": paths(&["/"]) }] });
    let live = object("networking.k8s.io/v1", "Ingress", json!({ "spec": spec }));
    assert_eq!(short(&of_ingress(&live, WEB)), [one("a", 443, "https", "/", false)]);
}

#[test]
fn a_route_is_reached_by_the_port_of_its_gateway() {
    let matches = json!([
        { "path": { "value": "/api" } },
        { "path": { "type": "PathPrefix", "value": "/api" } },
        { "path": { "type": "Exact", "value": "/one" } },
    ]);
    let spec = json!({
        "parentRefs": [{ "kind": "Service", "name": "mesh" }, { "name": "gate", "namespace": "edge", "sectionName": "tls" }],
        "hostnames": ["a.example.com", "b.example.com"],
        "rules": [{ "matches": matches }],
    });
    let live = object("gateway.networking.k8s.io/v1", "HTTPRoute", json!({ "spec": spec }));
    let (gateway, section) = gateway_of(&live, "east").unwrap();
    assert_eq!((gateway.cluster.as_str(), gateway.namespace.as_str()), ("east", "edge"));
    assert_eq!((gateway.kind.as_str(), gateway.name.as_str()), ("Gateway", "gate"));
    let listeners = json!([
        { "name": "web", "port": 8000, "protocol": "HTTP" },
        { "name": "tls", "port": 8443, "protocol": "HTTPS" },
    ]);
    let more = json!({
        "spec": { "listeners": listeners }, "metadata": { "annotations": { "ports-mapping": "8000:80, 8443:443,x" } },
    });
    let gateway = object("gateway.networking.k8s.io/v1", "Gateway", more);
    let found = listener(&gateway, section).unwrap();
    let expected = [
        one("a.example.com", 443, "https", "/api", false),
        one("a.example.com", 443, "https", "", false),
        one("b.example.com", 443, "https", "/api", false),
        one("b.example.com", 443, "https", "", false),
    ];
    assert_eq!(short(&of_route(&live, WEB, found)), expected);
    assert_eq!(listener(&gateway, None).unwrap().port, 80);
    assert_eq!(listener(&gateway, Some("lost")), None);
    assert_eq!(GatewayListener::default().port, 80);
}

#[test]
fn ports_of_nodes_are_reached_at_a_gateway_or_else_a_worker_by_an_external_address_if_there_is_one() {
    let node = |role: &str, addresses: &[(&str, &str)]| {
        let addresses: Vec<Value> = addresses
            .iter()
            .map(|(type_, address)| json!({ "type": type_, "address": address }))
            .collect();
        let labels = json!({ format!("node-role.kubernetes.io/{role}"): "" });
        json!({ "metadata": { "labels": labels }, "status": { "addresses": addresses } })
    };
    let control = node(
        "control-plane",
        &[("ExternalIP", "9.9.9.9"), ("InternalIP", "10.0.0.1")],
    );
    let worker = node("worker", &[("InternalIP", "10.0.0.2")]);
    let outer = node("worker", &[("InternalIP", "10.0.0.3"), ("ExternalIP", "1.1.1.1")]);
    let gateway = node("gateway", &[("InternalIP", "10.0.0.4")]);
    let address = |nodes: &[&Value]| {
        let nodes: Vec<Value> = nodes.iter().map(|node| (*node).clone()).collect();
        node_address(&nodes).to_owned()
    };
    assert_eq!(address(&[&control, &worker, &outer, &gateway]), "10.0.0.4");
    assert_eq!(address(&[&control, &worker, &outer]), "1.1.1.1");
    assert_eq!(address(&[&control, &worker]), "10.0.0.2");
    assert_eq!(address(&[&control]), "9.9.9.9");
    assert_eq!(address(&[]), "");
}

#[test]
fn children_of_releases_have_the_labels_of_flux() {
    let release = |spec: Value| {
        let live = object("helm.toolkit.fluxcd.io/v2", "HelmRelease", json!({ "spec": spec }));
        children(EndpointSource::HelmRelease, &live, LOCAL).unwrap()
    };
    let found = release(json!({}));
    assert_eq!(
        found.selector,
        "helm.toolkit.fluxcd.io/name=web,helm.toolkit.fluxcd.io/namespace=team"
    );
    assert_eq!(
        (found.kinds[0].0.kind.as_str(), found.kinds[0].0.namespace.as_str()),
        ("Service", "team")
    );
    assert_eq!(
        release(json!({ "targetNamespace": "prod" })).kinds[1].0.namespace,
        "prod"
    );
    let live = object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", json!({}));
    let found = children(EndpointSource::Kustomization, &live, "east").unwrap();
    let (route, _) = &found.kinds[2];
    assert_eq!((route.namespace.as_str(), route.cluster.as_str()), ("", "east"));
    assert_eq!(children(EndpointSource::Service, &live, LOCAL), None);
}

#[test]
fn objects_of_a_kustomization_are_those_of_its_inventory() {
    let entries = json!([
        { "id": "team_web__Service", "v": "v1" },
        { "id": "team_web_networking.k8s.io_Ingress", "v": "v1" },
    ]);
    let status = json!({ "status": { "inventory": { "entries": entries } } });
    let live = object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", status);
    let ids = inventory(&live);
    for (version, kind, is_listed) in [
        ("v1", "Service", true),
        ("networking.k8s.io/v1", "Ingress", true),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", false),
    ] {
        let id = inventory_id(&object(version, kind, json!({})));
        assert_eq!(ids.contains(id.as_str()), is_listed, "{id}");
    }
    let new = object("kustomize.toolkit.fluxcd.io/v1", "Kustomization", json!({}));
    assert!(inventory(&new).is_empty());
}

#[test]
fn a_query_selects_entries_of_trackers() {
    let query = |filter: Value| {
        let app = json!({ "name": "shop", "namespace": "team", "filter": filter });
        EndpointQuery::parse(&json!({ "app": app })).unwrap()
    };
    let entry = ManagedResource {
        component: "web".to_owned(),
        namespace: "team".to_owned(),
        ..ManagedResource::default()
    };
    for (filter, is_selected) in [
        (json!(null), true),
        (json!({ "components": ["api", "web"] }), true),
        (json!({ "components": ["api"] }), false),
        (json!({ "cluster": "local", "clusterNamespace": "team" }), true),
        (json!({ "cluster": "east" }), false),
        (json!({ "clusterNamespace": "prod" }), false),
    ] {
        assert_eq!(query(filter.clone()).selects(&entry), is_selected, "{filter}");
    }
    let there = ManagedResource {
        cluster: "east".to_owned(),
        ..entry.clone()
    };
    for (filter, is_selected) in [
        (json!({}), true),
        (json!({ "cluster": "east" }), true),
        (json!({ "cluster": "local" }), false),
    ] {
        assert_eq!(query(filter.clone()).selects(&there), is_selected, "{filter}");
    }
    let deleted = ManagedResource { deleted: true, ..entry };
    assert!(!query(json!({})).selects(&deleted));
    for invalid in [
        json!({}),
        json!({ "app": { "name": "shop" } }),
        json!({ "app": { "name": "../x", "namespace": "team" } }),
        json!({ "app": { "name": "shop", "namespace": "team", "filter": { "components": "web" } } }),
    ] {
        assert!(EndpointQuery::parse(&invalid).is_err(), "{invalid}");
    }
}
