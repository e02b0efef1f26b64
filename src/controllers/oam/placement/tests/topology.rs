use super::*;
use crate::controllers::oam::clusters::{CONTROL_PLANE, JoinedCluster};

fn places(properties: &Value, settings: &PlacementSettings<'_>) -> Result<Vec<String>, String> {
    let placed = deploy(&web(), &[policy("t", "topology", properties.clone())], settings);
    placed.map(|placed| keys(&placed)).map_err(|error| error.to_string())
}

#[rstest]
#[case::empty(json!({}), &["local///web"])]
#[case::named(json!({ "clusters": ["local"] }), &["local///web"])]
#[case::named_twice(json!({ "clusters": ["local", "", "local"] }), &["local///web"])]
#[case::null(json!({ "clusters": null, "namespace": null, "allowEmpty": null }), &["local///web"])]
#[case::no_clusters(json!({ "clusters": [] }), &[])]
#[case::namespace(json!({ "clusters": ["local"], "namespace": "prod" }), &["local/prod//web"])]
#[case::all_clusters(json!({ "clusterLabelSelector": {} }), &["local///web"])]
#[case::control_plane(json!({ "clusterLabelSelector": { CONTROL_PLANE: "true" } }), &["local///web"])]
#[case::none_allowed(json!({ "clusterLabelSelector": { CONTROL_PLANE: "false" }, "allowEmpty": true }), &[])]
#[case::names_first(json!({ "clusters": ["local"], "clusterLabelSelector": { "region": "eu" } }), &["local///web"])]
#[case::old_selector(json!({ "clusterSelector": { "region": "eu" } }), &["local///web"])]
fn a_topology_selects_the_local_cluster_or_none(#[case] properties: Value, #[case] expected: &[&str]) {
    let expected = expected.iter().map(|key| (*key).to_owned()).collect();
    assert_eq!(places(&properties, &SETTINGS), Ok(expected));
}

#[rstest]
#[case::remote(json!({ "clusters": ["local", "prod"] }), "failed to get cluster prod: no such cluster")]
#[case::labels(json!({ "clusterLabelSelector": { "region": "eu" } }), "failed to find any cluster matches given labels")]
#[case::one_label_of_two(
    json!({ "clusterLabelSelector": { CONTROL_PLANE: "true", "region": "eu" } }),
    "failed to find any cluster matches given labels"
)]
#[case::unknown_key(
    json!({ "cluster": "local" }),
    "failed to parse topology policy t: cluster: unknown field `cluster`, expected one of `clusters`, \
     `clusterLabelSelector`, `allowEmpty`, `namespace`, `clusterSelector`"
)]
#[case::null(json!(null), "topology policy t must not have empty properties")]
#[case::text(json!("local"), "failed to parse topology policy t: invalid type: string \"local\", expected struct Topology")]
#[case::number_for_text(
    json!({ "namespace": 1 }),
    "failed to parse topology policy t: namespace: invalid type: integer `1`, expected a string"
)]
#[case::text_for_list(
    json!({ "clusters": "local" }),
    "failed to parse topology policy t: clusters: invalid type: string \"local\", expected a sequence"
)]
#[case::nested(
    json!({ "clusters": [["local"]] }),
    "failed to parse topology policy t: clusters[0]: invalid type: sequence, expected a string"
)]
fn topologies_that_select_nothing_or_are_invalid_fail(#[case] properties: Value, #[case] expected: &str) {
    assert_eq!(places(&properties, &SETTINGS), Err(expected.to_owned()));
}

#[test]
fn another_namespace_needs_the_permission_to_cross_namespaces() {
    let settings = PlacementSettings {
        allow_cross_namespace: false,
        ..SETTINGS
    };
    let in_namespace = |namespace: &str| places(&json!({ "namespace": namespace }), &settings);
    assert_eq!(in_namespace("prod"), Err("cannot cross namespace".to_owned()));
    assert_eq!(in_namespace("team"), Ok(vec!["local/team//web".to_owned()]));
    assert_eq!(in_namespace(""), Ok(vec!["local///web".to_owned()]));
}

#[test]
fn a_place_that_two_topologies_name_counts_once() {
    let policies = [
        policy("t", "topology", json!({ "namespace": "prod" })),
        policy("u", "topology", json!({ "clusters": ["local"], "namespace": "prod" })),
    ];
    assert_eq!(
        keys(&deploy(&web(), &policies, &SETTINGS).unwrap()),
        ["local/prod//web"]
    );
}

#[test]
fn an_error_quotes_little_of_a_long_value() {
    let error = places(&json!({ "clusters": "x".repeat(1 << 20) }), &SETTINGS).unwrap_err();
    assert!(error.len() < 1_200, "{}", error.len());
}

fn joined() -> [JoinedCluster; 3] {
    [("east", "eu"), ("north", "us"), ("west", "eu")].map(|(name, region)| JoinedCluster {
        name: name.to_owned(),
        labels: [("region".to_owned(), region.to_owned())].into(),
    })
}

#[rstest]
#[case::named(json!({ "clusters": ["west", "local", "east", "west"] }), &["west", "local", "east"])]
#[case::all(json!({ "clusterLabelSelector": {} }), &["local", "east", "north", "west"])]
#[case::labels(json!({ "clusterLabelSelector": { "region": "eu" } }), &["east", "west"])]
#[case::none(json!({ "clusterLabelSelector": { "region": "asia" }, "allowEmpty": true }), &[])]
#[case::no_control_plane(json!({ "clusterLabelSelector": { CONTROL_PLANE: "false" } }), &["east", "north", "west"])]
#[case::control_plane(json!({ "clusterLabelSelector": { CONTROL_PLANE: "true" } }), &["local"])]
#[case::names_first(json!({ "clusters": ["north"], "clusterLabelSelector": { "region": "eu" } }), &["north"])]
fn a_topology_selects_joined_clusters_by_name_or_labels(#[case] properties: Value, #[case] expected: &[&str]) {
    let joined = joined();
    let settings = PlacementSettings {
        clusters: Ok(&joined),
        ..SETTINGS
    };
    let expected = expected.iter().map(|cluster| format!("{cluster}///web")).collect();
    assert_eq!(places(&properties, &settings), Ok(expected));
}

#[test]
fn a_cluster_that_is_not_joined_is_named_in_short() {
    let joined = joined();
    let settings = PlacementSettings {
        clusters: Ok(&joined),
        ..SETTINGS
    };
    let fail = |clusters: &[&str]| places(&json!({ "clusters": clusters }), &settings).unwrap_err();
    assert_eq!(fail(&["east", "south"]), "failed to get cluster south: no such cluster");
    assert!(fail(&[&"x".repeat(1 << 20)]).len() < 1_200);
}

#[rstest]
#[case::named(json!({ "clusters": ["east"] }), Err("not listed yet"))]
#[case::labels(json!({ "clusterLabelSelector": {}, "allowEmpty": true }), Err("not listed yet"))]
#[case::local(json!({ "clusters": ["local", ""] }), Ok("local///web"))]
#[case::control_plane(json!({ "clusterLabelSelector": { CONTROL_PLANE: "true" } }), Ok("local///web"))]
#[case::default(json!({}), Ok("local///web"))]
fn only_topologies_that_may_select_joined_clusters_need_their_list(
    #[case] properties: Value,
    #[case] expected: Result<&str, &str>,
) {
    let settings = PlacementSettings {
        clusters: Err("not listed yet"),
        ..SETTINGS
    };
    let expected = expected.map(|place| vec![place.to_owned()]);
    assert_eq!(places(&properties, &settings), expected.map_err(str::to_owned));
}

#[test]
fn clusters_of_any_name_count_where_nothing_is_deployed() {
    let joined = joined();
    let settings = PlacementSettings::permissive(Ok(&joined));
    let count = |properties: Value| places(&properties, &settings).unwrap().len();
    assert_eq!(count(json!({ "clusters": ["south", "local", "east", "south"] })), 3);
    assert_eq!(count(json!({ "clusterLabelSelector": {} })), 4);
    let unknown = PlacementSettings::permissive(Err("not listed yet"));
    assert_eq!(
        places(&json!({ "clusters": ["south"] }), &unknown),
        Ok(vec!["south///web".to_owned()])
    );
}
