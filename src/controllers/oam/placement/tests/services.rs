use super::*;
use crate::api::oam::ServiceStatus;

fn service(name: &str, is_healthy: bool, message: &str) -> ServiceStatus {
    ServiceStatus {
        name: name.to_owned(),
        healthy: is_healthy,
        message: message.to_owned(),
        ..ServiceStatus::default()
    }
}

#[rstest]
#[case::deploy_step("local", "", ("team", "local"))]
#[case::topology("local", "prod", ("prod", "local"))]
#[case::apply_component("", "", ("team", ""))]
fn a_service_says_where_it_is(#[case] cluster: &str, #[case] namespace: &str, #[case] expected: (&str, &str)) {
    let place = Place {
        cluster: cluster.to_owned(),
        namespace: namespace.to_owned(),
        replica_key: "a".to_owned(),
    };
    let mut placed = service("web", true, "");
    place_service(&mut placed, &place, "team");
    assert_eq!((placed.namespace.as_str(), placed.cluster.as_str()), expected);
    assert_eq!(placed.env, "");
}

#[test]
fn an_unhealthy_replica_stands_for_all() {
    let merged = merge_replicas(vec![
        ("", service("db", false, "Ready:0/1")),
        ("a", service("web", true, "Ready:1/1")),
        ("b", service("web", false, "Ready:0/1")),
        ("c", service("web", false, "")),
        ("a", service("job", true, "done")),
    ]);
    let expected = [
        service("db", false, "Ready:0/1"),
        service("web", false, "replica b: Ready:0/1"),
        service("job", true, "done"),
    ];
    assert_eq!(merged, expected);
}

#[test]
fn services_in_other_places_stay_apart() {
    let in_namespace = |namespace: &str| ServiceStatus {
        namespace: namespace.to_owned(),
        ..service("web", true, "")
    };
    let merged = merge_replicas(vec![("", in_namespace("one")), ("", in_namespace("two"))]);
    assert_eq!(merged.len(), 2);
    assert_ne!(service_key(&merged[0]), service_key(&merged[1]));
}
