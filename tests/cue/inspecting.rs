//! Templates that are inspected and checked before they are stored.

use std::fs;

use portolan::cue::{Evaluator, Inspection};

use super::{WEB_SERVICE, evaluator, options};
use crate::support::project;

/// Returns the templates of the starter set, by the names of their files.
fn templates(directory: &str) -> Vec<(String, String)> {
    let files = fs::read_dir(project("definitions").join(directory)).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let template = |path: std::path::PathBuf| {
        let definition: serde_json::Value = serde_yaml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let template = definition.pointer("/spec/schematic/cue/template")?.as_str()?.to_owned();
        Some((path.display().to_string(), template))
    };
    files.filter_map(template).collect()
}

async fn inspect(evaluator: &Evaluator, name: &str, template: &str) -> Inspection {
    let inspection = evaluator.inspect_compiled("default", template).await;
    inspection.unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[tokio::test]
async fn the_templates_of_the_starter_set_compile_without_parameters() {
    let evaluator = evaluator(options());
    for (name, template) in [templates("components"), templates("traits")].concat() {
        inspect(&evaluator, &name, &template).await;
    }
    for (name, template) in templates("workflowsteps") {
        let inspection = evaluator.inspect("default", &template).await;
        assert!(inspection.is_ok(), "{name}: {inspection:?}");
    }
}

#[tokio::test]
async fn an_inspection_names_kinds_and_immutable_parameters() {
    let evaluator = evaluator(options());
    let template =
        "output: {apiVersion: \"apps/v1\", kind: \"Deployment\"}\nparameter: {\n\t// +immutable\n\ta: string\n}";
    let inspection = inspect(&evaluator, "template", template).await;
    let kind = &inspection.kinds[0];
    assert_eq!(
        (kind.api_version.as_str(), kind.kind.as_str()),
        ("apps/v1", "Deployment")
    );
    assert_eq!(inspection.immutable, ["a"]);
    assert!(evaluator.inspect_compiled("default", WEB_SERVICE).await.is_ok());
    let error = evaluator.inspect_compiled("default", "a: 1\na: 2").await.unwrap_err();
    assert!(error.to_string().contains("conflicting values"), "{error}");
}
