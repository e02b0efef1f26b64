use rstest::rstest;

use super::*;

const WORKLOADS: &str = "/apis/core.oam.dev/v1beta1/namespaces/team/workloaddefinitions";

fn add(path: &str, value: &Value) -> Verdict {
    Verdict::Allowed {
        patch: serde_json::from_value(json!([{ "op": "add", "path": path, "value": value }])).unwrap(),
        warnings: Vec::new(),
    }
}

#[rstest]
#[case::nothing(json!({ "workload": {} }), add("/spec/workload/type", &json!("autodetects.core.oam.dev")))]
#[case::null(json!({ "workload": null }), add("/spec/workload", &json!({ "type": "autodetects.core.oam.dev" })))]
#[case::no_workload(json!({}), add("/spec/workload", &json!({ "type": "autodetects.core.oam.dev" })))]
#[case::no_spec(Value::Null, add("/spec", &json!({ "workload": { "type": "autodetects.core.oam.dev" } })))]
#[case::automatic(json!({ "workload": { "type": "autodetects.core.oam.dev" } }), Verdict::allowed())]
#[case::of_group(
    json!({ "workload": { "type": "", "definition": { "apiVersion": "apps/v1", "kind": "Deployment" } } }),
    add("/spec/workload/type", &json!("deployments.apps"))
)]
#[case::of_core(
    json!({ "workload": { "definition": { "apiVersion": "v1", "kind": "Service" } } }),
    add("/spec/workload/type", &json!("services"))
)]
#[case::existing(json!({ "workload": { "type": "existing" } }), Verdict::allowed())]
#[tokio::test]
async fn the_type_of_a_workload_is_completed(#[case] spec: Value, #[case] expected: Verdict) {
    let object = json!({ "metadata": { "name": "existing" } });
    let fixture = Fixture::new(Server::with(&format!("{WORKLOADS}/existing"), object));
    let request = created(DefinitionKind::Component, &definition(spec));
    assert_eq!(fixture.mutate(&request).await, expected);
}

#[rstest]
#[case::missing(true, false, true)]
#[case::dry_run(true, true, false)]
#[case::not_wanted(false, false, false)]
#[tokio::test]
async fn a_missing_workload_definition_is_created_but_not_in_dry_runs(
    #[case] is_wanted: bool,
    #[case] is_dry_run: bool,
    #[case] is_created: bool,
) {
    let mut fixture = Fixture::new(Server::default());
    fixture.webhooks.creates_workload_definitions = is_wanted;
    let component = with_workload("", "apps/v1", "Deployment");
    let dry_run = [("dryRun", json!(is_dry_run))];
    let request = reviewed(DefinitionKind::Component, "CREATE", &component, &dry_run);
    let verdict = fixture.mutate(&request).await;
    if is_wanted {
        assert_eq!(verdict, add("/spec/workload/type", &json!("deployments.apps")));
    } else {
        let expected = "workloadDefinition deployments.apps referenced by componentDefinition is not found, please \
                        create the workloadDefinition first";
        assert_eq!(verdict, Verdict::Denied(expected.to_owned()));
    }
    let get = format!("GET {WORKLOADS}/deployments.apps");
    let create = is_created.then(|| format!("POST {WORKLOADS}"));
    let expected: Vec<_> = [get].into_iter().chain(create).collect();
    assert_eq!(*fixture.server.requests.lock(), expected);
}

#[rstest]
#[case::type_alone(definition(json!({ "workload": { "type": "missing" } })), Some("workloadDefinition missing"))]
#[case::path(definition(json!({ "workload": { "type": "../x" } })), Some("workloadDefinition ../x"))]
#[case::unknown_kind(with_workload("", "apps/v1", "Widget"), Some("no matches for kind \"Widget\""))]
#[case::left_to_the_validation(with_workload("services", "apps/v1", "Deployment"), None)]
#[tokio::test]
async fn a_workload_that_is_not_found_creates_nothing(#[case] component: Value, #[case] expected: Option<&str>) {
    let fixture = Fixture::new(Server::default());
    let request = created(DefinitionKind::Component, &component);
    let verdict = fixture.mutate(&request).await;
    match expected {
        Some(text) => assert!(
            matches!(&verdict, Verdict::Denied(denied) if denied.starts_with(text)),
            "{verdict:?}"
        ),
        None => assert_eq!(verdict, Verdict::allowed()),
    }
    assert!(
        fixture
            .server
            .requests
            .lock()
            .iter()
            .all(|request| !request.starts_with("POST"))
    );
}
