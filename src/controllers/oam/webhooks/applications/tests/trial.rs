use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::components::ComponentChecks;
use super::super::settings::ApplicationWebhookSettings;
use super::{FakeDefinitions, SYSTEM, app, settings, shown};
use crate::controllers::oam::parse::tests::{Cluster, template};
use crate::controllers::oam::render::evaluate::Evaluate;
use crate::controllers::oam::render::tests::fake::{FakeError, FakeEvaluator};
use crate::cue::{CueSource, TextErrors};

const INCOMPLETE: FakeError = FakeError::Invalid("_vela.output.image: incomplete value string");
const CONFLICT: FakeError = FakeError::Invalid("_vela.output.port: conflicting values 1 and \"a\"");

fn definitions() -> FakeDefinitions {
    let mut cluster = Cluster::with_definitions();
    let mut post = template("outputs: a: {}");
    post["spec"]["stage"] = json!("PostDispatch");
    cluster.add("TraitDefinition", SYSTEM, "late", &post);
    let live = template("patch: a: context.output.status.ready");
    cluster.add("TraitDefinition", SYSTEM, "live", &live);
    cluster.add(
        "ComponentDefinition",
        SYSTEM,
        "helm",
        &template("import \"vela/helm\"\noutput: {}"),
    );
    let module = json!({ "spec": { "schematic": { "terraform": { "configuration": "" } } } });
    cluster.add("ComponentDefinition", SYSTEM, "rds", &module);
    cluster.add(
        "ComponentDefinition",
        SYSTEM,
        "reads",
        &template("import \"vela/kube\"\noutput: {}"),
    );
    cluster.add("ComponentDefinition", SYSTEM, "ref-objects", &template("output: {}"));
    FakeDefinitions::of(cluster)
}

fn application(components: &Value) -> Value {
    json!({ "metadata": { "name": "shop", "namespace": "team" }, "spec": { "components": components } })
}

fn component(name: &str, traits: &[&str]) -> Value {
    let traits: Vec<Value> = traits.iter().map(|type_| json!({ "type": type_ })).collect();
    json!({ "name": name, "type": "webservice", "traits": traits })
}

async fn checked_by<E: Evaluate>(evaluator: &E, app: &Value, settings: &ApplicationWebhookSettings) -> Vec<String> {
    let checks = ComponentChecks {
        app: &super::app(app),
        settings,
        definitions: &definitions(),
        evaluator,
        deadline: Instant::now() + Duration::from_secs(3),
    };
    shown(checks.run().await)
}

async fn checked(
    app: &Value,
    answers: impl IntoIterator<Item = Result<Value, FakeError>>,
) -> (Vec<String>, FakeEvaluator) {
    let evaluator = FakeEvaluator::new(answers);
    let checked = checked_by(&evaluator, app, &settings()).await;
    (checked, evaluator)
}

fn rendered() -> Result<Value, FakeError> {
    Ok(json!({ "output": { "kind": "Deployment" }, "outputs": { "service": { "kind": "Service" } } }))
}

fn patched(key: &str) -> Result<Value, FakeError> {
    Ok(json!({ "outputs": { key: { "kind": "Ingress" } } }))
}

const BASE: &str = "cannot create the validation process context of app=shop in namespace=team: evaluate base template \
                    app=shop in namespace=team: component web: ";

#[tokio::test]
async fn all_components_are_rendered_with_their_traits() {
    let app = application(&json!([component("web", &["scaler", "expose"]), component("api", &[])]));
    let (checked, evaluator) = checked(&app, [rendered(), patched("a"), patched("b"), rendered()]).await;
    assert_eq!(checked, [] as [&str; 0]);
    let sources = evaluator.sources();
    assert_eq!(sources.len(), 4);
    assert!(
        sources[1].contains("// scaler") && sources[3].contains("// webservice"),
        "{sources:?}"
    );
}

#[rstest]
#[case::of_a_component(vec![Err(CONFLICT)], format!("{BASE}output.port: conflicting values 1 and \"a\""))]
#[case::of_a_trait(
    vec![rendered(), Err(CONFLICT)],
    "cannot evaluate trait \"scaler\": component web: trait scaler: output.port: conflicting values 1 and \"a\"".to_owned()
)]
#[case::of_the_author(
    vec![rendered(), Ok(json!({ "errs": ["no port"] }))],
    "cannot evaluate trait \"scaler\": component web: trait scaler: no port".to_owned()
)]
#[case::of_a_name_of_the_component(
    vec![rendered(), patched("service")],
    "cannot evaluate trait \"scaler\": outputs item name must be unique: auxiliary \"service\" already exits".to_owned()
)]
#[case::without_output(vec![Ok(json!({}))], format!("{BASE}the template has no output"))]
#[tokio::test]
async fn a_fault_of_a_template_is_an_error(#[case] answers: Vec<Result<Value, FakeError>>, #[case] expected: String) {
    let (checked, _) = checked(&application(&json!([component("web", &["scaler"])])), answers).await;
    assert_eq!(checked, [format!("  1) \"schematic\": {expected}.")]);
}

#[tokio::test]
async fn the_components_after_a_fault_are_checked_too() {
    let app = application(&json!([
        component("web", &[]),
        component("api", &[]),
        component("db", &[])
    ]));
    let (checked, _) = checked(&app, [Err(CONFLICT), rendered(), Err(CONFLICT)]).await;
    assert_eq!(checked.len(), 2, "{checked:?}");
    assert!(checked[1].contains("component db: "), "{checked:?}");
}

#[tokio::test]
async fn a_value_that_is_missing_is_a_warning() {
    let app = application(&json!([component("web", &["scaler"]), component("api", &[])]));
    let (checked, evaluator) = checked(&app, [Err(INCOMPLETE), rendered()]).await;
    assert_eq!(
        checked,
        ["component web: output.image: incomplete value string, so the component can't be rendered"]
    );
    assert_eq!(evaluator.sources().len(), 2, "traits need a workload");
}

#[rstest]
#[case::an_input(json!({ "components": [{ "name": "web", "type": "webservice", "inputs": [{ "from": "a" }] }] }))]
#[case::an_input_of_a_step(json!({
    "components": [component("web", &[])],
    "workflow": { "steps": [{ "name": "a", "type": "deploy", "inputs": [{ "from": "a", "parameterKey": "b" }] }] },
}))]
#[case::an_override(json!({
    "components": [component("web", &[])], "policies": [{ "name": "a", "type": "override", "properties": {} }],
}))]
#[case::a_live_object(json!({ "components": [component("web", &["live"])] }))]
#[tokio::test]
async fn a_value_that_may_come_later_is_not_missed(#[case] spec: Value) {
    let app = json!({ "metadata": { "name": "shop", "namespace": "team" }, "spec": spec });
    let (checked, _) = checked(&app, [Err(INCOMPLETE)]).await;
    assert_eq!(checked, [] as [&str; 0]);
}

#[tokio::test]
async fn traits_of_the_last_stage_and_references_are_not_rendered() {
    let reference = json!({ "name": "ref", "type": "ref-objects" });
    let app = application(&json!([reference, component("web", &["late"])]));
    let (checked, evaluator) = checked(&app, [rendered()]).await;
    assert_eq!((checked.len(), evaluator.sources().len()), (0, 1));
}

#[tokio::test]
async fn what_the_controller_does_not_support_is_a_warning() {
    let (checked, _) = checked(&application(&json!([{ "name": "chart", "type": "helm" }])), []).await;
    assert_eq!(
        checked,
        ["component chart with an import of vela/helm is not supported"]
    );
}

#[tokio::test]
async fn a_terraform_component_without_a_configuration_is_an_error() {
    let (checked, evaluator) = checked(&application(&json!([{ "name": "db", "type": "rds" }])), []).await;
    let expected = "component db: failed to generate Terraform Configuration workload for workload db: terraform \
                    configuration is not set";
    assert_eq!(checked, [format!("  1) \"schematic\": {expected}.")]);
    assert_eq!(evaluator.sources(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_template_that_calls_functions_is_not_rendered() {
    let app = application(&json!([{ "name": "reads", "type": "reads" }, component("web", &[])]));
    let (checked, evaluator) = checked(&app, [rendered()]).await;
    let calls = "component reads: functions are called in deployed components and traits only";
    assert_eq!(checked, [format!("{calls}, so the component was not checked")]);
    assert_eq!(evaluator.sources().len(), 1);
}

#[tokio::test]
async fn a_template_that_is_stopped_is_a_warning_and_the_next_component_is_checked() {
    let app = application(&json!([component("web", &[]), component("api", &[])]));
    let (checked, evaluator) = checked(&app, [Err(FakeError::Stopped), rendered()]).await;
    let stopped = "component web: template of ComponentDefinition webservice was stopped: more than 10s";
    assert_eq!(checked, [format!("{stopped}, so the component was not checked")]);
    assert_eq!(evaluator.sources().len(), 2);
}

#[tokio::test]
async fn without_an_evaluator_components_are_allowed_with_a_warning() {
    let app = application(&json!([component("web", &[]), component("api", &[])]));
    let (checked, evaluator) = checked(&app, []).await;
    assert_eq!(checked, ["2 of 2 components were not checked: no CUE evaluator"]);
    assert_eq!(evaluator.sources().len(), 1);
}

/// Takes two seconds for each template.
struct Slow;

impl Evaluate for Slow {
    type Error = FakeError;

    async fn evaluate(&self, _: CueSource) -> Result<Value, FakeError> {
        tokio::time::sleep(Duration::from_secs(2)).await;
        rendered()
    }

    fn is_stopped(_: &FakeError) -> bool {
        false
    }

    fn text_errors(_: &FakeError) -> Option<TextErrors> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn components_that_take_too_long_are_allowed_with_a_warning() {
    let app = application(&json!([component("a", &[]), component("b", &[]), component("c", &[])]));
    let start = Instant::now();
    assert_eq!(
        checked_by(&Slow, &app, &settings()).await,
        ["2 of 3 components were not checked: their templates take longer than a review may"]
    );
    assert!((3000..3010).contains(&start.elapsed().as_millis()));
}

#[tokio::test]
async fn the_number_of_trials_is_bounded() {
    let components: Vec<Value> = (0..103).map(|number| component(&format!("c{number}"), &[])).collect();
    let (checked, evaluator) = checked(&application(&json!(components)), (0..103).map(|_| rendered())).await;
    assert_eq!(
        checked,
        ["3 of 103 components were not checked: a review checks 100 components"]
    );
    assert_eq!(evaluator.sources().len(), 100);
}

#[rstest]
#[case::duplicate_names(
    json!([component("a", &[]), component("b", &[]), component("a", &[])]),
    "\"components[2].name\": duplicated component name a."
)]
#[case::unknown_type(
    json!([{ "name": "a", "type": "gone" }]),
    "\"spec\": failed to parseComponents: component a: ComponentDefinition gone not found in namespace team, namespace vela-system."
)]
#[tokio::test]
async fn components_have_names_and_known_types(#[case] components: Value, #[case] expected: &str) {
    let (checked, evaluator) = checked(&application(&components), []).await;
    assert_eq!(checked, [format!("  1) {expected}")]);
    assert!(evaluator.sources().is_empty());
}

#[tokio::test]
async fn strict_settings_make_unknown_keys_errors() {
    let app = json!({
        "metadata": { "name": "shop", "namespace": "team" },
        "spec": { "components": [], "policies": [{ "name": "p", "type": "topology", "properties": { "clustr": [] } }] },
    });
    let strict = ApplicationWebhookSettings {
        is_strict: true,
        ..settings()
    };
    let evaluator = FakeEvaluator::default();
    let checked = checked_by(&evaluator, &app, &strict).await;
    assert_eq!(checked, ["  1) \"spec\": policy p: unknown key clustr."]);
    assert!(checked_by(&evaluator, &app, &settings()).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn definitions_that_can_not_be_read_are_a_warning() {
    let app = app(&application(&json!([component("web", &[])])));
    let failing = FakeDefinitions {
        failure: Some("no memory left".to_owned()),
        ..definitions()
    };
    let pending = FakeDefinitions {
        is_pending: true,
        ..definitions()
    };
    for (definitions, expected) in [
        (failing, "components were not checked: no memory left"),
        (
            pending,
            "components were not checked: their definitions were not read in time",
        ),
    ] {
        let checks = ComponentChecks {
            app: &app,
            settings: &settings(),
            definitions: &definitions,
            evaluator: &FakeEvaluator::default(),
            deadline: Instant::now() + Duration::from_secs(3),
        };
        assert_eq!(shown(checks.run().await), [expected]);
    }
}
