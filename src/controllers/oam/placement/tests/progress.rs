use super::*;

fn chain() -> Vec<Value> {
    vec![
        json!({ "name": "web", "type": "t", "dependsOn": ["api"] }),
        json!({ "name": "api", "type": "t", "dependsOn": ["db"] }),
        json!({ "name": "db", "type": "t" }),
    ]
}

fn two_namespaces() -> Vec<AppPolicy> {
    ["one", "two"]
        .map(|namespace| policy(namespace, "topology", json!({ "namespace": namespace })))
        .to_vec()
}

/// Checks components until nothing more is known; `healthy` are keys. Returns the order of the checks.
fn check_all(progress: &mut PlacementProgress<'_>, placed: &[PlacedComponent], healthy: &[&str]) -> Vec<String> {
    let mut order = Vec::new();
    loop {
        let next = progress.next_checks();
        if next.is_empty() {
            return order;
        }
        for index in next {
            let key = placed[index].key();
            let check = if healthy.contains(&key.as_str()) {
                PlacementCheck::Healthy {
                    outputs: Ok(Vec::new()),
                }
            } else {
                PlacementCheck::Unhealthy
            };
            progress.record(index, check);
            order.push(key);
        }
    }
}

fn to_apply(progress: &PlacementProgress<'_>, placed: &[PlacedComponent]) -> Vec<String> {
    progress
        .to_apply()
        .into_iter()
        .map(|index| placed[index].key())
        .collect()
}

#[test]
fn a_component_waits_for_those_that_it_depends_on_in_its_own_place() {
    let placed = deploy(&chain(), &two_namespaces(), &SETTINGS).unwrap();
    let mut progress = PlacementProgress::new(&placed);
    let order = check_all(&mut progress, &placed, &["local/one//db"]);
    assert_eq!(order, ["local/one//db", "local/two//db", "local/one//api"]);
    assert_eq!(to_apply(&progress, &placed), ["local/one//api", "local/two//db"]);
    let applied = progress
        .to_apply()
        .into_iter()
        .zip([Applied::Unhealthy, Applied::Healthy]);
    let message = "local/one//api is not healthy,local/one//web is waiting dependents,local/two//web is waiting \
                   dependents,local/two//api is waiting dependents";
    assert_eq!(
        progress.finish(applied.collect()),
        DeployEnd::Waiting(message.to_owned())
    );
}

#[test]
fn a_step_with_healthy_components_applies_nothing_and_ends() {
    let placed = deploy(&chain(), &[], &SETTINGS).unwrap();
    let mut progress = PlacementProgress::new(&placed);
    let order = check_all(&mut progress, &placed, &["local///db", "local///api", "local///web"]);
    assert_eq!(order, ["local///db", "local///api", "local///web"]);
    assert!(progress.to_apply().is_empty());
    assert_eq!(progress.finish(Vec::new()), DeployEnd::Succeeded);
}

#[test]
fn a_step_ends_when_what_it_applies_is_healthy_at_once() {
    let placed = deploy(&web(), &[], &SETTINGS).unwrap();
    let mut progress = PlacementProgress::new(&placed);
    check_all(&mut progress, &placed, &[]);
    assert_eq!(progress.finish(vec![(0, Applied::Healthy)]), DeployEnd::Succeeded);
}

#[test]
fn a_replica_depends_on_the_same_replica_or_on_a_component_without_replicas() {
    let specs = [
        json!({ "name": "db", "type": "t" }),
        json!({ "name": "api", "type": "t", "dependsOn": ["db"] }),
        json!({ "name": "web", "type": "t", "dependsOn": ["api"] }),
    ];
    let policies = [policy(
        "r",
        "replication",
        json!({ "keys": ["a", "b"], "selector": ["api", "web"] }),
    )];
    let placed = deploy(&specs, &policies, &SETTINGS).unwrap();
    let mut progress = PlacementProgress::new(&placed);
    check_all(&mut progress, &placed, &["local///db", "local//a/api"]);
    assert_eq!(to_apply(&progress, &placed), ["local//b/api", "local//a/web"]);
}

#[test]
fn values_of_healthy_components_become_inputs_in_the_same_place() {
    let specs = [
        json!({ "name": "db", "type": "t", "outputs": [{ "name": "host", "valueFrom": "output.metadata.name" }] }),
        json!({ "name": "web", "type": "t", "inputs": [{ "from": "host", "parameterKey": " env.host " }] }),
    ];
    let placed = deploy(&specs, &two_namespaces(), &SETTINGS).unwrap();
    let mut progress = PlacementProgress::new(&placed);
    assert_eq!(progress.next_checks(), [0, 1]);
    let outputs = Ok(vec![("host".to_owned(), json!("db-1"))]);
    progress.record(0, PlacementCheck::Healthy { outputs });
    progress.record(1, PlacementCheck::Unhealthy);
    assert_eq!(progress.next_checks(), [2]);
    assert_eq!(
        progress.inputs(2),
        Ok(vec![("properties.env.host".to_owned(), json!("db-1"))])
    );
    progress.record(2, PlacementCheck::Unhealthy);
    assert_eq!(to_apply(&progress, &placed), ["local/two//db", "local/one//web"]);
    let DeployEnd::Waiting(message) = progress.finish(Vec::new()) else {
        panic!("waiting");
    };
    assert_eq!(message, "local/two//web is waiting dependents");
}

#[test]
fn errors_of_checks_and_of_applying_fail_the_step() {
    let specs = ["a", "b", "c"].map(|name| json!({ "name": name, "type": "t" }));
    let placed = deploy(&specs, &[], &SETTINGS).unwrap();
    let mut progress = PlacementProgress::new(&placed);
    progress.record(0, PlacementCheck::Failed("no template".to_owned()));
    let outputs = Err("output host not found".to_owned());
    progress.record(1, PlacementCheck::Healthy { outputs });
    progress.record(2, PlacementCheck::Unhealthy);
    assert_eq!(progress.to_apply(), [0, 2]);
    let end = progress.finish(vec![(0, Applied::Unhealthy), (2, Applied::Failed("denied".to_owned()))]);
    let message = "Found 3 errors. [(error health check from local///a: no template), (error health check from \
                   local///b: output host not found), (error encountered in cluster local: denied)]";
    assert_eq!(end, DeployEnd::Failed(message.to_owned()));
}

#[test]
fn cycles_and_missing_dependencies_wait() {
    let specs = [
        json!({ "name": "a", "type": "t", "dependsOn": ["b"] }),
        json!({ "name": "b", "type": "t", "dependsOn": ["a"] }),
        json!({ "name": "c", "type": "t", "dependsOn": ["c"] }),
        json!({ "name": "d", "type": "t", "dependsOn": ["lost"] }),
        json!({ "name": "e", "type": "t", "inputs": [{ "from": "lost" }] }),
    ];
    let placed = deploy(&specs, &[], &SETTINGS).unwrap();
    let progress = PlacementProgress::new(&placed);
    assert!(progress.next_checks().is_empty() && progress.to_apply().is_empty());
    let waiting: Vec<_> = ["a", "b", "c", "d", "e"]
        .map(|name| format!("local///{name} is waiting dependents"))
        .into();
    assert_eq!(progress.finish(Vec::new()), DeployEnd::Waiting(waiting.join(",")));
}

#[test]
fn a_message_about_many_components_is_cut() {
    let mut specs = many(1_000);
    for spec in &mut specs {
        spec["dependsOn"] = json!(["lost"]);
    }
    let placed = deploy(&specs, &[], &SETTINGS).unwrap();
    let DeployEnd::Waiting(message) = PlacementProgress::new(&placed).finish(Vec::new()) else {
        panic!("waiting");
    };
    assert!(message.starts_with("local///web-0 is waiting dependents,") && message.len() <= 1024);
}

#[test]
fn a_long_chain_is_checked_in_order() {
    let specs: Vec<_> = (0..1_000)
        .map(|index| match index {
            0 => json!({ "name": "c0", "type": "t" }),
            _ => json!({ "name": format!("c{index}"), "type": "t", "dependsOn": [format!("c{}", index - 1)] }),
        })
        .collect();
    let placed = deploy(&specs, &[], &SETTINGS).unwrap();
    let all = keys(&placed);
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let mut progress = PlacementProgress::new(&placed);
    assert_eq!(check_all(&mut progress, &placed, &all), all);
    assert_eq!(progress.finish(Vec::new()), DeployEnd::Succeeded);
}

#[test]
fn results_of_unknown_components_are_ignored() {
    let mut progress = PlacementProgress::new(&[]);
    progress.record(3, PlacementCheck::Unhealthy);
    assert!(progress.inputs(3) == Ok(Vec::new()));
    assert_eq!(progress.finish(vec![(3, Applied::Unhealthy)]), DeployEnd::Succeeded);
}
