use serde::Deserialize;
use serde_json::value::RawValue;

use super::decode::{LenientRecord, decode};
use super::{FieldSet, NotReady, ReadinessRule};
use crate::api::lenient::null_as_default;

/// Ready when it exists; a load balancer needs an address for each ingress.
#[derive(Debug)]
pub struct Service;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "type", deserialize_with = "null_as_default")]
    type_: String,
    #[serde(rename = "clusterIP", deserialize_with = "null_as_default")]
    cluster_ip: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    load_balancer: LenientRecord<LoadBalancer>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct LoadBalancer {
    #[serde(deserialize_with = "null_as_default")]
    ingress: Vec<LenientRecord<Ingress>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Ingress {
    #[serde(deserialize_with = "null_as_default")]
    ip: String,
    #[serde(deserialize_with = "null_as_default")]
    hostname: String,
}

impl Ingress {
    /// Accepts hostnames too: kubernetes-sigs' controller counts IPs only and never reports some clouds' load
    /// balancers ready.
    fn has_address(&self) -> bool {
        !self.ip.trim().is_empty() || !self.hostname.trim().is_empty()
    }
}

impl ReadinessRule for Service {
    const FIELDS: FieldSet = FieldSet::SpecAndStatus;

    fn check(_: i64, spec: Option<&RawValue>, status: Option<&RawValue>) -> Result<(), NotReady> {
        let spec: Spec = decode("spec", spec)?;
        let status: Status = decode("status", status)?;
        match spec.type_.as_str() {
            "" | "ClusterIP" | "NodePort" | "ExternalName" => Ok(()),
            "LoadBalancer" => check_load_balancer(&spec, &status.load_balancer.0.ingress),
            other => Err(NotReady::missing(format!("unknown service type {other}"))),
        }
    }
}

fn check_load_balancer(spec: &Spec, ingress: &[LenientRecord<Ingress>]) -> Result<(), NotReady> {
    if spec.cluster_ip.trim().is_empty() {
        return Err(NotReady::missing("no cluster IP yet"));
    }
    let ready = ingress
        .iter()
        .filter(|LenientRecord(ingress)| ingress.has_address())
        .count();
    match ingress.len() {
        _ if ready == 0 => Err(NotReady::missing("no address from the load balancer")),
        all if ready < all => Err(NotReady::missing(format!(
            "{ready} of {all} ingresses of the load balancer have an address"
        ))),
        _ => Ok(()),
    }
}
