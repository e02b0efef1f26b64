use std::collections::BTreeMap;

use crate::api::oam::ServiceStatus;
use crate::controllers::oam::placement::{ServiceKey, merge_replicas, place_service, service_key};
use crate::controllers::oam::reconciler::rollout::render::Placed;
use crate::text::sanitize;

#[derive(Debug, Default)]
pub struct Services {
    /// In the order in which they are shown.
    shown: Vec<ServiceStatus>,
    /// The services that this pass has found, by their replica.
    replicas: BTreeMap<ServiceKey, BTreeMap<String, ServiceStatus>>,
}

impl Services {
    pub const fn new(shown: Vec<ServiceStatus>) -> Self {
        Self {
            shown,
            replicas: BTreeMap::new(),
        }
    }

    pub fn shown(&self) -> &[ServiceStatus] {
        &self.shown
    }

    pub fn are_healthy(&self) -> bool {
        self.shown.iter().all(|service| service.healthy)
    }

    pub fn clear(&mut self) {
        self.shown.clear();
    }

    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.shown.retain(|service| is_kept(&service.name));
    }

    pub fn set(&mut self, placed: &Placed, service: ServiceStatus) {
        let replicas = self.replicas.entry(service_key(&service)).or_default();
        replicas.insert(placed.place.replica_key.clone(), service);
        let replicas = replicas.iter().map(|(key, service)| (key.as_str(), service.clone()));
        for service in merge_replicas(replicas.collect()) {
            self.show(service);
        }
    }

    /// Uses the order of `before`: KubeVela lists services as deployed, and an order alone is not written.
    pub fn replace(&mut self, services: Vec<(&Placed, ServiceStatus)>, before: &[ServiceStatus]) {
        for (placed, service) in &services {
            let replicas = self.replicas.entry(service_key(service)).or_default();
            replicas.insert(placed.place.replica_key.clone(), service.clone());
        }
        let services = services.into_iter();
        let services = services.map(|(placed, service)| (placed.place.replica_key.as_str(), service));
        self.shown = merge_replicas(services.collect());
        self.shown.sort_by_cached_key(|service| {
            let position = before.iter().position(|old| identity(old) == identity(service));
            position.unwrap_or(before.len())
        });
    }

    /// Returns true if the workload is healthy, as this pass has found it or else as the status shows it.
    pub fn is_workload_healthy(&self, placed: &Placed, namespace: &str) -> bool {
        let wanted = service_of(placed, namespace);
        let replicas = self.replicas.get(&service_key(&wanted));
        if let Some(replica) = replicas.and_then(|replicas| replicas.get(&placed.place.replica_key)) {
            return replica.workload_healthy;
        }
        let mut shown = self.shown.iter();
        let service = shown.find(|service| identity(service) == identity(&wanted));
        service.is_some_and(|service| service.workload_healthy)
    }

    fn show(&mut self, service: ServiceStatus) {
        let mut shown = self.shown.iter_mut();
        match shown.find(|old| identity(old) == identity(&service)) {
            Some(old) => *old = service,
            None => self.shown.push(service),
        }
    }
}

/// Returns a status that says where a component is. `namespace` is that of the Application.
pub fn service_of(placed: &Placed, namespace: &str) -> ServiceStatus {
    let mut service = ServiceStatus {
        name: placed.name().to_owned(),
        ..ServiceStatus::default()
    };
    place_service(&mut service, &placed.place, namespace);
    service
}

/// Returns the status of a component whose health is not known.
pub fn unknown_service(placed: &Placed, namespace: &str, problem: &str) -> ServiceStatus {
    ServiceStatus {
        message: sanitize(problem),
        ..service_of(placed, namespace)
    }
}

/// Returns the status of a component as it was shown, unless it names another replica.
pub fn service_shown(shown: &[ServiceStatus], placed: &Placed, namespace: &str) -> Option<ServiceStatus> {
    let wanted = service_of(placed, namespace);
    let service = shown.iter().find(|service| identity(service) == identity(&wanted))?;
    let is_of_one = service.healthy || placed.place.replica_key.is_empty();
    is_of_one.then(|| service.clone())
}

fn identity(service: &ServiceStatus) -> (&str, &str, &str) {
    (&service.name, &service.namespace, &service.cluster)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::oam::parse::{ParsedComponent, Workload};
    use crate::controllers::oam::placement::Place;

    fn placed(name: &str, replica_key: &str) -> Placed {
        let definition = json!({ "metadata": { "name": "worker" }, "spec": { "workload": {} } });
        let component = json!({ "name": name, "type": "worker" });
        Placed {
            component: ParsedComponent {
                component: serde_json::from_value(component).unwrap(),
                type_label: "worker".to_owned(),
                definition: Workload::Component(serde_json::from_value(definition).unwrap()),
                traits: Vec::new(),
            },
            place: Place {
                replica_key: replica_key.to_owned(),
                ..Place::default()
            },
        }
    }

    fn service(placed: &Placed, is_healthy: bool) -> ServiceStatus {
        ServiceStatus {
            healthy: is_healthy,
            workload_healthy: is_healthy,
            ..service_of(placed, "team")
        }
    }

    fn names(services: &Services) -> Vec<&str> {
        services.shown().iter().map(|service| service.name.as_str()).collect()
    }

    #[test]
    fn services_keep_the_order_in_which_they_were_deployed() {
        let (web, api, new) = (placed("web", ""), placed("api", ""), placed("new", ""));
        let before = vec![service(&web, true), service(&api, true)];
        let mut services = Services::new(before.clone());
        let found = vec![
            (&new, service(&new, true)),
            (&api, service(&api, true)),
            (&web, service(&web, true)),
        ];
        services.replace(found, &before);
        assert_eq!(names(&services), ["web", "api", "new"]);
        services.set(&web, service(&web, false));
        assert_eq!(names(&services), ["web", "api", "new"]);
        assert!(!services.are_healthy());
        services.retain(|name| name != "web");
        assert!(services.are_healthy());
    }

    #[test]
    fn an_unhealthy_replica_stands_for_all_until_it_is_healthy() {
        let (first, second) = (placed("web", "a"), placed("web", "b"));
        let mut services = Services::default();
        services.set(&first, service(&first, true));
        services.set(&second, service(&second, false));
        assert_eq!(names(&services), ["web"]);
        assert!(!services.are_healthy());
        assert!(services.is_workload_healthy(&first, "team") && !services.is_workload_healthy(&second, "team"));
        services.set(&second, service(&second, true));
        assert!(services.are_healthy());
    }

    #[test]
    fn the_health_of_a_component_that_this_pass_has_not_seen_is_that_of_the_status() {
        let web = placed("web", "");
        let services = Services::new(vec![service(&web, true)]);
        assert!(services.is_workload_healthy(&web, "team"));
        assert!(!services.is_workload_healthy(&web, "elsewhere"));
    }
}
