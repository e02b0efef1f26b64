//! The OpenAPI document describes the responses: each path has an example here, and no field is missing in either.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Serving, fill};
use crate::support::world::World;

/// Paths of the document, and requests for them.
const EXAMPLES: [(&str, &[&str]); 8] = [
    ("/openapi.json", &["/openapi.json"]),
    ("/whoami", &["/whoami"]),
    (
        "/repositories",
        &["/repositories", "/repositories?limit=1", "/repositories?ready=unknown"],
    ),
    (
        "/repositories/{namespace}/{repository}",
        &["/repositories/default/stable"],
    ),
    (
        "/charts",
        &[
            "/charts",
            "/charts?q=web&namespace=default&sort=updated",
            "/charts?limit=1",
        ],
    ),
    (
        "/charts/{namespace}/{repository}/{chart}",
        &["/charts/default/stable/web"],
    ),
    (
        "/charts/{namespace}/{repository}/{chart}/versions",
        &[
            "/charts/default/stable/web/versions",
            "/charts/default/stable/web/versions?limit=1",
        ],
    ),
    (
        "/charts/{namespace}/{repository}/{chart}/versions/{version}",
        &["/charts/default/stable/web/versions/1.0.0"],
    ),
];

/// Resolves a reference of the document.
fn resolve<'a>(document: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        None => schema,
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "integer" => value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    }
}

/// Returns the differences between a value and its schema.
fn differences(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let schema = resolve(document, schema);
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    if !types.iter().any(|name| has_type(value, name.as_str().unwrap())) {
        return vec![format!("{at} is {value}, not {types:?}")];
    }
    let mut found = Vec::new();
    if let Some(values) = schema["enum"].as_array()
        && !values.contains(value)
    {
        found.push(format!("{at} is {value}, none of {values:?}"));
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(differences(
            document,
            &schema["items"],
            item,
            &format!("{at}[{number}]"),
        ));
    }
    if let (Some(fields), Some(properties)) = (value.as_object(), schema["properties"].as_object()) {
        for (name, field) in fields {
            let at = format!("{at}.{name}");
            match properties.get(name) {
                Some(schema) => found.extend(differences(document, schema, field, &at)),
                None => found.push(format!("{at} is not in the document")),
            }
        }
        let required = schema["required"].as_array().into_iter().flatten();
        let missing = required.filter(|name| !fields.contains_key(name.as_str().unwrap()));
        found.extend(missing.map(|name| format!("{at} has no {name}")));
    }
    found
}

#[test]
fn a_difference_from_a_schema_is_found() {
    let document =
        json!({ "a": { "type": "object", "required": ["b"], "properties": { "b": { "type": ["string", "null"] } } } });
    let of = |value: Value| differences(&document, &json!({ "$ref": "#/a" }), &value, "").len();
    assert_eq!(
        [
            of(json!({ "b": null })),
            of(json!({})),
            of(json!({ "b": "", "c": 1 })),
            of(json!([]))
        ],
        [0, 1, 1, 1]
    );
}

#[tokio::test]
async fn each_response_is_as_the_document_says() {
    let world = World::new().await;
    let url = world.database_url();
    fill(
        &world,
        &url,
        "stable",
        &[("web", &["1.1.0", "1.0.0"]), ("redis", &["1.0.0"])],
    )
    .await;
    fill(&world, &url, "other", &[("tide", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    let document = serving.json("/openapi.json").await;
    assert_eq!(document["servers"], json!([{ "url": "/api/v1" }]));
    let paths = document["paths"].as_object().unwrap();
    let examples: BTreeSet<&str> = EXAMPLES.iter().map(|(path, _)| *path).collect();
    assert_eq!(paths.keys().map(String::as_str).collect::<BTreeSet<_>>(), examples);
    for (path, requests) in EXAMPLES {
        let responses = &document["paths"][path]["get"]["responses"];
        let schema = &responses["200"]["content"]["application/json"]["schema"];
        for request in requests {
            let found = differences(&document, schema, &serving.json(request).await, request);
            assert!(found.is_empty(), "{found:#?}");
        }
    }
}

#[tokio::test]
async fn each_parameter_of_the_document_is_accepted_and_each_problem_is_as_it_says() {
    let world = World::new().await;
    let url = world.database_url();
    fill(&world, &url, "stable", &[("web", &["1.0.0"])]).await;
    let serving = Serving::of(&world, &url).await;
    let document = serving.json("/openapi.json").await;
    let problem = json!({ "$ref": "#/components/schemas/Problem" });
    for (path, requests) in EXAMPLES {
        let parameters = document["paths"][path]["get"]["parameters"].as_array();
        for parameter in parameters
            .into_iter()
            .flatten()
            .filter(|parameter| parameter["in"] == "query")
        {
            let name = parameter["name"].as_str().unwrap();
            let value = match &parameter["schema"]["default"] {
                _ if name == "ready" => "true".to_owned(),
                Value::Null => "web".to_owned(),
                default => default.to_string().trim_matches('"').to_owned(),
            };
            let answer = serving.get(&format!("{}?{name}={value}", requests[0])).await;
            // No cursor is valid without the list that it belongs to.
            let expected = if name == "cursor" { 400 } else { 200 };
            assert_eq!(answer.status, expected, "{path} {name}: {answer:?}");
            if expected == 400 {
                let found = differences(&document, &problem, &answer.json(), path);
                assert!(found.is_empty(), "{found:#?}");
            }
        }
    }
}
