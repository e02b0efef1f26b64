//! The comparison itself: it finds each kind of difference, and ignores what may differ.

use std::fs;

use rstest::rstest;
use serde_json::{Value, json};

use super::compare::{AROUND_FUNCTION_ROW, Difference, differences};
use super::exceptions::{EXCEPTIONS, Exception, REFUSED, undocumented};
use super::normalize;
use crate::support::{corpus, project};

fn entry() -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "Deployment", "namespace": "here", "name": "web", "raw": {} })
}

/// A record of a Deployment of one Application.
fn record() -> Value {
    let labels =
        json!({ "app.oam.dev/name": "shop", "app.oam.dev/app-revision-hash": "1", "oam.dev/render-hash": "2" });
    let applied = json!({ "kind": "Deployment", "metadata": { "labels": labels }, "spec": { "replicas": 1 } });
    json!({
        "application": { "shop": {
            "labels": {},
            "annotations": { "oam.dev/kubevela-version": "UNKNOWN" },
            "finalizers": ["app.oam.dev/resource-tracker-finalizer"],
            "status": {
                "status": "workflowFailed",
                "latestRevision": { "name": "shop-v1", "revisionHash": "1" },
                "conditions": [{ "type": "Parsed", "status": "True", "lastTransitionTime": "then" }],
                "workflow": { "terminated": false, "startTime": "then", "steps": [{
                    "id": "abc", "name": "web", "phase": "failed",
                    "message": "function call error for : Dispatch: pre-dispatch dryrun failed: Found 1 errors. \
                                [(cannot create object: Deployment \"web\" is invalid: x: Required value)] (value: cue/format: unsupported node type <nil>)"
                }] }
            }
        } },
        "revisions": { "shop": [{ "name": "shop-v1", "labels": { "app.oam.dev/app-revision-hash": "1" }, "status": { "succeeded": false } }] },
        "trackers": [{
            "name": "shop-v1-here", "type": "versioned", "applicationGeneration": 1, "compression": null, "deleting": false,
            "labels": { "app.oam.dev/name": "shop", "app.oam.dev/uid": "1" },
            "managedResources": [entry()]
        }],
        "events": [["Normal", "Parsed", "Parsed successfully"]],
        "objects": [{
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": "web", "namespace": "here", "uid": "1", "labels": labels,
                "annotations": { "app.oam.dev/last-applied-configuration": applied.to_string() }
            },
            "spec": { "replicas": 1, "template": { "spec": { "containers": [{ "name": "web", "resources": {} }] } } },
            "status": { "replicas": 1 }
        }],
        "missing": null
    })
}

const APP: &str = "/application/shop";
const OBJECT: &str = "/objects/0";
const TRACKER: &str = "/trackers/0";
const MESSAGE: &str = "/application/shop/status/workflow/steps/0/message";

/// Returns the paths that differ if the value at a place is replaced.
fn changed(place: &str, value: Value) -> Vec<String> {
    let (expected, mut actual) = (record(), record());
    *actual.pointer_mut(place).unwrap() = value;
    let found = differences(&normalize::record(&expected), &normalize::record(&actual));
    found.into_iter().map(|difference| difference.path).collect()
}

#[rstest]
#[case::phase(&format!("{APP}/status/status"), json!("running"), "application/shop/status/status")]
#[case::boolean(&format!("{APP}/status/workflow/terminated"), json!(true), "application/shop/status/workflow/terminated")]
#[case::condition(&format!("{APP}/status/conditions/0/status"), json!("False"), "application/shop/status/conditions/0/status")]
#[case::no_condition(&format!("{APP}/status/conditions"), json!([]), "application/shop/status/conditions/0")]
#[case::missing_hash(&format!("{APP}/status/latestRevision"), json!({ "name": "shop-v1" }), "application/shop/status/latestRevision/revisionHash")]
#[case::annotation(&format!("{APP}/annotations"), json!({}), "application/shop/annotations")]
#[case::finalizer(&format!("{APP}/finalizers"), json!([]), "application/shop/finalizers")]
#[case::cause(MESSAGE, json!("Found 1 errors. [(cannot create object: Deployment \"web\" is invalid)]"), "application/shop/status/workflow/steps/0/message")]
#[case::words(MESSAGE, json!("pre-dispatch dryrun failed: Deployment \"web\" is invalid: x: Required value"), "application/shop/status/workflow/steps/0/message")]
#[case::empty(&format!("{APP}/status/workflow/steps/0/reason"), json!(""), "application/shop/status/workflow/steps/0/reason")]
#[case::revision("/revisions/shop", json!([]), "revisions/shop/shop-v1")]
#[case::succeeded("/revisions/shop/0/status/succeeded", json!(true), "revisions/shop/shop-v1/succeeded")]
#[case::no_tracker("/trackers", json!([]), "trackers/shop-v1-here")]
#[case::compression(&format!("{TRACKER}/compression"), json!("zstd"), "trackers/shop-v1-here/compression")]
#[case::entry(&format!("{TRACKER}/managedResources/0/trait"), json!("scaler"), "trackers/shop-v1-here/managedResources/apps/v1 Deployment here/web/0/trait")]
#[case::creator(&format!("{TRACKER}/managedResources/0/creator"), json!("workflow"), "trackers/shop-v1-here/managedResources/apps/v1 Deployment here/web/0/creator")]
#[case::skip_gc(&format!("{TRACKER}/managedResources/0/skipGC"), json!(true), "trackers/shop-v1-here/managedResources/apps/v1 Deployment here/web/0/skipGC")]
#[case::second_entry(
    &format!("{TRACKER}/managedResources"),
    json!([entry(), entry()]),
    "trackers/shop-v1-here/managedResources/apps/v1 Deployment here/web/1"
)]
#[case::no_entry(&format!("{TRACKER}/managedResources"), json!([]), "trackers/shop-v1-here/managedResources")]
#[case::no_event("/events", json!([]), "events/Normal Parsed")]
#[case::event("/events/0/2", json!("Parsed"), "events/Normal Parsed/0")]
#[case::no_object("/objects", json!([]), "objects/apps/v1 Deployment here/web")]
#[case::name(&format!("{OBJECT}/metadata/name"), json!("web2"), "objects/apps/v1 Deployment here/web")]
#[case::label(&format!("{OBJECT}/metadata/labels/app.oam.dev~1name"), json!("other"), "objects/apps/v1 Deployment here/web/metadata/labels/app.oam.dev/name")]
#[case::field(&format!("{OBJECT}/spec/replicas"), json!(2), "objects/apps/v1 Deployment here/web/spec/replicas")]
#[case::element(&format!("{OBJECT}/spec/template/spec/containers/0/name"), json!("x"), "objects/apps/v1 Deployment here/web/spec/template/spec/containers/0/name")]
#[case::last_applied(
    &format!("{OBJECT}/metadata/annotations/app.oam.dev~1last-applied-configuration"),
    json!("{}"),
    "objects/apps/v1 Deployment here/web/lastApplied/kind"
)]
#[case::missing("/missing", json!(["v1 Service here/web"]), "missing/0")]
fn a_change_is_found(#[case] place: &str, #[case] value: Value, #[case] path: &str) {
    // `pointer_mut` finds only what exists.
    let paths = match place.rsplit_once('/') {
        Some((parent, key)) if record().pointer(place).is_none() => {
            let mut fields = record().pointer(parent).unwrap().clone();
            fields[key] = value;
            changed(parent, fields)
        }
        _ => changed(place, value),
    };
    assert!(paths.iter().any(|found| found == path), "{paths:?}");
}

#[rstest]
#[case::hash_of_revision("/application/shop/status/latestRevision/revisionHash", json!("p2"))]
#[case::id("/application/shop/status/workflow/steps/0/id", json!("xyz"))]
#[case::time("/application/shop/status/conditions/0/lastTransitionTime", json!("now"))]
#[case::function(
    MESSAGE,
    json!("Dispatch: pre-dispatch dryrun failed: Found 1 errors. [(cannot create object: Deployment \"web\" is invalid: x: Required value)]")
)]
#[case::render_hash("/objects/0/metadata/labels/oam.dev~1render-hash", json!("3"))]
#[case::uid("/objects/0/metadata/uid", json!("3"))]
#[case::status_of_object("/objects/0/status", json!({}))]
#[case::raw("/trackers/0/managedResources/0/raw", json!({ "kind": "Deployment" }))]
#[case::no_labels("/application/shop/labels", Value::Null)]
#[case::none_missing("/missing", json!([]))]
fn what_differs_between_two_runs_is_ignored(#[case] place: &str, #[case] value: Value) {
    assert_eq!(changed(place, value), Vec::<String>::new());
}

const SERVICE: &str = "objects/v1 Service here/web/spec/type";

fn exception(case: &'static str, path: &'static str) -> Exception {
    Exception {
        case,
        path,
        ours: "one two",
        row: "a reason",
    }
}

fn difference(path: &str, actual: &str) -> Difference {
    Difference {
        path: path.to_owned(),
        expected: None,
        actual: Some(actual.into()),
    }
}

#[test]
fn an_exception_removes_its_path_with_its_value_only() {
    let exceptions = [exception("shop", SERVICE), exception("other", "events/x")];
    let left = |found| undocumented(&exceptions, "shop", found).map(|left| left.len());
    assert_eq!(left(vec![difference(SERVICE, "one\n  two")]), Ok(0));
    assert_eq!(left(vec![difference(SERVICE, "one")]), Ok(1));
    assert_eq!(
        left(vec![difference(SERVICE, "one two"), difference("events/x", "one two")]),
        Ok(1)
    );
    let part = format!("{SERVICE}/more");
    assert_eq!(left(vec![difference(&part, "one two")]), Ok(1));
}

#[test]
fn each_exception_is_named_by_the_docs() {
    let docs = fs::read_to_string(project("docs/reference/kubevela.md")).unwrap();
    let (_, differences) = docs.split_once("\n## Differences\n").unwrap();
    let (differences, _) = differences.split_once("\n## ").unwrap();
    let exceptions = EXCEPTIONS.iter().map(|one| one.row);
    let refused = REFUSED.iter().map(|(.., row)| *row);
    for row in exceptions.chain(refused).chain([AROUND_FUNCTION_ROW]) {
        assert!(differences.contains(&format!("\n| {row} |")), "{row}");
    }
}

#[test]
fn an_exception_that_is_not_needed_is_an_error() {
    let exceptions = [exception("shop", SERVICE)];
    let error = undocumented(&exceptions, "shop", Vec::new()).unwrap_err();
    assert!(error.contains("a reason"), "{error}");
}

#[test]
fn records_are_loaded_whole_and_equal_to_themselves_only() {
    let Some(goldens) = corpus::oam_goldens() else { return };
    let cases = super::Case::load_all(goldens);
    assert!(cases.len() >= 68, "{} cases", cases.len());
    let mut with_objects = 0;
    for case in &cases {
        assert_eq!(differences(&case.expected, &case.expected), [], "{}", case.name);
        for part in ["application", "revisions"] {
            let apps = case.expected[part].as_object().unwrap().len();
            assert_eq!(apps, case.apps().count(), "{part} of {}", case.name);
        }
        let objects = case.expected["objects"].as_object().unwrap().len();
        with_objects += usize::from(objects > 1);
    }
    assert!(with_objects > 50, "{with_objects} cases with objects");
    assert!(!differences(&cases[0].expected, &cases[1].expected).is_empty());
}
