//! Schemas of parameters.

use std::fs;

use serde_json::json;

use super::*;
use crate::support::project;

async fn schema(evaluator: &Evaluator, template: &str) -> Result<Value, String> {
    let schema = evaluator.schema("default", template).await;
    let schema = schema.map_err(|error| error.to_string())?;
    serde_json::from_str(&schema).map_err(|error| error.to_string())
}

/// Returns the schemas of the starter set, by path.
async fn schemas_of_the_starter_set() -> Vec<(String, Result<Value, String>)> {
    let evaluator = evaluator(options());
    let mut schemas = Vec::new();
    let directories = ["components", "policies", "traits", "workflowsteps"];
    let files = directories
        .iter()
        .flat_map(|directory| fs::read_dir(project("definitions").join(directory)).unwrap());
    for file in files {
        let path = file.unwrap().path();
        let definition: Value = serde_yaml::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let template = definition["spec"]["schematic"]["cue"]["template"].as_str().unwrap();
        schemas.push((path.display().to_string(), schema(&evaluator, template).await));
    }
    schemas
}

#[tokio::test]
async fn all_definitions_of_the_starter_set_have_schemas() {
    let schemas = schemas_of_the_starter_set().await;
    let of = |name: &str| {
        let mut schemas = schemas.iter();
        let (_, schema) = schemas.find(|(path, _)| path.ends_with(name)).unwrap();
        schema.clone().unwrap()
    };
    let failed: Vec<_> = schemas.iter().filter(|(_, schema)| schema.is_err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");

    let web = of("components/webservice.yaml");
    assert_eq!(
        (&web["type"], &web["properties"]["image"]["type"]),
        (&json!("object"), &json!("string"))
    );
    let required = web["required"].as_array().unwrap();
    assert!(
        required.contains(&json!("image")) && !required.contains(&json!("cpu")),
        "{web}"
    );
    let expected = json!({ "type": "object", "required": ["keys"], "properties": {
        "keys": { "title": "keys", "description": "Keys, one for each copy", "type": "array",
            "items": { "type": "string" } },
        "selector": { "title": "selector", "description": "Names of the components, by default all", "type": "array",
            "items": { "type": "string" } },
    } });
    assert_eq!(of("policies/replication.yaml"), expected);
    assert_eq!(of("workflowsteps/step-group.yaml"), json!({ "type": "object" }));
}

#[tokio::test]
async fn parameters_that_refer_to_themselves_are_an_error() {
    let evaluator = evaluator(options());
    let template = "output: {}\nparameter: #Tree\n#Tree: children?: [...#Tree]";
    let error = schema(&evaluator, template).await.unwrap_err();
    assert!(error.contains("refer to themselves"), "{error}");
    let error = schema(&evaluator, "output: {}\nparameter: a: 1 & 2").await.unwrap_err();
    assert!(error.ends_with("(line 2)"), "{error}");
}
