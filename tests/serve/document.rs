//! The OpenAPI document describes the responses: each path has an example here, and no field is missing in either.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Serving, fill, fill_archives};
use crate::support::archives::Chart;
use crate::support::world::World;

/// Paths of the document, and requests for them.
const EXAMPLES: [(&str, &[&str]); 14] = [
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
        "/repositories/{namespace}/{repository}/syncs",
        &["/repositories/default/stable/syncs"],
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
        "/charts/{namespace}/{repository}/{chart}/icon",
        &["/charts/default/stable/web/icon"],
    ),
    (
        "/charts/{namespace}/{repository}/{chart}/diff",
        &[
            "/charts/default/stable/web/diff?from=1.0.0&to=1.1.0",
            "/charts/default/stable/web/diff?from=1.0.0&to=1.1.0&file=readme",
            "/charts/default/stable/web/diff?from=1.0.0&to=1.1.0&file=schema",
        ],
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
        &[
            "/charts/default/stable/web/versions/1.0.0",
            "/charts/default/other/tide/versions/1.0.0",
        ],
    ),
    (
        "/charts/{namespace}/{repository}/{chart}/versions/{version}/keys",
        &["/charts/default/stable/web/versions/1.0.0/keys"],
    ),
    (
        "/charts/{namespace}/{repository}/{chart}/versions/{version}/chart",
        &["/charts/default/stable/web/versions/1.0.0/chart"],
    ),
    (
        "/charts/{namespace}/{repository}/{chart}/versions/{version}/{file}",
        &[
            "/charts/default/stable/web/versions/1.0.0/readme",
            "/charts/default/stable/web/versions/1.0.0/values",
            "/charts/default/stable/web/versions/1.0.0/values-production",
            "/charts/default/stable/web/versions/1.0.0/schema",
        ],
    ),
];

/// A path whose example is that of `watched_releases`: this process watches none.
const RELEASES: &str = "/releases";
/// Paths with a body.
const POSTED: [(&str, &str); 1] = [(
    "/outdated",
    r#"{"charts": [{"name": "web", "version": "1.0.0", "home": "https://example.com", "sources": []}], "prefer": [], "devel": true}"#,
)];

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
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("unknown type {other}"),
    }
}

/// Returns the differences between a value and its schema.
pub(crate) fn differences(document: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
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

/// Two repositories, one of them with files.
async fn serve(world: &World) -> Serving {
    let url = world.database_url();
    let web = |version: &str, replicas: u32| {
        Chart::new("web", version)
            .file("README.md", format!("# Web {version}\n"))
            .file(
                "values.yaml",
                format!("# -- Pods\nreplicas: {replicas}\nnew{replicas}: {{}}\n"),
            )
            .file("values-production.yaml", "replicas: 3\n")
            .file("values.schema.json", "{\"type\": \"object\"}")
            .pack()
    };
    let redis = Chart::new("redis", "1.0.0").pack();
    fill_archives(world, &url, "stable", &[web("1.1.0", 2), web("1.0.0", 1), redis]).await;
    // Without an archive.
    fill(world, &url, "other", &[("tide", &["1.0.0"])]).await;
    Serving::of(world, &url).await
}

#[tokio::test]
async fn each_response_is_as_the_document_says() {
    let world = World::new().await;
    let serving = serve(&world).await;
    let document = serving.json("/openapi.json").await;
    assert_eq!(document["servers"], json!([{ "url": "/api/v1" }]));
    let paths = document["paths"].as_object().unwrap();
    let posted = POSTED.iter().map(|(path, _)| *path);
    let examples: BTreeSet<&str> = EXAMPLES
        .iter()
        .map(|(path, _)| *path)
        .chain(posted)
        .chain([RELEASES])
        .collect();
    assert_eq!(paths.keys().map(String::as_str).collect::<BTreeSet<_>>(), examples);
    for (path, requests) in EXAMPLES {
        let responses = &document["paths"][path]["get"]["responses"];
        for request in requests {
            let answer = serving.get(request).await;
            assert_eq!(answer.status, 200, "{request}: {answer:?}");
            let media_type = answer.header("content-type").split(';').next().unwrap();
            let content = responses["200"]["content"].as_object().unwrap();
            let content = content
                .get(media_type)
                .unwrap_or_else(|| panic!("{request}: {media_type}"));
            if media_type == "application/json" {
                let found = differences(&document, &content["schema"], &answer.json(), request);
                assert!(found.is_empty(), "{found:#?}");
            }
            // No path offers this.
            serving.accept("application/x-other", request).await.problem(406);
        }
    }
}

#[tokio::test]
async fn each_body_and_its_response_is_as_the_document_says() {
    let world = World::new().await;
    let serving = serve(&world).await;
    let document = serving.json("/openapi.json").await;
    let schema = |content: &Value| content["content"]["application/json"]["schema"].clone();
    for (path, body) in POSTED {
        let operation = &document["paths"][path]["post"];
        let sent: Value = serde_json::from_str(body).unwrap();
        let found = differences(&document, &schema(&operation["requestBody"]), &sent, path);
        assert!(found.is_empty(), "{found:#?}");
        let json = [("content-type", "application/json")];
        let answer = serving.post(path, body.to_owned(), &json).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let found = differences(&document, &schema(&operation["responses"]["200"]), &answer.json(), path);
        assert!(found.is_empty(), "{found:#?}");
        let problem = serving.post(path, "[]".to_owned(), &json).await.json();
        let found = differences(
            &document,
            &json!({ "$ref": "#/components/schemas/Problem" }),
            &problem,
            path,
        );
        assert!(found.is_empty(), "{found:#?}");
    }
}

/// Returns a valid value of a parameter.
fn example(parameter: &Value) -> String {
    let schema = &parameter["schema"];
    let found = [&parameter["example"], &schema["default"], &schema["enum"][0]];
    match found.into_iter().find(|value| !value.is_null()) {
        None => "web".to_owned(),
        Some(value) => value.to_string().trim_matches('"').to_owned(),
    }
}

#[tokio::test]
async fn each_parameter_of_the_document_is_accepted_and_each_problem_is_as_it_says() {
    let world = World::new().await;
    let serving = serve(&world).await;
    let document = serving.json("/openapi.json").await;
    let problem = json!({ "$ref": "#/components/schemas/Problem" });
    for (path, requests) in EXAMPLES {
        let parameters = document["paths"][path]["get"]["parameters"].as_array();
        let parameters: Vec<&Value> = parameters
            .into_iter()
            .flatten()
            .filter(|parameter| parameter["in"] == "query")
            .collect();
        let base = requests[0].split('?').next().unwrap();
        for parameter in &parameters {
            let name = parameter["name"].as_str().unwrap();
            let is_needed = |other: &&&Value| other["required"] == true || other["name"] == name;
            let query: Vec<String> = parameters
                .iter()
                .filter(is_needed)
                .map(|parameter| format!("{}={}", parameter["name"].as_str().unwrap(), example(parameter)))
                .collect();
            let answer = serving.get(&format!("{base}?{}", query.join("&"))).await;
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
