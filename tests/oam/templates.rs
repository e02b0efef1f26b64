//! Templates of all kinds, none of them from the starter set.

use serde_json::{Value, json};

use super::Case;

const DEPLOYMENT: &str = r#"
import "strings"

output: {
	apiVersion: "apps/v1"
	kind:       "Deployment"
	spec: {
		replicas: parameter.replicas
		template: spec: containers: [{
			name:  context.name
			image: strings.ToLower(parameter.image)
			if parameter.port != _|_ {
				ports: [{containerPort: parameter.port}]
			}
			env: [for k, v in parameter.env {name: k, value: v}]
		}]
	}
}
outputs: {
	for v in parameter.claims {
		"claim-\(v)": {apiVersion: "v1", kind: "PersistentVolumeClaim", metadata: name: v}
	}
	if parameter.port != _|_ {
		service: {
			apiVersion: "v1"
			kind:       "Service"
			spec: ports: [{port: parameter.port}]
		}
	}
}
parameter: {
	image:    string
	replicas: *1 | int
	port?:    int
	env: [string]: string
	claims?: [...string]
}
"#;

fn deployment() -> Case {
    Case::new(
        DEPLOYMENT,
        json!({"image": "Nginx", "port": 80, "env": {"A": "1", "B": "2"}}),
    )
}

#[tokio::test]
async fn a_component_has_defaults_conditions_and_comprehensions() {
    let rendered = deployment().render().await.unwrap();
    let expected = json!({
        "output": {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {
            "replicas": 1,
            "template": {"spec": {"containers": [{
                "name": "web",
                "image": "nginx",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            }]}},
        }},
        "outputs": {"service": {"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]}}},
    });
    assert_eq!(rendered, expected);
    let claims = Case::new(DEPLOYMENT, json!({"image": "a", "claims": ["x", "y"]}))
        .render()
        .await
        .unwrap();
    let keys: Vec<&String> = claims["outputs"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["claim-x", "claim-y"]);
}

#[tokio::test]
async fn a_missing_parameter_is_an_error_and_not_left_out() {
    let error = Case::new(DEPLOYMENT, json!({})).render().await.unwrap_err();
    assert!(error.starts_with("component web: "), "{error}");
    assert!(error.contains("image") && !error.contains("_vela"), "{error}");
}

#[tokio::test]
async fn a_parameter_of_another_type_is_named() {
    let error = Case::new(DEPLOYMENT, json!({"image": "a", "replicas": "b"}))
        .render()
        .await
        .unwrap_err();
    assert!(error.contains("parameter.replicas"), "{error}");
    assert!(!error.contains("_vela"), "{error}");
}

#[tokio::test]
async fn a_strict_template_rejects_parameters_that_it_does_not_declare() {
    let properties = json!({"image": "a", "undeclared": 1});
    assert!(Case::new(DEPLOYMENT, properties.clone()).render().await.is_ok());
    let error = Case::new(DEPLOYMENT, properties).strict().render().await.unwrap_err();
    assert!(error.contains("parameter.undeclared: field not allowed"), "{error}");
    let nested = "output: {}\nparameter: {a: b?: int, open?: {...}, [=~\"^x-\"]: int}\n";
    for (properties, is_valid) in [
        (json!({"a": {"c": 1}}), false),
        (json!({"a": {"b": 1}, "open": {"any": 1}, "x-1": 2}), true),
        (json!({"a": {}}), true),
    ] {
        assert_eq!(
            Case::new(nested, properties.clone()).strict().render().await.is_ok(),
            is_valid,
            "{properties}"
        );
    }
}

#[tokio::test]
async fn fields_of_a_struct_that_becomes_a_text_keep_the_order_of_cue() {
    // The text is part of a pod template: another order would restart pods at a hand-over. Recorded with CUE 0.14.
    let template = r#"
import "encoding/json"
patch: metadata: annotations: text: json.Marshal({
	name: context.name
	nested: [{
		if parameter.url != _|_ {
			url: parameter.url
		}
		shell: parameter.shell
		if parameter.command != _|_ {
			command: parameter.command
		}
		hotReload: parameter.hotReload
		if parameter.env != _|_ {
			env: [for v in parameter.env {name: v}]
		}
	}]
})
parameter: {
	url?:      string
	shell:     *"bash" | string
	command:   *["run"] | [...string]
	hotReload: *true | bool
	env?: [...string]
}
"#;
    let expected = r#"{"name":"web","nested":[{"url":"u","command":["run"],"shell":"bash","hotReload":true,"env":[{"name":"a"}]}]}"#;
    let conditional = template
        .replace("patch: metadata", "if context.name != \"\" {patch: metadata")
        .replace("\n})\nparameter", "\n})}\nparameter");
    for template in [template, &conditional] {
        let rendered = deployment()
            .with(template, json!({"env": ["a"], "url": "u"}))
            .render()
            .await
            .unwrap();
        let annotations = &rendered["output"]["metadata"]["annotations"];
        assert_eq!(annotations["text"], expected, "{template}");
    }
}

/// Returns the container of the deployment after one trait.
async fn container(template: &str, properties: Value) -> Result<Value, String> {
    let rendered = deployment().with(template, properties).render().await?;
    Ok(rendered["output"]["spec"]["template"]["spec"]["containers"][0].clone())
}

#[tokio::test]
async fn a_patch_with_a_key_aligns_lists_at_all_levels() {
    let template = r#"
patch: spec: template: spec: {
	// +patchKey=name
	containers: [{
		name: context.name
		env: [for k, v in parameter.env {name: k, value: v}]
		// +patchKey=containerPort
		ports: [{containerPort: 8080}]
	}, {
		name:  "sidecar"
		image: "envoy"
	}]
}
parameter: env: [string]: string
"#;
    let rendered = deployment()
        .with(template, json!({"env": {"C": "3", "A": "1"}}))
        .render()
        .await
        .unwrap();
    let expected = json!([
        {
            "name": "web",
            "image": "nginx",
            "ports": [{"containerPort": 80}, {"containerPort": 8080}],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "C", "value": "3"}],
        },
        {"name": "sidecar", "image": "envoy"},
    ]);
    assert_eq!(rendered["output"]["spec"]["template"]["spec"]["containers"], expected);
}

#[tokio::test]
async fn conflicts_of_a_patch_with_a_key_have_a_path() {
    let template = r#"
patch: spec: template: spec: {
	// +patchKey=name
	containers: [{name: context.name, image: "other"}]
}
"#;
    let error = container(template, json!({})).await.unwrap_err();
    assert_eq!(
        error,
        "component web: trait t0: spec.template.spec.containers.0.image: conflicting values \"nginx\" and \"other\""
    );
}

#[tokio::test]
async fn markers_follow_references_and_conditions() {
    let template = r#"
#Containers: {
	// +patchKey=name
	containers: [{
		name: parameter.name
		if parameter.replace {
			// +patchStrategy=replace
			env: [{name: "ONLY", value: "1"}]
		}
		if !parameter.replace {
			// +patchKey=name
			env: [{name: "MORE", value: "1"}]
		}
	}]
}
helper: spec: #Containers
patch: spec: template: helper
parameter: {name: *context.name | string, replace: bool}
"#;
    let names = |container: Value| -> Vec<String> {
        let env = container["env"].as_array().unwrap().iter();
        env.map(|variable| variable["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names(container(template, json!({"replace": true})).await.unwrap()),
        ["ONLY"]
    );
    assert_eq!(
        names(container(template, json!({"replace": false})).await.unwrap()),
        ["A", "B", "MORE"]
    );
}

#[tokio::test]
async fn a_field_with_retained_keys_is_replaced() {
    let template = "// +patchStrategy=retainKeys\npatch: spec: replicas: parameter.n\nparameter: n: int\n";
    let rendered = deployment().with(template, json!({"n": 5})).render().await.unwrap();
    assert_eq!(rendered["output"]["spec"]["replicas"], json!(5));
}

#[tokio::test]
async fn a_patch_without_markers_is_unified_by_the_evaluator() {
    let same = deployment()
        .with("patch: spec: replicas: 1", json!({}))
        .render()
        .await
        .unwrap();
    assert_eq!(same["output"]["spec"]["replicas"], json!(1));
    let error = deployment()
        .with("patch: spec: replicas: 2", json!({}))
        .render()
        .await
        .unwrap_err();
    assert!(
        error.starts_with("component web: trait t0: spec.replicas: conflicting values"),
        "{error}"
    );
}

#[tokio::test]
async fn a_patch_may_constrain_all_elements_of_a_list() {
    let template = "patch: spec: template: spec: containers: [...{lifecycle: preStop: parameter}]\nparameter: {...}";
    let container = container(template, json!({"exec": 1})).await.unwrap();
    assert_eq!(container["lifecycle"], json!({"preStop": {"exec": 1}}));
    assert_eq!(container["name"], json!("web"));
}

#[tokio::test]
async fn a_constraint_on_elements_works_beside_markers() {
    let template = r#"
patch: {
	// +patchStrategy=retainKeys
	spec: replicas: 4
	spec: template: spec: containers: [...{tty: true}]
	metadata: labels: a: parameter.a
}
parameter: a: string
"#;
    let case = deployment().with(template, json!({"a": "b"}));
    for case in [case.clone(), case.strict()] {
        let rendered = case.render().await.unwrap();
        assert_eq!(rendered["output"]["spec"]["replicas"], json!(4));
        assert_eq!(
            rendered["output"]["spec"]["template"]["spec"]["containers"][0]["tty"],
            json!(true)
        );
        assert_eq!(rendered["output"]["metadata"], json!({"labels": {"a": "b"}}));
    }
}

#[tokio::test]
async fn lists_of_a_patch_without_a_key_go_by_position() {
    let open = r#"
patch: spec: template: spec: {
	containers: [{tty: true}, ...]
	// +patchKey=name
	volumes: [{name: "v"}]
}
"#;
    assert_eq!(container(open, json!({})).await.unwrap()["tty"], json!(true));
    let closed = open.replace("{tty: true}, ...", "");
    let error = container(&closed, json!({})).await.unwrap_err();
    assert!(
        error.ends_with("spec.template.spec.containers: incompatible list lengths (0 and 1)"),
        "{error}"
    );
}

#[tokio::test]
async fn json_patches_are_applied() {
    let merge = "// +patchStrategy=jsonMergePatch\npatch: parameter\n";
    let rendered = deployment()
        .with(merge, json!({"spec": {"replicas": null, "x": 1}}))
        .render()
        .await
        .unwrap();
    assert_eq!(rendered["output"]["spec"].get("replicas"), None);
    assert_eq!(rendered["output"]["spec"]["x"], json!(1));
    let operations = "// +patchStrategy=jsonPatch\npatch: parameter\nparameter: operations: [...{...}]\n";
    let properties = json!({"operations": [{"op": "replace", "path": "/spec/replicas", "value": 9}]});
    let rendered = deployment().with(operations, properties).render().await.unwrap();
    assert_eq!(rendered["output"]["spec"]["replicas"], json!(9));
}

#[tokio::test]
async fn a_patch_may_depend_on_a_condition() {
    let template =
        "if parameter.on {\n\t// +patchStrategy=retainKeys\n\tpatch: spec: replicas: 7\n}\nparameter: on: bool\n";
    for (on, replicas) in [(true, 7), (false, 1)] {
        let rendered = deployment().with(template, json!({"on": on})).render().await.unwrap();
        assert_eq!(rendered["output"]["spec"]["replicas"], json!(replicas));
    }
}

#[tokio::test]
async fn traits_see_and_patch_the_objects_before_them() {
    let first = r#"
outputs: config: {
	kind: "ConfigMap"
	data: image: context.output.spec.template.spec.containers[0].image
}
"#;
    let second = r#"
patchOutputs: {
	service: spec: ports: [{name: "http"}, ...]
	config: data: {
		port: "\(context.outputs.service.spec.ports[0].port)"
		seen: context.outputs.config.data.image
	}
}
"#;
    let rendered = deployment()
        .with(first, Value::Null)
        .with(second, Value::Null)
        .render()
        .await
        .unwrap();
    assert_eq!(
        rendered["outputs"]["service"]["spec"]["ports"],
        json!([{"port": 80, "name": "http"}])
    );
    assert_eq!(
        rendered["outputs"]["config"]["data"],
        json!({"image": "nginx", "port": "80", "seen": "nginx"})
    );
}

#[tokio::test]
async fn lines_of_errs_fail_the_trait() {
    let template =
        "errs: [if parameter.x > 1 {\"x is \\(parameter.x)\"}, if parameter.x > 2 {\"too much\"}]\nparameter: x: int";
    assert_eq!(
        container(template, json!({"x": 3})).await.unwrap_err(),
        "component web: trait t0: x is 3; too much"
    );
    assert!(container(template, json!({"x": 1})).await.is_ok());
}

#[tokio::test]
async fn an_incomplete_patch_is_an_error_and_not_left_out() {
    for template in [
        "patch: spec: x: parameter.missing\nparameter: missing: string\n",
        "// +patchStrategy=retainKeys\npatch: spec: x: parameter.missing\nparameter: missing: string\n",
    ] {
        let error = container(template, json!({})).await.unwrap_err();
        assert!(
            error.starts_with("component web: trait t0: parameter.missing: "),
            "{error}"
        );
    }
}

#[tokio::test]
async fn odd_names_and_texts_of_users_reach_the_object() {
    let text = "\\(context.name) \"quoted\" \u{0} \u{2028} é \\ /";
    let template = "output: {data: parameter.data, labels: \"$+x\": \"kept\"}\nparameter: data: {...}\n";
    let data = json!({"_hidden": text, "#def": 1, "a-b": {"if": null, "": [1.5, -0.25, 1e30]}});
    let rendered = Case::new(template, json!({"data": data})).render().await.unwrap();
    assert_eq!(rendered["output"], json!({"data": data, "labels": {"$+x": "kept"}}));
}

#[tokio::test]
async fn a_template_can_not_leave_its_wrapping() {
    let error = Case::new("output: {}\n}\noutput: {a: 1}\n_x: {\n", json!({}))
        .render()
        .await
        .unwrap_err();
    assert_eq!(error, "component web: invalid template: line 2: unexpected '}'");
}

#[tokio::test]
async fn all_errors_are_listed_with_the_lines_of_the_template() {
    let template =
        "import \"strings\"\n\noutput: name: strings.ToUpper(parameter.a)\nparameter: {\n\ta: string\n\tb: int\n}\n";
    let error = Case::new(template, json!({ "a": 1, "b": "x" }))
        .render()
        .await
        .unwrap_err();
    assert_eq!(
        error,
        "component web: parameter.a: conflicting values string and 1 (mismatched types string and int) (line 5); \
         parameter.b: conflicting values int and \"x\" (mismatched types int and string) (line 6)"
    );
}
