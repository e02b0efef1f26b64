//! Addresses of Services and Ingresses.

use serde_json::Value;

use super::{Endpoint, EndpointOrigin, MAX_ENDPOINTS, items, text};
use crate::controllers::oam::dispatch::bookkeeping::{annotation, label};

pub(super) const HTTP: &str = "http";
pub(super) const HTTPS: &str = "https";
pub(super) const TCP: &str = "TCP";

/// Ports of an ingress controller, and its host, which administrators write on Ingresses.
const HTTP_PORT: &str = "ingress.controller/http-port";
const HTTPS_PORT: &str = "ingress.controller/https-port";
const HOST: &str = "ingress.controller/host";
const GATEWAY_ROLE: &str = "node-role.kubernetes.io/gateway";
const WORKER_ROLE: &str = "node-role.kubernetes.io/worker";

/// Returns the addresses of a Service. `node` is the address of a node, for a Service of type `NodePort`.
#[must_use]
pub fn of_service(live: &Value, origin: EndpointOrigin<'_>, node: &str) -> Vec<Value> {
    let spec = &live["spec"];
    let type_ = spec["type"].as_str().unwrap_or("ClusterIP");
    let inner = format!(
        "{}.{}",
        text(&live["metadata"]["name"]),
        text(&live["metadata"]["namespace"])
    );
    let ingresses = items(&live["status"]["loadBalancer"]["ingress"]);
    let balancers: Vec<&str> = ingresses
        .flat_map(|ingress| [text(&ingress["hostname"]), text(&ingress["ip"])])
        .filter(|host| !host.is_empty())
        .collect();
    let (hosts, port_field) = match type_ {
        "LoadBalancer" => (balancers, "port"),
        // An endpoint without a host would let a step go on with an address that no client reaches.
        "NodePort" if node.is_empty() => (Vec::new(), "nodePort"),
        "NodePort" => (vec![node], "nodePort"),
        "ClusterIP" | "ExternalName" => (vec![inner.as_str()], "port"),
        _ => (Vec::new(), "port"),
    };
    let of_port = |port: &Value| {
        let endpoint = Endpoint {
            protocol: port["protocol"].as_str().unwrap_or(TCP),
            app_protocol: app_protocol(number(&port["port"])),
            port: number(&port[port_field]),
            port_name: text(&port["name"]),
            is_inner: matches!(type_, "ClusterIP" | "ExternalName"),
            ..Endpoint::default()
        };
        let of_hosts = hosts
            .iter()
            .copied()
            .map(|host| Endpoint { host, ..endpoint }.of(live, origin));
        of_hosts.take(MAX_ENDPOINTS + 1).collect::<Vec<_>>()
    };
    let endpoints = items(&spec["ports"]).flat_map(of_port);
    endpoints.take(MAX_ENDPOINTS + 1).collect()
}

/// Returns the addresses of the rules of an Ingress.
#[must_use]
pub fn of_ingress(live: &Value, origin: EndpointOrigin<'_>) -> Vec<Value> {
    let spec = &live["spec"];
    let of_rule = |rule: &Value| {
        let host = text(&rule["host"]);
        let is_secured = |tls: &Value| {
            let mut hosts = items(&tls["hosts"]).peekable();
            hosts.peek().is_none() || hosts.any(|one| text(one) == host)
        };
        let (app_protocol, port_annotation, default_port) = if items(&spec["tls"]).any(is_secured) {
            (HTTPS, HTTPS_PORT, 443)
        } else {
            (HTTP, HTTP_PORT, 80)
        };
        let port = annotation(live, port_annotation).and_then(|text| text.parse::<u64>().ok());
        let endpoint = Endpoint {
            protocol: TCP,
            app_protocol,
            // A rule without a host is reached by the address of the controller.
            host: if host.is_empty() {
                annotation(live, HOST).unwrap_or_default()
            } else {
                host
            },
            port: port.filter(|port| *port > 0).unwrap_or(default_port),
            ..Endpoint::default()
        };
        let paths = items(&rule["http"]["paths"]).map(|path| {
            let path = text(&path["path"]);
            Endpoint { path, ..endpoint }.of(live, origin)
        });
        paths.take(MAX_ENDPOINTS + 1).collect::<Vec<_>>()
    };
    let endpoints = items(&spec["rules"]).flat_map(of_rule);
    endpoints.take(MAX_ENDPOINTS + 1).collect()
}

/// Returns the address at which ports of nodes are reached: of a gateway, or else of a worker, or else of any node; an
/// external one if there is one.
#[must_use]
pub fn node_address(nodes: &[Value]) -> &str {
    let gateways: Vec<&Value> = with_role(nodes, GATEWAY_ROLE).into_iter().take(1).collect();
    let candidates = [gateways, with_role(nodes, WORKER_ROLE), nodes.iter().collect()];
    let candidates = candidates
        .into_iter()
        .find(|nodes| !nodes.is_empty())
        .unwrap_or_default();
    let external = candidates
        .iter()
        .copied()
        .find_map(|node| address_of(node, "ExternalIP"));
    let internal = || {
        candidates
            .first()
            .copied()
            .and_then(|node| address_of(node, "InternalIP"))
    };
    external.or_else(internal).unwrap_or_default()
}

fn with_role<'n>(nodes: &'n [Value], role: &str) -> Vec<&'n Value> {
    nodes.iter().filter(|node| label(node, role).is_some()).collect()
}

fn address_of<'a>(node: &'a Value, type_: &str) -> Option<&'a str> {
    let mut addresses = items(&node["status"]["addresses"]);
    addresses.find(|address| address["type"] == type_)?["address"].as_str()
}

/// Returns the protocol of well-known ports.
fn app_protocol(port: u64) -> &'static str {
    match port {
        80 | 8080 => HTTP,
        443 => HTTPS,
        3306 => "mysql",
        6379 => "redis",
        _ => "",
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}
