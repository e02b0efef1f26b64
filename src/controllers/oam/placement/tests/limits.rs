use super::*;

fn topologies(count: usize) -> Vec<AppPolicy> {
    let policies = (0..count).map(|index| {
        let namespace = json!({ "namespace": format!("n{index}") });
        policy(&format!("t{index}"), "topology", namespace)
    });
    policies.collect()
}

fn step(policies: &[AppPolicy]) -> DeployParameters {
    let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    DeployParameters::parse(&json!({ "policies": names })).unwrap()
}

fn text<T>(result: Result<T, PlacementError>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn many_components_in_many_places_are_refused() {
    let policies = topologies(100);
    let error = text(deploy(&many(1_000), &policies, &SETTINGS));
    assert_eq!(
        error,
        "100000 components and placements exceed the limit of 5000 for all deploy steps of an application; deploy fewer \
         components or to fewer placements, or split the application"
    );
    assert_eq!(deploy(&many(1_000), &policies[..5], &SETTINGS).unwrap().len(), 5_000);
}

#[test]
fn the_steps_of_an_application_share_the_limits() {
    let (components, policies) = (components(&many(1_000)), topologies(3));
    let mut deployer = Deployer::new(&components, &policies, SETTINGS);
    assert_eq!(deployer.deployments(&step(&policies)).unwrap().len(), 3_000);
    assert!(deployer.component("web-1", Place::default()).unwrap().is_some());
    assert!(deployer.component("lost", Place::default()).unwrap().is_none());
    let error = text(deployer.deployments(&step(&policies[..2])));
    assert!(error.starts_with("5001 components and placements exceed"), "{error}");
    let mut deployer = Deployer::new(&components, &policies, SETTINGS);
    let all = RemainingParameters::default();
    let steps = (0..6).map(|_| deployer.remaining(&all).is_ok());
    assert_eq!(steps.collect::<Vec<_>>(), [true, true, true, true, true, false]);
}

#[test]
fn a_large_component_in_many_places_is_refused() {
    let large = json!({ "name": "web", "type": "webservice", "properties": { "text": "x".repeat(500_000) } });
    let keys = |count: usize| {
        let keys: Vec<_> = (0..count).map(|index| index.to_string()).collect();
        [policy("r", "replication", json!({ "keys": keys, "selector": ["web"] }))]
    };
    assert_eq!(
        deploy(std::slice::from_ref(&large), &keys(60), &SETTINGS)
            .unwrap()
            .len(),
        60
    );
    let error = text(deploy(std::slice::from_ref(&large), &keys(70), &SETTINGS));
    assert!(
        error.contains("bytes of components at their placements, with their policies, exceed the limit of 33554432"),
        "{error}"
    );
    let error = text(deploy(std::slice::from_ref(&large), &topologies(70), &SETTINGS));
    assert!(error.contains("exceed the limit of 33554432"), "{error}");

    let components = components(&[large]);
    let mut deployer = Deployer::new(&components, &[], SETTINGS);
    let mut steps = (0..70).map(|_| deployer.component("web", Place::default()));
    assert!(steps.any(|placed| placed.is_err()));
}

#[test]
fn work_whose_result_a_selector_drops_counts() {
    let changes: Vec<_> = (0..500).map(|_| json!({ "name": "*" })).collect();
    let properties = json!({ "components": changes, "selector": [] });
    let policies = [policy("o", "override", properties)];
    let components = components(&many(510));
    let mut deployer = Deployer::new(&components, &policies, SETTINGS);
    assert!(deployer.deployments(&step(&policies)).unwrap().is_empty());
    let error = text(deployer.deployments(&step(&policies)));
    assert!(error.contains("for all deploy steps of an application"), "{error}");
}

#[test]
fn a_large_policy_that_many_steps_name_is_refused() {
    let change = json!({ "name": "lost*", "properties": { "text": "x".repeat(500_000) } });
    let policies = [policy("o", "override", json!({ "components": [change] }))];
    let mut deployer = Deployer::new(&[], &policies, SETTINGS);
    let mut steps = (0..70).map(|_| deployer.deployments(&step(&policies)));
    assert!(steps.any(|placed| matches!(placed, Err(PlacementError::TooLarge { .. }))));
}
