use super::*;
use crate::controllers::oam::parse::Parsed;
use crate::controllers::oam::placement::Place;
use crate::controllers::oam::render::component::Output;
use crate::controllers::oam::render::release::{ComponentObjects, unknown_version};

fn parsed() -> (Application, Parsed) {
    let traits = json!([{ "type": "expose" }, { "type": "central" }]);
    let app: Application = serde_json::from_value(json!({
        "metadata": { "name": "shop", "namespace": "team" },
        "spec": { "components": [{ "name": "web", "type": "webservice", "traits": traits }] },
    }))
    .unwrap();
    let definition = |name: &str, is_control_plane_only: bool| json!({ "metadata": { "name": name }, "spec": { "controlPlaneOnly": is_control_plane_only } });
    let contents = serde_json::from_value(json!({
        "application": app,
        "componentDefinitions": { "webservice": { "metadata": { "name": "webservice" }, "spec": {} } },
        "traitDefinitions": { "expose": definition("expose", false), "central": definition("central", true) },
    }))
    .unwrap();
    let parsed = parse(&app, &Definitions::frozen("shop-v1", &contents)).unwrap();
    (app, parsed)
}

fn object(kind: &str, namespace: &str) -> Map<String, Value> {
    let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "web", "namespace": namespace } });
    object.as_object().unwrap().clone()
}

/// Returns the objects of the component at a place.
fn objects_at(place: &Place) -> ComponentObjects {
    let (app, parsed) = parsed();
    let settings = ReleaseSettings {
        is_strict: false,
        has_stages: true,
    };
    let name = NamespacedName::new("team", "shop");
    let release = Release::new(name, &app, LatestRevision::default(), json!({}), settings);
    let output = |trait_type: &str, kind: &str| Output {
        key: trait_type.to_owned(),
        trait_type: trait_type.to_owned(),
        object: object(kind, ""),
    };
    let rendered = Rendered {
        workload: object("Pod", "of-template"),
        outputs: vec![output("expose", "Service"), output("central", "ConfigMap")],
    };
    let prepared = release.component(&parsed, &parsed.components[0], place);
    prepared.objects([0; 32], Arc::new(rendered))
}

/// Returns kind, namespace, and the labels with cluster and replica of all objects.
fn summary(objects: &ComponentObjects) -> Vec<Value> {
    let manifests = objects.objects.iter().map(|object| &object.manifest);
    let summary = manifests.map(|manifest| {
        let (metadata, labels) = (&manifest["metadata"], &manifest["metadata"]["labels"]);
        let labels = [&labels["app.oam.dev/cluster"], &labels["app.oam.dev/replicaKey"]];
        json!([manifest["kind"], metadata["namespace"], labels[0], labels[1]])
    });
    summary.collect()
}

fn context<'a>(objects: &'a ComponentObjects, name: &str) -> &'a str {
    objects.context.get(name).and_then(Value::as_str).unwrap()
}

#[test]
fn a_place_decides_about_namespace_cluster_and_replica() {
    let objects = objects_at(&Place {
        cluster: "local".to_owned(),
        namespace: "prod".to_owned(),
        replica_key: "eu".to_owned(),
    });
    let expected = [
        json!(["Pod", "prod", "local", "eu"]),
        json!(["Service", "prod", "local", "eu"]),
        json!(["ConfigMap", "team", "local", "eu"]),
    ];
    assert_eq!(summary(&objects), expected);
    assert_eq!(objects.workload["metadata"]["namespace"], "prod");
    let fields = ["namespace", "cluster", "replicaKey"].map(|name| context(&objects, name));
    assert_eq!(fields, ["prod", "local", "eu"]);
}

#[test]
fn a_place_without_a_namespace_keeps_that_of_the_template() {
    let objects = objects_at(&Place {
        cluster: "local".to_owned(),
        ..Place::default()
    });
    let expected = [
        json!(["Pod", "of-template", "local", null]),
        json!(["Service", "team", "local", null]),
        json!(["ConfigMap", "team", "local", null]),
    ];
    assert_eq!(summary(&objects), expected);
    assert_eq!(context(&objects, "namespace"), "team");
}

#[test]
fn objects_without_a_place_have_no_cluster_while_templates_see_the_local_one() {
    let objects = objects_at(&Place::default());
    let expected = [
        json!(["Pod", "of-template", "", null]),
        json!(["Service", "team", "", null]),
        json!(["ConfigMap", "team", "", null]),
    ];
    assert_eq!(summary(&objects), expected);
    let fields = ["namespace", "cluster", "replicaKey"].map(|name| context(&objects, name));
    assert_eq!(fields, ["team", "local", ""]);
}

#[test]
fn objects_of_a_joined_cluster_go_there_but_for_those_of_traits_for_the_control_plane() {
    let place = Place {
        cluster: "east".to_owned(),
        namespace: "prod".to_owned(),
        ..Place::default()
    };
    let objects = objects_at(&place);
    let expected = [
        json!(["Pod", "prod", "east", null]),
        json!(["Service", "prod", "east", null]),
        json!(["ConfigMap", "team", "local", null]),
    ];
    assert_eq!(summary(&objects), expected);
    let clusters = |place: &Place| -> Vec<String> {
        let objects = objects.objects.iter();
        objects.map(|object| object.cluster(place).to_owned()).collect()
    };
    assert_eq!(clusters(&place), ["east", "east", "local"]);
    assert_eq!(clusters(&Place::default()), ["", "", ""]);
    assert_eq!(context(&objects, "cluster"), "east");
}

#[test]
fn templates_see_the_version_of_the_cluster_of_their_place() {
    let (app, parsed) = parsed();
    let settings = ReleaseSettings {
        is_strict: false,
        has_stages: true,
    };
    let name = NamespacedName::new("team", "shop");
    let own = json!({ "minor": 35 });
    let release = Release::new(name, &app, LatestRevision::default(), own.clone(), settings);
    let rendered = Arc::new(Rendered {
        workload: Map::new(),
        outputs: Vec::new(),
    });
    let version = |cluster: &str, known: Option<Value>| {
        let place = Place {
            cluster: cluster.to_owned(),
            ..Place::default()
        };
        let mut prepared = release.component(&parsed, &parsed.components[0], &place);
        if let Some(known) = known {
            prepared.set_cluster_version(known);
        }
        let context = prepared.objects([0; 32], Arc::clone(&rendered)).context;
        context.get("clusterVersion").cloned()
    };
    assert_eq!(version("", None), Some(own.clone()));
    assert_eq!(version("local", None), Some(own));
    assert_eq!(version("east", None), Some(unknown_version()));
    assert_eq!(
        version("east", Some(json!({ "minor": 30 }))),
        Some(json!({ "minor": 30 }))
    );
}

#[test]
fn places_share_the_context_of_the_application() {
    let (app, parsed) = parsed();
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
    let contexts = ["a", "b"].map(|key| {
        let place = Place {
            replica_key: key.to_owned(),
            ..Place::default()
        };
        let prepared = release.component(&parsed, &parsed.components[0], &place);
        prepared.objects([0; 32], Arc::clone(&rendered)).context
    });
    let name = |context: &Context| std::ptr::from_ref(context.get("appName").unwrap());
    assert_eq!(name(&contexts[0]), name(&contexts[1]));
    assert_ne!(contexts[0].get("replicaKey"), contexts[1].get("replicaKey"));
}
