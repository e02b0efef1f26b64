//! Addresses of HTTPRoutes, whose ports are those of their Gateways.

use std::collections::HashSet;

use serde_json::Value;

use super::addresses::{HTTP, HTTPS, TCP};
use super::{Endpoint, EndpointOrigin, MAX_ENDPOINTS, items, text};
use crate::controllers::oam::dispatch::bookkeeping::annotation;
use crate::controllers::oam::objects::ObjectId;
use crate::controllers::oam::trackers::LOCAL;

/// Annotation of a Gateway: its ports as they are reached from outside, such as `8443:443,8000:80`.
const PORTS_MAPPING: &str = "ports-mapping";

/// The protocol and port of a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayListener {
    app_protocol: &'static str,
    pub(super) port: u64,
}

impl Default for GatewayListener {
    fn default() -> Self {
        Self {
            app_protocol: HTTP,
            port: 80,
        }
    }
}

/// Returns the first Gateway of a route of a cluster, with the name of its listener, if the route names one.
#[must_use]
pub fn gateway_of<'r>(route: &'r Value, cluster: &str) -> Option<(ObjectId, Option<&'r str>)> {
    let mut parents = items(&route["spec"]["parentRefs"]);
    let parent = parents.find(|parent| parent["kind"].as_str().is_none_or(|kind| kind == "Gateway"))?;
    let namespace = parent["namespace"].as_str();
    let id = ObjectId {
        cluster: LOCAL.to_owned(),
        api_version: text(&route["apiVersion"]).to_owned(),
        kind: "Gateway".to_owned(),
        namespace: namespace
            .unwrap_or_else(|| text(&route["metadata"]["namespace"]))
            .to_owned(),
        name: text(&parent["name"]).to_owned(),
    };
    Some((id.in_cluster(cluster), parent["sectionName"].as_str()))
}

/// Returns the listener of a live Gateway: by its name, or else the first.
#[must_use]
pub fn listener(gateway: &Value, name: Option<&str>) -> Option<GatewayListener> {
    let mut listeners = items(&gateway["spec"]["listeners"]);
    let listener = listeners.find(|listener| name.is_none_or(|name| text(&listener["name"]) == name))?;
    let port = listener["port"].as_u64()?;
    let mappings = annotation(gateway, PORTS_MAPPING).unwrap_or_default().split(',');
    let mut mapped = mappings.filter_map(|mapping| {
        let (from, to) = mapping.trim().split_once(':')?;
        let is_mapped = from.parse::<u64>().ok() == Some(port);
        is_mapped.then(|| to.parse::<u64>().ok()).flatten()
    });
    Some(GatewayListener {
        app_protocol: if listener["protocol"] == "HTTPS" { HTTPS } else { HTTP },
        port: mapped.next().unwrap_or(port),
    })
}

/// Returns the addresses of a route, each host with each prefix once.
#[must_use]
pub fn of_route(live: &Value, origin: EndpointOrigin<'_>, listener: GatewayListener) -> Vec<Value> {
    let spec = &live["spec"];
    let mut seen = HashSet::new();
    let mut endpoints = Vec::new();
    for rule in items(&spec["rules"]) {
        for host in items(&spec["hostnames"]).map(text) {
            for found in items(&rule["matches"]) {
                let path = &found["path"];
                let is_prefix = path["type"].as_str().is_none_or(|type_| type_ == "PathPrefix");
                let path = if is_prefix { text(&path["value"]) } else { "" };
                if !seen.insert((host, path)) {
                    continue;
                }
                let endpoint = Endpoint {
                    protocol: TCP,
                    app_protocol: listener.app_protocol,
                    host,
                    port: listener.port,
                    path,
                    ..Endpoint::default()
                };
                endpoints.push(endpoint.of(live, origin));
                if endpoints.len() > MAX_ENDPOINTS {
                    return endpoints;
                }
            }
        }
    }
    endpoints
}
