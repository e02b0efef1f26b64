//! Compares renderings and whole Applications with those of KubeVela's own code, if they are available.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use portolan::controllers::oam::context::Context;
use portolan::controllers::oam::render::component::{Base, DefinitionTemplate, Rendered, TemplatedComponent, render};
use portolan::controllers::oam::render::identity::render_hash::render_hash;
use portolan::controllers::oam::render::identity::{Owner, Part, identify};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{evaluator, to_json};
use crate::support::{corpus, project};

/// The templates of the starter set, by directory and name.
struct Definitions(BTreeMap<String, String>);

impl Definitions {
    fn load() -> Self {
        let mut templates = BTreeMap::new();
        for directory in ["components", "traits"] {
            for path in files(&project("definitions").join(directory)) {
                let definition: Value = serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
                let name = definition["metadata"]["name"].as_str().unwrap();
                let template = definition
                    .pointer("/spec/schematic/cue/template")
                    .and_then(Value::as_str);
                templates.insert(format!("{directory}/{name}"), template.unwrap().to_owned());
            }
        }
        Self(templates)
    }

    /// Returns the template of a component or trait with its properties.
    fn template<'a>(&'a self, directory: &str, part: &'a Value) -> DefinitionTemplate<'a> {
        let name = part["type"].as_str().unwrap();
        let source = self.0.get(&format!("{directory}/{name}"));
        DefinitionTemplate {
            name,
            source: source.unwrap_or_else(|| panic!("no definition {name}")),
            properties: part.get("properties"),
            is_strict: false,
            has_status: true,
        }
    }

    async fn render(&self, name: &str, component: &Value, traits: &Value, context: &Value) -> Result<Rendered, String> {
        let traits = traits.as_array().into_iter().flatten();
        let traits: Vec<DefinitionTemplate<'_>> = traits.map(|one| self.template("traits", one)).collect();
        let component = TemplatedComponent {
            name,
            base: Base::Template(self.template("components", component)),
            traits: &traits,
            context: &Context::from(context.as_object().unwrap().clone()),
            output_status: None,
        };
        render(&evaluator(), &component)
            .await
            .map_err(|error| error.to_string())
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn documents(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let documents = serde_yaml::Deserializer::from_str(&text);
    documents
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

#[tokio::test]
async fn renderings_are_equal_to_the_recorded_ones() {
    let Some(goldens) = corpus::oam_goldens() else { return };
    let definitions = Definitions::load();
    let mut different = Vec::new();
    let files = files(&goldens.join("goldens"));
    for path in &files {
        let golden: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let input = &golden["input"];
        let name = input["context"]["name"].as_str().unwrap();
        let rendered = definitions
            .render(name, &input["component"], &input["traits"], &input["context"])
            .await;
        let rendered = rendered.map(|rendered| to_json(&rendered));
        if rendered.as_ref() != Ok(&golden["result"]) {
            different.push(format!("{}: {rendered:?}", path.display()));
        }
    }
    assert!(
        different.is_empty(),
        "{} of {}: {different:#?}",
        different.len(),
        files.len()
    );
    assert!(files.len() >= 130, "{} renderings", files.len());
}

/// Recorded Applications whose objects differ from a plain rendering, and why.
const EXCEPTIONS: [(&str, &str); 3] = [
    ("u-dry-run-2", "a topology policy sets namespace and cluster"),
    (
        "u-e2e-app-garbage-collect",
        "the Service was applied again from a tracker without manifests",
    ),
    ("u-e2e-app8", "two components have one name; the later was not applied"),
];

#[tokio::test]
async fn objects_of_applications_are_equal_to_the_recorded_ones() {
    let Some(goldens) = corpus::oam_goldens() else { return };
    let definitions = Definitions::load();
    let mut different = Vec::new();
    let mut equal = 0;
    for case in files(goldens).iter().filter(|case| case.join("input.yaml").exists()) {
        let name = case.file_name().unwrap().to_str().unwrap();
        if EXCEPTIONS.iter().any(|(exception, _)| *exception == name) {
            continue;
        }
        let applied = applied_objects(case);
        for app in documents(&case.join("input.yaml"))
            .iter()
            .filter(|document| document["kind"] == "Application")
        {
            for object in objects(&definitions, name, app, &applied).await {
                match applied.get(&key(&object)) {
                    // Secrets and ConfigMaps hold no record, and some objects were refused by the API server.
                    None => {}
                    Some(recorded) if object == *recorded => equal += 1,
                    Some(_) => different.push(format!("{name}: {object}")),
                }
            }
        }
    }
    assert!(different.is_empty(), "{different:#?}");
    assert!(equal > 75, "{equal} objects");
}

/// Returns kind and name.
fn key(object: &Value) -> (String, String) {
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    (object["kind"].as_str().unwrap_or_default().to_owned(), name.to_owned())
}

/// Returns the objects of a case as KubeVela applied them.
fn applied_objects(case: &Path) -> BTreeMap<(String, String), Value> {
    let live = documents(&case.join("expected/objects.yaml"));
    let applied = live.iter().filter_map(|object| {
        let applied = object.pointer("/metadata/annotations/app.oam.dev~1last-applied-configuration")?;
        serde_json::from_str::<Value>(applied.as_str()?).ok()
    });
    applied.map(|object| (key(&object), object)).collect()
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Renders the components of an Application with names, labels and the render hash.
async fn objects(
    definitions: &Definitions,
    case: &str,
    app: &Value,
    applied: &BTreeMap<(String, String), Value>,
) -> Vec<Value> {
    let app_name = app["metadata"]["name"].as_str().unwrap();
    let namespace: String = format!("v-{case}").chars().take(63).collect();
    let mut annotations = object(&app["metadata"]["annotations"]);
    annotations.insert("oam.dev/kubevela-version".to_owned(), json!("UNKNOWN"));
    // This hash is of Go structs and can't be computed here.
    let revision_hash = applied.values().find_map(|object| {
        object
            .pointer("/metadata/labels/app.oam.dev~1app-revision-hash")
            .and_then(Value::as_str)
    });
    let mut objects = Vec::new();
    for component in app["spec"]["components"].as_array().unwrap() {
        let name = component["name"].as_str().unwrap();
        let context = json!({
            "name": name,
            "appName": app_name,
            "namespace": namespace,
            "appRevision": format!("{app_name}-v1"),
            "clusterVersion": {"major": "1", "minor": 35, "gitVersion": "v1.35.4"},
        });
        let Ok(rendered) = definitions
            .render(name, component, &component["traits"], &context)
            .await
        else {
            continue;
        };
        let owner = Owner {
            app: app_name,
            namespace: &namespace,
            labels: &object(&app["metadata"]["labels"]),
            annotations: &annotations,
            component: name,
            revision: &format!("{app_name}-v1"),
            revision_hash: revision_hash.unwrap_or_default(),
            replica_key: None,
            cluster: "",
        };
        let component_type = component["type"].as_str().unwrap();
        objects.push(identified(rendered.workload, &owner, Part::Workload { component_type }));
        for output in rendered.outputs {
            let part = Part::Trait {
                trait_type: &output.trait_type,
                resource: &output.key,
            };
            objects.push(identified(output.object, &owner, part));
        }
    }
    objects
}

fn identified(mut fields: Map<String, Value>, owner: &Owner<'_>, part: Part<'_>) -> Value {
    identify(&mut fields, owner, part);
    let mut object = Value::Object(fields);
    object["metadata"]["labels"]["oam.dev/render-hash"] = render_hash(&object).into();
    object
}
