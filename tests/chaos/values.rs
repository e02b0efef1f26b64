//! Values for each field of the specs.

use serde_json::{Value, json};

use crate::oam_apps::apps::config;

/// Values of a field: set, changed, invalid.
pub type Field = (&'static str, [Value; 3]);

pub fn repository_fields(pages: &str) -> Vec<Field> {
    let page = |name: &str| json!(format!("{pages}/{name}"));
    let ca = |name: &str| json!({ "name": name, "key": "ca.crt" });
    vec![
        ("auth.customCA.secretKeyRef", [ca("ca"), ca("other"), ca("absent")]),
        (
            "auth.header.secretKeyRef.key",
            [json!("second"), json!("absent"), json!(1)],
        ),
        (
            "auth.header.secretKeyRef.name",
            [json!("other"), json!("absent"), json!(1)],
        ),
        ("description", [json!("one"), json!("two"), json!(1)]),
        ("dockerRegistrySecrets", [json!(["one"]), json!(["two"]), json!("one")]),
        (
            "filterRule.jq",
            [json!(".name == \"web\""), json!(".name == \"db\""), json!("(not jq")],
        ),
        (
            "filterRule.variables",
            [json!({ "$a": "1" }), json!({ "$a": "2" }), json!({ "$a": 1 })],
        ),
        ("interval", [json!("1h"), json!("2h"), json!("now and then")]),
        ("ociRepositories", [json!(["one"]), json!(["two"]), json!("one")]),
        ("passCredentials", [json!(true), json!(false), json!("yes")]),
        ("resyncRequests", [json!(1), json!(2), json!("one")]),
        ("suspend", [json!(true), json!(false), json!("yes")]),
        (
            "syncJobPodTemplate.metadata",
            [
                json!({ "labels": { "a": "b" } }),
                json!({ "labels": { "a": "c" } }),
                json!("text"),
            ],
        ),
        (
            "syncJobPodTemplate.spec",
            [
                json!({ "nodeSelector": { "a": "b" } }),
                json!({ "nodeSelector": { "a": "c" } }),
                json!("text"),
            ],
        ),
        ("tlsInsecureSkipVerify", [json!(true), json!(false), json!("yes")]),
        ("type", [json!("oci"), json!("helm"), json!("ftp")]),
        ("url", [page("second"), page("absent"), json!("not a URL")]),
    ]
}

pub fn application_fields() -> Vec<Field> {
    let text = || [json!("one"), json!("two"), json!(1)];
    let texts = || [json!(["one"]), json!(["two"]), json!("one")];
    let people = || {
        [
            json!([{ "name": "one" }]),
            json!([{ "name": "two" }]),
            json!([{ "name": 1 }]),
        ]
    };
    let kinds = |group: &str, kind: &str| json!([{ "group": group, "kind": kind }]);
    let expression = |key: &str, operator: &str| json!([{ "key": key, "operator": operator }]);
    let info = |value: &str| json!([{ "name": "info", "type": "Value", "value": value }]);
    vec![
        ("addOwnerRef", [json!(false), json!(true), json!("yes")]),
        ("assemblyPhase", text()),
        (
            "componentKinds",
            [
                kinds("", "Secret"),
                kinds("apps", "Deployment"),
                kinds("example.com", "Nothing"),
            ],
        ),
        ("descriptor.description", text()),
        (
            "descriptor.icons",
            [
                json!([{ "src": "one" }]),
                json!([{ "src": "two" }]),
                json!([{ "src": 1 }]),
            ],
        ),
        ("descriptor.keywords", texts()),
        (
            "descriptor.links",
            [
                json!([{ "url": "one" }]),
                json!([{ "url": "two" }]),
                json!([{ "url": 1 }]),
            ],
        ),
        ("descriptor.maintainers", people()),
        ("descriptor.notes", text()),
        ("descriptor.owners", people()),
        ("descriptor.type", text()),
        ("descriptor.version", text()),
        ("info", [info("one"), info("two"), json!("one")]),
        (
            "selector.matchExpressions",
            [
                expression("app", "Exists"),
                expression("app", "DoesNotExist"),
                expression("app", "Near"),
            ],
        ),
        (
            "selector.matchLabels",
            [
                json!({ "app": "absent" }),
                json!({ "tier": "web" }),
                json!({ "not a key": "one" }),
            ],
        ),
    ]
}

/// Returns a spec whose fields all have a meaning: two components, of which one takes a value of the other and of a step.
pub fn kubevela_spec(name: &str) -> Value {
    let other = format!("{name}-other");
    let mut first = config(name, "one");
    first["outputs"] = json!([{ "name": "zone", "valueFrom": "output.data.key" }]);
    first["traits"] = json!([{ "type": "labels", "properties": { "tier": "web" } }]);
    let mut second = config(&other, "none");
    second["inputs"] = json!([{ "from": "zone", "parameterKey": "objects[0].data.key" }]);
    let collect =
        json!({ "name": "collect", "type": "garbage-collect", "properties": { "keepLegacyResource": false } });
    let step = |name: &str, component: &str| json!({ "name": name, "type": "apply-component", "properties": { "component": component } });
    let mut steps = [step("first", name), step("second", &other)];
    steps[0]["outputs"] = json!([{ "name": "region", "valueFrom": "output.data.key" }]);
    steps[1]["inputs"] = json!([{ "from": "region", "parameterKey": "objects[0].data.extra" }]);
    let mode = json!({ "steps": "StepByStep", "subSteps": "DAG" });
    json!({ "components": [first, second], "policies": [collect], "workflow": { "mode": mode, "steps": steps } })
}

pub fn kubevela_fields() -> Vec<Field> {
    let text = |set: &str, changed: &str| [json!(set), json!(changed), json!(1)];
    let list = |set: &str, changed: &str| [json!([set]), json!([changed]), json!("text")];
    let object = |set: Value, changed: Value| [set, changed, json!("text")];
    let data = |value: &str| config("data", value)["properties"].clone();
    let tier = |tier: &str| json!({ "tier": tier });
    let of = |component: &str| json!({ "component": component });
    let sub_step = |name: &str| json!([{ "name": name, "type": "suspend" }]);
    vec![
        ("components.0.dependsOn", list("other", "absent")),
        ("components.0.externalRevision", text("v1", "v2")),
        ("components.0.name", text("one", "two")),
        ("components.0.outputs.0.name", text("one", "two")),
        (
            "components.0.outputs.0.valueFrom",
            text("output.metadata.name", "output.absent"),
        ),
        ("components.0.properties", object(data("two"), data("three"))),
        ("components.0.scopes", object(json!({ "a": "b" }), json!({ "a": "c" }))),
        ("components.0.traits.0.properties", object(tier("db"), tier("cache"))),
        ("components.0.traits.0.type", text("annotations", "absent")),
        ("components.0.type", text("worker", "absent")),
        ("components.1.inputs.0.from", text("region", "absent")),
        (
            "components.1.inputs.0.parameterKey",
            text("objects[0].data.other", "absent"),
        ),
        ("policies.0.name", text("one", "two")),
        (
            "policies.0.properties",
            object(
                json!({ "keepLegacyResource": true }),
                json!({ "keepLegacyResource": "odd" }),
            ),
        ),
        ("policies.0.type", text("apply-once", "absent")),
        ("workflow.mode.steps", text("DAG", "odd")),
        ("workflow.mode.subSteps", text("StepByStep", "odd")),
        ("workflow.ref", text("absent", "other")),
        ("workflow.steps.0.dependsOn", list("second", "absent")),
        ("workflow.steps.0.if", text("always", "not CUE (")),
        ("workflow.steps.0.meta.alias", text("one", "two")),
        ("workflow.steps.0.mode", text("DAG", "StepByStep")),
        ("workflow.steps.0.name", text("one", "two")),
        ("workflow.steps.0.outputs.0.name", text("one", "two")),
        (
            "workflow.steps.0.outputs.0.valueFrom",
            text("output.metadata.name", "output.absent"),
        ),
        ("workflow.steps.0.properties", object(of("absent"), of("other"))),
        ("workflow.steps.0.subSteps", object(sub_step("one"), sub_step("two"))),
        ("workflow.steps.0.timeout", text("1m", "odd")),
        ("workflow.steps.0.type", text("suspend", "absent")),
        ("workflow.steps.1.inputs.0.from", text("zone", "absent")),
        (
            "workflow.steps.1.inputs.0.parameterKey",
            text("objects[0].data.other", "absent"),
        ),
    ]
}
