pub mod fake;
mod place;
mod terraform;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::cache_key::{component_key, health_key, key_in_round, post_dispatch_key};
use super::component::{Base, DefinitionTemplate, Rendered, TemplatedComponent, apply_trait, render};
use super::evaluate::ComponentError;
use super::health::HealthTemplates;
use super::release::{Release, ReleaseSettings};
use crate::api::NamespacedName;
use crate::api::oam::{Application, LatestRevision};
use crate::controllers::oam::context::Context;
use crate::controllers::oam::parse::{Definitions, parse};
use crate::controllers::oam::placement::Place;
use fake::{FakeError, FakeEvaluator};

fn template<'a>(name: &'a str, source: &'a str, properties: Option<&'a Value>) -> DefinitionTemplate<'a> {
    DefinitionTemplate {
        name,
        source,
        properties,
        is_strict: false,
        has_status: true,
    }
}

async fn rendered(
    evaluator: &FakeEvaluator,
    source: &str,
    traits: &[DefinitionTemplate<'_>],
) -> Result<Rendered, ComponentError<FakeError>> {
    let component = TemplatedComponent {
        name: "web",
        base: Base::Template(template("webservice", source, None)),
        traits,
        context: &Context::default(),
        output_status: None,
    };
    render(evaluator, &component).await
}

/// Renders a workload with one trait, whose evaluation has this answer.
async fn with_trait(source: &str, answer: Result<Value, FakeError>) -> Result<Rendered, String> {
    let component = json!({"output": {"replicas": 1}, "outputs": {"a": {"x": 1}}});
    let evaluator = FakeEvaluator::new([Ok(component), answer]);
    let result = rendered(&evaluator, "output: {}", &[template("scaler", source, None)]).await;
    result.map_err(|error| error.to_string())
}

async fn error(answer: Result<Value, FakeError>) -> String {
    let evaluator = FakeEvaluator::new([answer]);
    rendered(&evaluator, "output: {}", &[]).await.unwrap_err().to_string()
}

#[tokio::test]
async fn without_functions_a_template_with_calls_is_not_evaluated() {
    let evaluator = FakeEvaluator::new([Ok(json!({"output": {}}))]);
    let error = rendered(&evaluator, "import \"vela/kube\"\noutput: {}", &[])
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "component web: functions are called in deployed components and traits only"
    );
    assert!(evaluator.sources().is_empty());
}

#[test]
fn what_calls_functions_has_another_key_in_each_round() {
    let key = [1; 32];
    assert_eq!(key_in_round(key, 1), key_in_round(key, 1));
    let keys = [
        key,
        key_in_round(key, 1),
        key_in_round(key, 2),
        key_in_round([2; 32], 1),
    ];
    assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), 4);
}

#[tokio::test]
async fn errors_of_a_component_name_it() {
    for (answer, expected) in [
        (
            Err(FakeError::Invalid("_vela.output.a: conflict in _vela.x")),
            "component web: output.a: conflict in x",
        ),
        (
            Err(FakeError::Invalid("_velaRoot.velaTemplate.output.a: conflict")),
            "component web: output.a: conflict",
        ),
        (
            Err(FakeError::Stopped),
            "component web: template of ComponentDefinition webservice was stopped: more than 10s",
        ),
        (Err(FakeError::Missing), "component web: no CUE evaluator"),
        (Ok(json!({})), "component web: the template has no output"),
        (Ok(json!({"output": [1]})), "component web: output is not an object"),
        (
            Ok(json!({"output": {}, "outputs": {"a": 1}})),
            "component web: outputs.a is not an object",
        ),
    ] {
        assert_eq!(error(answer).await, expected);
    }
}

#[tokio::test]
async fn errors_of_a_trait_name_both() {
    let source = "// +patchStrategy=x\npatch: {}";
    for (answer, expected) in [
        (
            Err(FakeError::Invalid("result.a: conflict")),
            "component web: trait scaler: a: conflict",
        ),
        (
            Err(FakeError::Stopped),
            "component web: trait scaler: template of TraitDefinition scaler was stopped: more than 10s",
        ),
        (
            Ok(json!({"errs": ["one", "", "two"]})),
            "component web: trait scaler: one; two",
        ),
        (
            Ok(json!({"patch": {"replicas": 2}})),
            "component web: trait scaler: replicas: conflicting values 1 and 2",
        ),
        (
            Ok(json!({"patchOutputs": {"a": {"x": 2}}})),
            "component web: trait scaler: a.x: conflicting values 1 and 2",
        ),
    ] {
        assert_eq!(with_trait(source, answer).await, Err(expected.to_owned()));
    }
    assert_eq!(
        with_trait("patch: {", Ok(json!({}))).await,
        Err("component web: trait scaler: invalid template: line 1: a bracket is not closed".to_owned())
    );
}

#[tokio::test]
async fn outputs_of_several_traits_keep_their_order_and_keys() {
    let evaluator = FakeEvaluator::new([
        Ok(json!({"output": {}, "outputs": {"a": {"n": 1}}})),
        Ok(json!({"outputs": {"b": {"n": 2}, "a": {"n": 3}}})),
        Ok(json!({"patchOutputs": {"a": {"patched": true}, "missing": {"n": 1}}})),
    ]);
    let traits = [template("one", "", None), template("two", "x: context.outputs", None)];
    let rendered = rendered(&evaluator, "", &traits).await.unwrap();
    let outputs: Vec<Value> = rendered
        .outputs
        .iter()
        .map(|output| json!([output.key, output.trait_type, output.object]))
        .collect();
    let expected = json!([
        ["a", "AuxiliaryWorkload", {"n": 1, "patched": true}],
        ["a", "one", {"n": 3, "patched": true}],
        ["b", "one", {"n": 2}],
    ]);
    assert_eq!(Value::Array(outputs), expected);
    let source = &evaluator.sources()[2];
    assert!(
        source.contains(r#"outputs: {"a": {"n": 3}, "b": {"n": 2}}"#),
        "{source}"
    );
}

#[tokio::test]
async fn a_trait_without_markers_leaves_the_patch_to_the_evaluator() {
    let rendered = with_trait("patch: {}", Ok(json!({"result": {"patched": 1}})))
        .await
        .unwrap();
    assert_eq!(Value::Object(rendered.workload), json!({"patched": 1}));
}

#[tokio::test]
async fn a_result_beyond_the_limit_is_refused() {
    let large = "x".repeat(5 << 20);
    let error = with_trait("", Ok(json!({"outputs": {"a": {"text": large}}})))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        "component web: trait scaler: the patched object is larger than 4 MiB or nested more than 128 deep"
    );
}

#[tokio::test]
async fn objects_in_the_context_take_the_place_of_rendered_ones() {
    let evaluator = FakeEvaluator::new([Ok(json!({"outputs": {"b": {}}}))]);
    let object = |value: Value| value.as_object().unwrap().clone();
    let before = Rendered {
        workload: object(json!({"kind": "Deployment"})),
        outputs: Vec::new(),
    };
    let context = object(json!({"output": {"kind": "Deployment", "status": {"ready": 1}}, "outputs": {}}));
    let rendered = apply_trait(
        &evaluator,
        before,
        template("t", "a: context", None),
        &Context::from(context),
        None,
    )
    .await
    .unwrap();
    let source = &evaluator.sources()[0];
    assert!(
        source.contains(r#"context: {"output": {"kind":"Deployment","status":{"ready":1}}, "outputs": {}}"#),
        "{source}"
    );
    assert_eq!(Value::Object(rendered.workload), json!({"kind": "Deployment"}));
    assert_eq!(rendered.outputs.len(), 1);
}

#[tokio::test]
async fn traits_see_the_status_of_the_live_workload_beside_the_rendered_one() {
    let evaluator = FakeEvaluator::new([Ok(json!({}))]);
    let before = Rendered {
        workload: Map::from_iter([("kind".to_owned(), json!("Deployment"))]),
        outputs: Vec::new(),
    };
    let template = template("t", "a: context.output.status.ready", None);
    let status = json!({ "ready": 1 });
    let rendered = apply_trait(&evaluator, before, template, &Context::default(), Some(&status))
        .await
        .unwrap();
    let source = &evaluator.sources()[0];
    let expected = r#"context: {output: {"kind": "Deployment"} & {status: {"ready":1}}}"#;
    assert!(source.contains(expected), "{source}");
    assert_eq!(Value::Object(rendered.workload), json!({ "kind": "Deployment" }));
}

#[tokio::test]
async fn many_outputs_are_refused() {
    let outputs: Map<String, Value> = (0..1_000).map(|index| (index.to_string(), json!({}))).collect();
    let error = with_trait("", Ok(json!({"outputs": outputs}))).await.unwrap_err();
    assert_eq!(
        error,
        "component web: trait scaler: the component has more than 1000 outputs"
    );
}

#[tokio::test]
async fn a_long_error_is_cut() {
    let lines = vec!["x".repeat(100); 1_000];
    let error = with_trait("", Ok(json!({"errs": lines}))).await.unwrap_err();
    assert!(error.len() < 5_000, "{}", error.len());
}

#[tokio::test]
async fn absent_and_null_properties_are_an_empty_parameter_of_a_component_and_none_of_a_trait() {
    for properties in [None, Some(&Value::Null)] {
        let evaluator = FakeEvaluator::new([Ok(json!({"output": {}})), Ok(json!({}))]);
        let component = TemplatedComponent {
            name: "web",
            base: Base::Template(template("webservice", "output: {}", properties)),
            traits: &[template("t", "", properties)],
            context: &Context::default(),
            output_status: None,
        };
        render(&evaluator, &component).await.unwrap();
        let sources = evaluator.sources();
        assert!(sources[0].contains("parameter: _\nparameter: {}\n"));
        assert!(!sources[1].contains("parameter"));
    }
}

#[tokio::test]
async fn only_traits_of_the_default_stage_see_the_status_of_the_workload() {
    let evaluator = FakeEvaluator::new([Ok(json!({ "output": {} })), Ok(json!({})), Ok(json!({}))]);
    let source = "a: context.output.status.ready";
    let before = DefinitionTemplate {
        has_status: false,
        ..template("before", source, None)
    };
    let component = TemplatedComponent {
        name: "web",
        base: Base::Template(template("webservice", "output: {}", None)),
        traits: &[before, template("t", source, None)],
        context: &Context::default(),
        output_status: Some(&json!({ "ready": "of-the-live-one" })),
    };
    render(&evaluator, &component).await.unwrap();
    let has_seen = evaluator
        .sources()
        .into_iter()
        .map(|source| source.contains("of-the-live-one"));
    assert_eq!(has_seen.collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn the_key_of_a_component_covers_what_its_templates_use() {
    let key = |source: &str, properties: Value, traits: &[DefinitionTemplate<'_>], context: Value| {
        component_key(&TemplatedComponent {
            name: "web",
            base: Base::Template(template("webservice", source, Some(&properties))),
            traits,
            context: &Context::from(context.as_object().unwrap().clone()),
            output_status: None,
        })
    };
    let source = "output: context.name";
    let context = json!({"name": "web", "appRevision": "v1"});
    let base = key(source, json!({}), &[], context.clone());
    assert_eq!(
        base,
        key(source, json!({}), &[], json!({"name": "web", "appRevision": "v2"}))
    );
    let scaler = [template("scaler", "patch: context.appRevision", None)];
    let scaled = key(source, json!({}), &scaler, context.clone());
    for other in [
        scaled,
        key("output: context.name ", json!({}), &[], context.clone()),
        key(source, json!({"a": 1}), &[], context.clone()),
        key(source, json!({}), &[], json!({"name": "other"})),
        key("output: context", json!({}), &[], context),
    ] {
        assert_ne!(base, other);
    }
    assert_ne!(
        scaled,
        key(source, json!({}), &scaler, json!({"name": "web", "appRevision": "v2"}))
    );
}

#[test]
fn the_key_of_a_health_covers_status_metadata_and_objects_without_a_generation() {
    let templates = HealthTemplates {
        health_policy: Some("isHealth: context.output.status.ready"),
        ..HealthTemplates::default()
    };
    let key = |live: Value| health_key(templates, None, &Context::default(), [&live]);
    let deployment = |version: &str, ready: bool, spec: u64| {
        json!({"metadata": {"generation": 1, "resourceVersion": version, "managedFields": [version]},
            "spec": spec, "status": {"ready": ready}})
    };
    assert_eq!(key(deployment("1", true, 1)), key(deployment("2", true, 1)));
    assert_eq!(
        key(deployment("1", true, 1)),
        key(deployment("1", true, 2)),
        "the generation tells"
    );
    assert_ne!(key(deployment("1", true, 1)), key(deployment("1", false, 1)));
    let annotated = |value: &str| json!({"metadata": {"generation": 1, "annotations": {"a": value}}});
    assert_ne!(key(annotated("1")), key(annotated("2")));
    let config = |data: &str| json!({"metadata": {"name": "c"}, "data": data});
    assert_ne!(key(config("1")), key(config("2")));
}

#[test]
fn the_key_of_the_last_stage_covers_component_traits_and_live_objects() {
    let key = |component: u8, source: &str, live: Value| {
        let traits = [template("expose", source, None)];
        let context = json!({"name": "web", "appRevision": "v1"});
        let context = Context::from(context.as_object().unwrap().clone());
        post_dispatch_key([component; 32], &traits, &context, live.as_object().unwrap())
    };
    let service = |port: u32| json!({"metadata": {"name": "s"}, "port": port});
    let live = |ready: u32, port: u32| json!({"output": {"metadata": {"generation": 1}, "status": ready}, "outputs": {"service": service(port)}});
    let source = "outputs: context.name";
    let base = key(0, source, live(1, 1));
    assert_eq!(base, key(0, source, live(1, 1)));
    for other in [
        key(1, source, live(1, 1)),
        key(0, "outputs: context.appRevision", live(1, 1)),
        key(0, source, live(2, 1)),
        key(0, source, live(1, 2)),
        key(0, source, json!({})),
    ] {
        assert_ne!(base, other);
    }
}

#[test]
fn a_hundred_components_whose_template_names_them_all_share_one_list() {
    const COUNT: usize = 100;
    let components: Vec<Value> = (0..COUNT)
        .map(|index| json!({ "name": format!("web-{index}"), "type": "web", "properties": { "text": "x".repeat(1000) } }))
        .collect();
    let app: Application = serde_json::from_value(json!({
        "metadata": { "name": "shop", "namespace": "team" }, "spec": { "components": components },
    }))
    .unwrap();
    let template = json!({ "template": "output: {count: len(context.components)}\nparameter: {}" });
    let contents = serde_json::from_value(json!({
        "application": app,
        "componentDefinitions": { "web": { "metadata": { "name": "web" }, "spec": { "schematic": { "cue": template } } } },
    }))
    .unwrap();
    let parsed = parse(&app, &Definitions::frozen("shop-v1", &contents)).unwrap();
    let settings = ReleaseSettings {
        is_strict: false,
        has_stages: true,
    };
    let name = NamespacedName::new("team", "shop");
    let release = Release::new(name, &app, LatestRevision::default(), json!({}), settings);
    let rendered = Arc::new(Rendered {
        workload: Map::new(),
        outputs: Vec::new(),
    });
    let place = Place::default();
    let all: Vec<_> = (parsed.components.iter())
        .map(|component| {
            let prepared = release.component(&parsed, component, &place);
            prepared.objects([0; 32], Arc::clone(&rendered)).context
        })
        .collect();
    assert_eq!(all.len(), COUNT);
    let list = |context: &Context| std::ptr::from_ref(context.get("components").unwrap());
    assert!(all.iter().all(|context| list(context) == list(&all[0])));
    assert_eq!(
        all[0].get("components").and_then(Value::as_array).map(Vec::len),
        Some(COUNT)
    );
    assert_eq!(all[7].get("name"), Some(&json!("web-7")));
}
