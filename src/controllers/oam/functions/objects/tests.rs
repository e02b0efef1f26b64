use rstest::rstest;
use serde_json::json;

use super::*;
use crate::controllers::oam::clusters::ClusterError;
use crate::controllers::oam::objects::ObjectError;
use crate::controllers::oam::steps::Answer;
use crate::runtime::kube_client::ApiError;

fn id() -> ObjectId {
    ObjectId {
        cluster: LOCAL.to_owned(),
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "default".to_owned(),
        name: "a".to_owned(),
    }
}

fn value() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
}

fn not_installed() -> ObjectError {
    ObjectError::NotInstalled {
        kind: "ConfigMap".to_owned(),
        version: "v1".to_owned(),
    }
}

fn api(code: u16) -> ObjectError {
    let mut error = ApiError::not_found("no");
    error.code = Some(code);
    error.into()
}

fn returned(answer: Answer) -> Value {
    match answer {
        Answer::Returned(value) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_object_without_a_namespace_is_in_the_default_one() {
    for cluster in [json!(null), json!(""), json!("local")] {
        assert_eq!(read(&json!({"value": value(), "cluster": cluster})).unwrap(), id());
    }
    let mut other = value();
    other["metadata"]["namespace"] = json!("other");
    assert_eq!(read(&json!({"value": other})).unwrap().namespace, "other");
}

#[test]
fn objects_are_those_of_the_cluster_that_the_parameters_name() {
    let there = id().in_cluster("edge");
    let labels = json!({"matchingLabels": {"a": "1"}});
    let params = json!({"value": value(), "patch": {}, "cluster": "edge"});
    assert_eq!(read(&params), Ok(there.clone()));
    assert_eq!(patch(&params), Ok(there.clone()));
    assert_eq!(delete(&params), Ok(ObjectDeletion::One(there)));
    let matching = json!({"value": value(), "filter": labels, "cluster": "edge"});
    assert_eq!(list(&matching).unwrap().target().cluster, "edge");
    let Ok(ObjectDeletion::Matching(selection)) = delete(&matching) else {
        panic!("not by labels");
    };
    assert_eq!(selection.target().cluster, "edge");
}

#[test]
fn a_list_has_all_namespaces_unless_the_filter_names_one() {
    let resource = json!({"apiVersion": "v1", "kind": "Pod"});
    let all = list(&json!({"resource": resource})).unwrap();
    assert_eq!((all.namespace.as_str(), all.selector().as_str()), ("", ""));
    let filter = json!({"namespace": "ns", "matchingLabels": {"b": "2", "a/x": "1"}});
    let some = list(&json!({"resource": resource, "filter": filter})).unwrap();
    assert_eq!((some.namespace.as_str(), some.selector().as_str()), ("ns", "a/x=1,b=2"));
    // The field of older versions.
    assert_eq!(list(&json!({"value": resource, "filter": filter})).unwrap(), some);
}

#[test]
fn a_deletion_is_of_one_object_or_by_labels() {
    assert_eq!(delete(&json!({"value": value()})).unwrap(), ObjectDeletion::One(id()));
    let filter = json!({"matchingLabels": {"a": "1"}});
    let matching = delete(&json!({"value": value(), "filter": filter})).unwrap();
    let expected = ObjectSelection {
        cluster: String::new(),
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: "default".to_owned(),
        labels: BTreeMap::from([("a".to_owned(), "1".to_owned())]),
    };
    assert_eq!(matching, ObjectDeletion::Matching(expected));
}

#[test]
fn a_deletion_of_all_objects_of_a_namespace_is_refused() {
    for filter in [json!({}), json!({"namespace": "ns"}), json!({"matchingLabels": {}})] {
        let error = delete(&json!({"value": value(), "filter": filter})).unwrap_err();
        assert!(error.contains("every ConfigMap in namespace"), "{error}");
    }
}

#[test]
fn a_patch_has_an_object_and_a_struct() {
    let params = json!({"value": value(), "patch": {"data": {"a": "b"}}});
    assert_eq!(patch(&params).unwrap(), id());
    assert_eq!(
        patch(&json!({"value": value()})).unwrap_err(),
        "$params.patch is required"
    );
}

#[rstest]
#[case(json!(null), "$params is not a struct")]
#[case(json!({}), "$params.value is required")]
#[case(json!({"value": []}), "$params.value has the wrong type")]
#[case(json!({"value": {"kind": "A", "metadata": {"name": "a"}}}), "$params.value.apiVersion is required")]
#[case(json!({"value": {"apiVersion": "v1", "metadata": {"name": "a"}}}), "$params.value.kind is required")]
#[case(json!({"value": {"apiVersion": "v1", "kind": "A"}}), "$params.value.metadata.name is required")]
#[case(json!({"value": {"apiVersion": "v1", "kind": "A", "metadata": "hunter2"}}), "$params.value")]
#[case(json!({"value": {"apiVersion": "v1", "kind": ["hunter2"], "metadata": {}}}), "$params.value")]
#[case(json!({"value": {}, "cluster": "hunter2/edge\u{1b}[31m"}), "$params.cluster is not a valid name of a cluster")]
#[case(json!({"value": {}, "cluster": "c".repeat(1_000)}), "$params.cluster is not a valid name of a cluster")]
#[case(json!({"value": {}, "cluster": ["hunter2"]}), "$params.cluster")]
fn hostile_params_are_refused_without_quoting_values(#[case] params: Value, #[case] why: &str) {
    for error in [
        read(&params).unwrap_err(),
        delete(&params).unwrap_err(),
        patch(&params).unwrap_err(),
    ] {
        assert!(
            error.contains(why) && !error.contains("hunter2") && error.len() < 200,
            "{error}"
        );
    }
}

#[rstest]
#[case(json!({"matchingLabels": {"a,b": "c"}}), "valid labels")]
#[case(json!({"matchingLabels": {"": "c"}}), "valid labels")]
#[case(json!({"matchingLabels": {"a": "b,c!=d"}}), "valid labels")]
#[case(json!({"matchingLabels": {"a": "b\n"}}), "valid labels")]
#[case(json!({"matchingLabels": {"a": 1}}), "wrong type")]
#[case(json!({"matchingLabels": "a=b"}), "wrong type")]
#[case(json!({"namespace": "../x", "matchingLabels": {"a": "b"}}), "filter.namespace")]
fn a_filter_that_would_change_the_selector_is_refused(#[case] filter: Value, #[case] why: &str) {
    let params = json!({"value": value(), "resource": value(), "filter": filter});
    for error in [list(&params).unwrap_err(), delete(&params).unwrap_err()] {
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn many_labels_are_refused() {
    let labels: BTreeMap<String, &str> = (0..=MAX_LABELS).map(|number| (format!("a{number}"), "b")).collect();
    let error = list(&json!({"value": value(), "filter": {"matchingLabels": labels}})).unwrap_err();
    assert!(error.contains("more than 100 labels"), "{error}");
}

#[test]
fn an_object_is_returned_without_its_managed_fields() {
    let mut object = value();
    object["metadata"]["managedFields"] = json!([{"manager": "a"}]);
    assert_eq!(
        returned(read_result(&id(), Ok(Some(object)))),
        json!({"value": value()})
    );
}

#[test]
fn an_absent_object_is_returned_as_its_name_with_an_error() {
    for result in [Ok(None), Err(not_installed()), Err(api(403))] {
        let answer = returned(read_result(&id(), result));
        let metadata = json!({"name": "a", "namespace": "default"});
        assert_eq!(
            answer["value"],
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
        );
        assert!(!answer["err"].as_str().unwrap().is_empty(), "{answer}");
    }
    let answer = returned(read_result(&id(), Ok(None)));
    assert_eq!(answer["err"], "ConfigMap \"a\" not found");
}

#[test]
fn an_api_server_without_an_answer_is_not_taken_for_a_missing_object() {
    let unavailable = || ObjectError::from(ApiError::unavailable("no response within 30s".to_owned()));
    let cluster = "edge".to_owned();
    let not_joined = ObjectError::Cluster(ClusterError::NotJoined { cluster });
    for error in [unavailable(), api(429), api(500), not_joined] {
        let answers = [
            read_result(&id(), Err(error.clone())),
            listed(&list(&json!({"value": value()})).unwrap(), Err(error.clone())),
            deleted(&value(), Err(error)),
        ];
        assert!(
            answers.iter().all(|answer| matches!(answer, Answer::Failed { .. })),
            "{answers:?}"
        );
    }
}

#[test]
fn a_list_of_a_kind_that_is_not_installed_is_empty_and_has_an_error() {
    let selection = list(&json!({"value": value()})).unwrap();
    let items = json!({"apiVersion": "v1", "kind": "ConfigMapList", "items": [value()]});
    assert_eq!(
        returned(listed(&selection, Ok(vec![value()]))),
        json!({ "values": items })
    );
    let answer = returned(listed(&selection, Err(not_installed())));
    assert_eq!(
        (&answer["values"]["items"], answer["err"].is_string()),
        (&json!([]), true)
    );
}

#[test]
fn a_deletion_of_an_object_that_is_gone_succeeds_and_a_refused_one_has_an_error() {
    assert_eq!(returned(deleted(&value(), Ok(()))), json!({}));
    assert_eq!(returned(deleted(&value(), Err(api(404)))), json!({}));
    assert_eq!(returned(deleted(&value(), Err(api(403))))["value"], value());
}

#[test]
fn a_patched_object_is_the_result() {
    assert_eq!(returned(patched(Some(value()))), json!({"result": value()}));
}

#[test]
fn a_patch_of_the_status_is_an_error() {
    let params = json!({"value": value(), "patch": {"status": {"phase": "Ready"}}});
    let error = patch(&params).unwrap_err();
    assert!(error.starts_with("$params.patch.status is not supported"), "{error}");
}

#[test]
fn a_live_object_is_applied_without_what_the_api_server_sets() {
    let live = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value"}, "status": {"phase": "Ready"},
        "metadata": {
            "name": "settings", "namespace": "team", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}], "finalizers": ["example.com/kept"],
            "labels": {"app.oam.dev/name": "shop", "oam.dev/render-hash": "1"},
            "annotations": {"app.oam.dev/last-applied-configuration": "{}"},
        },
    });
    let manifest = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value"},
        "metadata": {
            "name": "settings", "namespace": "team", "finalizers": ["example.com/kept"],
            "labels": {"app.oam.dev/name": "shop"},
        },
    });
    assert_eq!(desired(live), manifest);
    let mut without_record = manifest;
    without_record["metadata"]["annotations"] = json!({"app.oam.dev/last-applied-configuration": "-"});
    assert_eq!(desired(without_record.clone()), without_record);
}

#[test]
fn an_object_that_a_component_gets_is_in_its_namespace_unless_it_names_another() {
    let of_namespace = |namespace: &str| ObjectId {
        namespace: namespace.to_owned(),
        ..id()
    };
    assert_eq!(get(&json!({"resource": value()}), "team"), Ok(of_namespace("team")));
    let mut other = value();
    other["metadata"]["namespace"] = json!("other");
    assert_eq!(get(&json!({"resource": other}), "team"), Ok(of_namespace("other")));
    let error = |params: Value| get(&params, "team").unwrap_err();
    assert_eq!(error(json!({})), "$params.resource is required");
    assert_eq!(
        error(json!({"resource": {"apiVersion": "v1", "kind": "Pod"}})),
        "$params.resource.metadata.name is required"
    );
    assert_eq!(
        get(&json!({"resource": value(), "cluster": "edge"}), "default"),
        Ok(id().in_cluster("edge"))
    );
}

#[test]
fn a_component_gets_the_object_itself_and_fails_without_it() {
    let mut live = value();
    live["metadata"]["managedFields"] = json!([1]);
    assert_eq!(returned(object_result(&id(), Ok(Some(live)))), value());
    assert_eq!(
        object_result(&id(), Ok(None)),
        Answer::failed("ConfigMap \"a\" not found")
    );
    for error in [not_installed(), api(403), api(500)] {
        assert!(matches!(object_result(&id(), Err(error)), Answer::Failed { .. }));
    }
    let pods = list(&json!({"resource": {"apiVersion": "v1", "kind": "Pod"}})).unwrap();
    let listed = returned(list_result(&pods, Ok(vec![value()])));
    assert_eq!(
        listed,
        json!({"apiVersion": "v1", "kind": "PodList", "items": [value()]})
    );
    assert!(matches!(list_result(&pods, Err(api(403))), Answer::Failed { .. }));
}
