use std::collections::HashMap;

use super::Place;
use crate::api::oam::ServiceStatus;

/// Sets where a component is. A step that names no cluster leaves the field empty; `env` belongs to old policies.
pub fn place_service(service: &mut ServiceStatus, place: &Place, application_namespace: &str) {
    let namespace = match place.namespace.as_str() {
        "" => application_namespace,
        namespace => namespace,
    };
    namespace.clone_into(&mut service.namespace);
    service.cluster.clone_from(&place.cluster);
}

/// Name, namespace, cluster and environment.
pub type ServiceKey = [String; 4];

/// Returns the identity of a status. Replicas have one status together.
#[must_use]
pub fn service_key(service: &ServiceStatus) -> ServiceKey {
    let ServiceStatus {
        name,
        namespace,
        cluster,
        env,
        ..
    } = service;
    [name, namespace, cluster, env].map(Clone::clone)
}

/// The first unhealthy replica stands for all, and its message names it: KubeVela's choice depends on its threads.
#[must_use]
pub fn merge_replicas(services: Vec<(&str, ServiceStatus)>) -> Vec<ServiceStatus> {
    let mut merged: Vec<ServiceStatus> = Vec::new();
    let mut positions: HashMap<ServiceKey, usize> = HashMap::new();
    for (replica_key, mut service) in services {
        if !service.healthy && !replica_key.is_empty() {
            service.message = match service.message.as_str() {
                "" => format!("replica {replica_key}"),
                message => format!("replica {replica_key}: {message}"),
            };
        }
        let position = *positions.entry(service_key(&service)).or_insert(merged.len());
        match merged.get_mut(position) {
            Some(former) if former.healthy && !service.healthy => *former = service,
            Some(_) => {}
            None => merged.push(service),
        }
    }
    merged
}
