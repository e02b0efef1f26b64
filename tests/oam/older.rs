//! Definitions as those of KubeVela 1.9 and 1.10, whose CUE has `+` and `*` on lists.

use serde_json::json;

use super::Case;

/// As `cron-task`: lists of several kinds of volumes, one of them optional.
const JOB: &str = r#"
mounts: {
	claims: [for claim in parameter.claims {name: claim, mountPath: "/claims/\(claim)"}]
	scratch: [
		if parameter.scratch != _|_ for volume in parameter.scratch {
			{name: volume, mountPath: "/scratch/\(volume)"}
		},
	]
}
allMounts: mounts.claims + mounts.scratch
output: spec: template: spec: containers: [{
	name:         context.name
	volumeMounts: allMounts
	args:         ["--verbose"] * parameter.verbosity + parameter.args
}]
parameter: {
	claims: *[] | [...string]
	scratch?: [...string]
	args: *[] | [...string]
	verbosity: *0 | int
}
"#;

/// As `env` and `container-ports`: what the container has, and what it does not have yet.
const ENV: &str = r#"
known: {for item in context.output.spec.template.spec.containers[0].env {"\(item.name)": item.value}}
patch: spec: template: spec: {
	// +patchKey=name
	containers: [{
		name: context.name
		// +patchStrategy=replace
		env: [for item in context.output.spec.template.spec.containers[0].env if parameter.env[item.name] == _|_ {item}] + [for name, value in parameter.env {{"name": name, "value": value}}]
	}]
}
parameter: env: [string]: string
"#;

/// As `init-container`: a fixed element and those of the user.
const INIT: &str = r#"
patch: spec: template: spec: {
	// +patchKey=name
	initContainers: [{
		name: parameter.name
		volumeMounts: [{name: "shared", mountPath: "/shared"}] + parameter.extraVolumeMounts
	}]
}
parameter: {
	name: string
	extraVolumeMounts: *[] | [...{name: string, mountPath: string}]
}
"#;

#[tokio::test]
async fn sums_and_products_of_lists_become_lists() {
    let rendered = Case::new(
        JOB,
        json!({ "claims": ["data"], "scratch": ["tmp"], "args": ["run"], "verbosity": 2 }),
    )
    .render()
    .await
    .unwrap();
    let expected = json!([{
        "name": "web",
        "volumeMounts": [
            { "name": "data", "mountPath": "/claims/data" },
            { "name": "tmp", "mountPath": "/scratch/tmp" },
        ],
        "args": ["--verbose", "--verbose", "run"],
    }]);
    assert_eq!(rendered["output"]["spec"]["template"]["spec"]["containers"], expected);
    let empty = Case::new(JOB, json!({})).render().await.unwrap();
    let expected = json!([{ "name": "web", "volumeMounts": [], "args": [] }]);
    assert_eq!(empty["output"]["spec"]["template"]["spec"]["containers"], expected);
}

#[tokio::test]
async fn traits_that_add_lists_keep_their_markers() {
    let template = r#"
output: spec: template: spec: containers: [{name: context.name, env: [{name: "A", value: "1"}, {name: "B", value: "2"}]}]
parameter: {}
"#;
    let rendered = Case::new(template, json!({}))
        .with(ENV, json!({ "env": { "B": "3", "C": "4" } }))
        .with(
            INIT,
            json!({ "name": "setup", "extraVolumeMounts": [{ "name": "more", "mountPath": "/more" }] }),
        )
        .render()
        .await
        .unwrap();
    let expected = json!({
        "containers": [{
            "name": "web",
            "env": [
                { "name": "A", "value": "1" }, { "name": "B", "value": "3" }, { "name": "C", "value": "4" },
            ],
        }],
        "initContainers": [{
            "name": "setup",
            "volumeMounts": [
                { "name": "shared", "mountPath": "/shared" }, { "name": "more", "mountPath": "/more" },
            ],
        }],
    });
    assert_eq!(rendered["output"]["spec"]["template"]["spec"], expected);
}

#[tokio::test]
async fn an_error_of_a_rewritten_template_names_its_line() {
    let template =
        "import \"strings\"\n\noutput: {\n\ta: [1] + [2]\n\tb: strings.ToUpper(parameter.b)\n}\nparameter: b: string\n";
    let error = Case::new(template, json!({ "b": 1 })).render().await.unwrap_err();
    assert!(
        error.contains("parameter.b: conflicting values") && error.contains("(line 7)"),
        "{error}"
    );
}
