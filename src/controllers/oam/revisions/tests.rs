mod encoding;

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::ResourceExt;
use rstest::rstest;
use serde_json::{Value, json};

use super::compare::has_same_application;
use super::hash::is_own_hash;
use super::names::{next_number, revision_name, revision_number};
use super::*;
use crate::api::NamespacedName;
use crate::api::oam::{
    Application, ApplicationRevision, ApplicationRevisionSpec, LatestRevision, ResourceTracker, labels,
};
use crate::controllers::oam::trackers::{AppIdentity, Inventory, Tracker};

/// Contents of a revision: an application with this image, and definitions with these templates.
fn contents(image: &str, component: &str, trait_: &str) -> ApplicationRevisionSpec {
    let definition = |name: &str, template: &str| {
        json!({ name: {
        "metadata": { "name": name, "resourceVersion": template.len().to_string() },
        "spec": { "workload": {}, "schematic": { "cue": { "template": template } } },
    } })
    };
    serde_json::from_value(json!({
        "application": { "metadata": { "name": "shop" }, "spec": { "components": [
            { "name": "web", "type": "webservice", "properties": { "image": image }, "traits": [{ "type": "scaler" }] },
        ] } },
        "componentDefinitions": definition("webservice", component),
        "traitDefinitions": definition("scaler", trait_),
    }))
    .unwrap()
}

fn plain(image: &str) -> ApplicationRevisionSpec {
    contents(image, "output: {}", "patch: {}")
}

#[rstest]
#[case("shop-v1", Some(1))]
#[case("shop-v12-v345", Some(345))]
#[case("shop", None)]
#[case("shop-1", None)]
#[case("shop-v", None)]
#[case("shop-v+1", None)]
#[case("shop-v1.2", None)]
#[case("shop-v99999999999999999999", None)]
fn numbers_are_read_from_names(#[case] name: &str, #[case] number: Option<i64>) {
    assert_eq!(revision_number(name), number);
    assert_eq!(revision_name("shop", 7), "shop-v7");
}

#[rstest]
#[case::first(None, &[], 1)]
#[case::next(Some(3), &["shop-v3"], 4)]
#[case::the_latest_is_gone(Some(3), &[], 4)]
#[case::an_older_one_is_current_again(Some(1), &["shop-v1", "shop-v4"], 5)]
#[case::the_status_was_lost(None, &["shop-v2"], 3)]
#[case::hostile(Some(i64::MAX), &["shop-v9223372036854775807"], i64::MAX)]
#[case::negative(Some(-7), &[], 1)]
fn the_next_number_is_greater_than_all(#[case] latest: Option<i64>, #[case] existing: &[&str], #[case] next: i64) {
    assert_eq!(next_number(latest, existing.iter().copied()), next);
}

#[test]
fn a_hash_covers_contents_and_nothing_else() {
    let original = hash(&plain("nginx")).unwrap();
    assert!(original.len() == 17 && is_own_hash(&original), "{original}");
    assert!(original[1..].chars().all(|digit| digit.is_ascii_hexdigit()));
    assert!(!is_own_hash("3798f66a8af1a5a3"));
    let mut relabeled = plain("nginx");
    relabeled.application.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    relabeled
        .component_definitions
        .get_mut("webservice")
        .unwrap()
        .metadata
        .uid = Some("u".to_owned());
    assert_eq!(hash(&relabeled).unwrap(), original);
    for changed in [
        plain("redis"),
        contents("nginx", "new: {}", "patch: {}"),
        contents("nginx", "output: {}", "new: {}"),
    ] {
        assert_ne!(hash(&changed).unwrap(), original);
    }
}

#[test]
fn a_hash_does_not_change_with_the_order_of_keys() {
    let with = |properties: &str| {
        let mut spec = plain("nginx");
        spec.application.spec.components[0].properties = serde_json::from_str(properties).unwrap();
        hash(&spec).unwrap()
    };
    let one = with(r#"{"a": {"x": [1, 2.5, null, true], "y": "\"\u00e9"}, "b": {}}"#);
    let two = with(r#"{"b": {}, "a": {"y": "\"é", "x": [1, 2.5, null, true]}}"#);
    assert_eq!(one, two);
    assert_ne!(one, with(r#"{"b": {}, "a": {"y": "\"é", "x": [2.5, 1, null, true]}}"#));
    // Guards against an accidental change, which would make a new revision of each application with autoUpdate.
    assert_eq!(hash(&ApplicationRevisionSpec::default()).unwrap(), EMPTY_HASH);
}

/// Hash of empty contents.
const EMPTY_HASH: &str = "pa4b1cfab97d9002a";

const OF_KUBEVELA: &str = "3798f66a8af1a5a3";

struct Case {
    revisions: Vec<(&'static str, String, Option<&'static str>, ApplicationRevisionSpec)>,
    latest: Option<(&'static str, i64)>,
    new: ApplicationRevisionSpec,
    publish_version: Option<&'static str>,
    auto_update: bool,
}

impl Case {
    /// The application was published as these contents.
    fn recorded(name: &'static str, spec: &ApplicationRevisionSpec) -> Self {
        Self {
            revisions: vec![(name, hash(spec).unwrap(), None, spec.clone())],
            latest: Some((name, revision_number(name).unwrap())),
            new: spec.clone(),
            publish_version: None,
            auto_update: false,
        }
    }

    fn then(mut self, name: &'static str, spec: &ApplicationRevisionSpec) -> Self {
        self.revisions.push((name, hash(spec).unwrap(), None, spec.clone()));
        self.latest = Some((name, revision_number(name).unwrap()));
        self
    }

    /// Returns name and number of the next revision; none if the latest one stays.
    fn next(&self) -> Option<(String, i64)> {
        let latest = self.latest.map(|(name, revision)| LatestRevision {
            name: name.to_owned(),
            revision,
            revision_hash: String::new(),
        });
        let revisions = self
            .revisions
            .iter()
            .map(|(name, hash, publish_version, spec)| Recorded {
                name,
                hash,
                publish_version: *publish_version,
                spec,
            });
        let candidate = Candidate {
            spec: &self.new,
            hash: &hash(&self.new).unwrap(),
            publish_version: self.publish_version,
            auto_update: self.auto_update,
        };
        let revisions: Vec<_> = revisions.collect();
        let current = revisions
            .iter()
            .find(|one| Some(one.name) == self.latest.map(|(name, _)| name));
        if current.is_some_and(|current| is_unchanged(current, &candidate)) {
            None
        } else {
            Some(next("shop", latest.as_ref(), &candidate, &revisions))
        }
    }
}

fn numbered(number: i64) -> Option<(String, i64)> {
    Some((revision_name("shop", number), number))
}

#[test]
fn a_new_application_gets_its_first_revision() {
    let case = Case {
        revisions: vec![],
        latest: None,
        ..Case::recorded("shop-v1", &plain("nginx"))
    };
    assert_eq!(case.next(), numbered(1));
}

#[test]
fn the_same_application_keeps_its_revision_though_definitions_changed() {
    let mut case = Case::recorded("shop-v3", &plain("nginx"));
    assert_eq!(case.next(), None);
    case.new = contents("nginx", "new: {}", "new: {}");
    assert_eq!(case.next(), None);
    case.auto_update = true;
    assert_eq!(case.next(), numbered(4));
    case.new = plain("nginx");
    assert_eq!(case.next(), None);
}

#[test]
fn a_changed_application_gets_a_new_revision_or_its_old_one_back() {
    let mut case = Case::recorded("shop-v1", &plain("nginx")).then("shop-v2", &plain("redis"));
    case.new = plain("caddy");
    assert_eq!(case.next(), numbered(3));
    case.new = plain("nginx");
    assert_eq!(case.next(), numbered(1));
    // The template is another one now, so this is no longer the old version.
    case.new = contents("nginx", "new: {}", "patch: {}");
    assert_eq!(case.next(), numbered(3));
}

#[test]
fn the_newest_of_equal_revisions_becomes_current_again() {
    let case = Case::recorded("shop-v9", &plain("nginx")).then("shop-v10", &plain("nginx"));
    let mut case = case.then("shop-v11", &plain("redis"));
    case.new = plain("nginx");
    assert_eq!(case.next(), numbered(10));
}

#[test]
fn another_published_version_makes_a_new_revision() {
    let mut case = Case::recorded("shop-v1", &plain("nginx"));
    case.publish_version = Some("beta");
    assert_eq!(case.next(), numbered(2));
    case.revisions[0].2 = Some("beta");
    assert_eq!(case.next(), None);
    case.publish_version = None;
    assert_eq!(case.next(), numbered(2));
}

#[test]
fn revisions_of_kubevela_are_compared_by_contents() {
    let mut case = Case::recorded("shop-v1", &plain("nginx")).then("shop-v2", &plain("redis"));
    for revision in &mut case.revisions {
        OF_KUBEVELA.clone_into(&mut revision.1);
    }
    case.new = plain("redis");
    assert_eq!(case.next(), None);
    case.auto_update = true;
    assert_eq!(case.next(), None);
    case.new = plain("nginx");
    assert_eq!(case.next(), numbered(1));
    // Our own hashes decide without a comparison.
    case.revisions[0].1 = "p0123456789abcdef".to_owned();
    assert_eq!(case.next(), numbered(3));
}

#[test]
fn numbers_go_on_if_the_latest_revision_is_gone() {
    let mut case = Case::recorded("shop-v7", &plain("nginx"));
    case.revisions.clear();
    assert_eq!(case.next(), numbered(8));
}

#[rstest]
#[case::old("v1.5.6", None, true)]
#[case::with_workflow("v1.5.7", None, false)]
#[case::unknown("UNKNOWN", None, false)]
#[case::published("v1.4.0", Some("one"), false)]
fn old_revisions_are_compared_without_the_workflow(
    #[case] version: &str,
    #[case] publish_version: Option<&str>,
    #[case] is_same: bool,
) {
    let mut recorded = plain("nginx");
    let annotations = [
        (labels::KUBEVELA_VERSION, version),
        (labels::PUBLISH_VERSION, publish_version.unwrap_or_default()),
    ];
    let annotations = annotations.map(|(name, value)| (name.to_owned(), value.to_owned()));
    recorded.application.metadata.annotations = Some(annotations.into());
    let mut new = plain("nginx");
    new.application.spec.workflow =
        serde_json::from_value(json!({ "steps": [{ "name": "s", "type": "suspend" }] })).unwrap();
    assert_eq!(has_same_application(&recorded, &new), is_same);
    assert!(!has_same_application(&plain("redis"), &new));
}

#[test]
fn external_policies_and_workflows_belong_to_the_application() {
    let with = |policy: Value, step: &str| {
        let mut spec = plain("nginx");
        spec.policies = serde_json::from_value(json!({ "p": policy })).unwrap();
        let workflow = json!({ "metadata": { "name": "w" }, "steps": [{ "name": step, "type": "suspend" }] });
        spec.workflow = Some(serde_json::from_value(workflow).unwrap());
        spec
    };
    let topology = json!({ "metadata": {}, "type": "topology", "properties": { "clusters": ["local"] } });
    let mut moved = topology.clone();
    moved["metadata"]["labels"] = json!({ "a": "b" });
    let original = with(topology.clone(), "one");
    assert!(has_same_application(&original, &with(moved.clone(), "one")));
    moved["properties"] = json!({ "clusters": ["remote"] });
    assert!(!has_same_application(&original, &with(moved, "one")));
    assert!(!has_same_application(&original, &with(topology, "two")));
    assert!(!has_same_application(&original, &plain("nginx")));
}

fn application(labels: &Value, annotations: &Value) -> Application {
    serde_json::from_value(json!({
        "metadata": { "name": "shop", "namespace": "team", "uid": "u1", "labels": labels, "annotations": annotations },
        "spec": plain("nginx").application.spec,
    }))
    .unwrap()
}

#[test]
fn revisions_are_labeled_and_owned_as_at_kubevela() {
    let annotations = json!({ "team": "a", labels::LAST_APPLIED: "{}" });
    let metadata = metadata(
        &application(&json!({ "tier": "web" }), &annotations),
        "shop-v1",
        "p01",
        false,
    );
    assert_eq!(
        serde_json::to_value(metadata).unwrap(),
        json!({
            "name": "shop-v1", "namespace": "team", "annotations": { "team": "a" },
            "labels": { "tier": "web", "app.oam.dev/name": "shop", "app.oam.dev/app-revision-hash": "p01" },
            "ownerReferences": [{ "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "name": "shop",
                "uid": "u1", "controller": true }],
        })
    );
}

#[test]
fn the_current_revision_follows_traits_and_labels_but_not_components() {
    let app = application(&json!({}), &json!({}));
    let recorded = ApplicationRevision {
        metadata: metadata(&app, "shop-v1", OF_KUBEVELA, false),
        spec: plain("nginx"),
        status: None,
    };
    let refresh = |application: &Application, new: &ApplicationRevisionSpec| {
        refreshed(&recorded, &recorded.spec, application, new)
    };
    assert_eq!(refresh(&app, &plain("nginx")), None);
    assert_eq!(refresh(&app, &contents("nginx", "new: {}", "patch: {}")), None);

    let changed = refresh(&app, &contents("nginx", "new: {}", "new: {}")).unwrap();
    assert_eq!(changed.spec, contents("nginx", "output: {}", "new: {}"));
    assert_eq!(changed.metadata, recorded.metadata);

    let with_objects = ApplicationRevisionSpec {
        referred_objects: vec![json!({ "kind": "ConfigMap" })],
        ..plain("nginx")
    };
    let changed = refresh(&app, &with_objects).unwrap();
    assert_eq!(changed.spec, with_objects);

    let labeled = refresh(
        &application(&json!({ "tier": "web" }), &json!({ "a": "b" })),
        &plain("nginx"),
    )
    .unwrap();
    assert_eq!(labeled.labels()["tier"], "web");
    assert_eq!(labeled.labels()[labels::APP_REVISION_HASH], OF_KUBEVELA);
    assert_eq!(labeled.annotations()["a"], "b");
    assert_eq!(labeled.spec, recorded.spec);
}

#[test]
fn revisions_of_trackers_and_the_current_one_are_in_use() {
    let tracker = |generation: i64, revision: &str| {
        let object: ResourceTracker = serde_json::from_value(json!({
            "metadata": { "name": format!("t{generation}"), "labels": { labels::APP_REVISION: revision } },
            "spec": { "type": "versioned", "applicationGeneration": generation },
        }))
        .unwrap();
        Tracker::decode(Arc::new(object)).unwrap()
    };
    let app = AppIdentity {
        name: NamespacedName::new("team", "shop"),
        uid: "u1".to_owned(),
        generation: 3,
        publish_version: None,
    };
    let trackers = vec![tracker(1, "shop-v1"), tracker(3, "shop-v2"), tracker(2, "")];
    let inventory = Inventory::of(&app, trackers).unwrap();
    let latest = LatestRevision {
        name: "shop-v4".to_owned(),
        revision: 4,
        revision_hash: String::new(),
    };
    assert_eq!(
        in_use(Some(&latest), &inventory),
        BTreeSet::from(["shop-v1", "shop-v2", "shop-v4"])
    );
}

#[rstest]
#[case(10, &[])]
#[case(3, &[])]
#[case(2, &["shop-v2"])]
#[case(0, &["shop-v2", "shop-v9", "shop-v10"])]
fn the_oldest_revisions_beyond_the_limit_are_expendable(#[case] limit: usize, #[case] expected: &[&str]) {
    let revisions = ["shop-v10", "shop-v2", "shop-v1", "shop-v11", "shop-v9"];
    let in_use = BTreeSet::from(["shop-v1", "shop-v11", "shop-v7"]);
    assert_eq!(expendable(&revisions, &in_use, limit), expected);
}

fn revision(metadata: &Value, application: &Value) -> ApplicationRevision {
    let object = json!({ "metadata": metadata, "spec": { "application": application } });
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_published_version_is_frozen_in_its_revision() {
    let published = |version: &str| json!({ "annotations": { labels::PUBLISH_VERSION: version } });
    let of = |metadata: Value| -> Application { serde_json::from_value(json!({ "metadata": metadata })).unwrap() };
    let beta = revision(&published("beta"), &json!({ "metadata": {} }));
    let plain = revision(&json!({}), &json!({ "metadata": {} }));
    assert!(is_release_of(&beta, &of(published("beta"))));
    assert!(!is_release_of(&beta, &of(published("gamma"))) && !is_release_of(&beta, &of(json!({}))));
    assert!(!is_release_of(&plain, &of(published("beta"))) && !is_release_of(&plain, &of(json!({}))));
}

#[test]
fn a_recorded_application_without_metadata_gets_that_of_its_revision() {
    let metadata = json!({
        "name": "shop-v1", "namespace": "team", "annotations": { "a": "b" },
        "labels": { "tier": "web", labels::APP_NAME: "shop", labels::APP_REVISION_HASH: "p1" },
    });
    let spec = json!({ "components": [{ "name": "web", "type": "worker" }] });
    let pruned = revision(
        &metadata,
        &json!({ "metadata": { "creationTimestamp": null }, "spec": spec }),
    );
    let application = recorded_application(&pruned, &pruned.spec);
    assert_eq!(
        serde_json::to_value(&application.metadata).unwrap(),
        json!({ "name": "shop", "namespace": "team", "labels": { "tier": "web" }, "annotations": { "a": "b" } })
    );
    assert_eq!(application.spec.components[0].name, "web");
    let own = json!({ "name": "shop", "labels": { "own": "1" } });
    let whole = revision(&metadata, &json!({ "metadata": own, "spec": spec }));
    let application = recorded_application(&whole, &whole.spec);
    assert_eq!(application.labels().len(), 1);
    assert!(application.annotations().is_empty());
}
