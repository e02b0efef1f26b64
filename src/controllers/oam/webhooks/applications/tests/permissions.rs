use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::json;

use super::super::permissions::Permissions;
use super::super::usage::UsedType;
use super::{FakeDefinitions, SYSTEM, shown};
use crate::api::oam::DefinitionKind;
use crate::controllers::oam::parse::tests::{Cluster, template};
use crate::controllers::oam::rights::Review;
use crate::runtime::kube_client::ApiError;

/// Allows the objects that it names as `<resource>/<namespace>/<name>`; the name `error` fails.
#[derive(Default)]
pub struct FakeReviews {
    pub allowed: Vec<&'static str>,
    pub specs: Mutex<Vec<SubjectAccessReviewSpec>>,
}

impl FakeReviews {
    pub fn asked(&self) -> Vec<String> {
        self.specs.lock().iter().map(name).collect()
    }
}

fn name(spec: &SubjectAccessReviewSpec) -> String {
    let attributes = spec.resource_attributes.as_ref().unwrap();
    let parts = [&attributes.resource, &attributes.namespace, &attributes.name];
    parts.map(|part| part.clone().unwrap()).join("/")
}

impl Review for FakeReviews {
    async fn review(&self, spec: SubjectAccessReviewSpec) -> Result<bool, ApiError> {
        let name = name(&spec);
        self.specs.lock().push(spec);
        if name.ends_with("/error") {
            return Err(ApiError::unavailable("no response".to_owned()));
        }
        Ok(self.allowed.contains(&name.as_str()))
    }
}

fn used(kind: DefinitionKind, type_: &str, fields: &[&str]) -> UsedType {
    UsedType {
        kind,
        type_: type_.to_owned(),
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
    }
}

fn cluster(names: &[(&str, &str)]) -> FakeDefinitions {
    let mut cluster = Cluster::default();
    for (namespace, name) in names {
        cluster.add("ComponentDefinition", namespace, name, &template("output: {}"));
    }
    FakeDefinitions::of(cluster)
}

async fn checked(
    definitions: &FakeDefinitions,
    reviews: &FakeReviews,
    namespace: &str,
    types: &[UsedType],
) -> Result<Vec<String>, ApiError> {
    let user = UserInfo {
        username: Some("alice".to_owned()),
        groups: Some(vec!["dev".to_owned()]),
        ..UserInfo::default()
    };
    let permissions = Permissions {
        user: &user,
        namespace,
        definition_namespace: SYSTEM,
        definitions,
        reviews,
    };
    permissions.check(types).await.map(shown)
}

const DENIED: &str = "user \"alice\" cannot get ComponentDefinition \"web\" in namespace \"team\" or \"vela-system\"";

#[rstest]
#[case::in_the_shared_namespace(&[(SYSTEM, "web")], &["componentdefinitions/vela-system/web"], true)]
#[case::in_its_own(&[("team", "web")], &["componentdefinitions/team/web"], true)]
#[case::in_either(&[(SYSTEM, "web"), ("team", "web")], &["componentdefinitions/team/web"], true)]
#[case::without_rights(&[(SYSTEM, "web"), ("team", "web")], &[], false)]
#[case::with_rights_where_the_definition_is_not(&[(SYSTEM, "web")], &["componentdefinitions/team/web"], false)]
#[case::with_rights_to_nothing(&[], &["componentdefinitions/vela-system/web", "componentdefinitions/team/web"], false)]
#[case::with_rights_to_another_kind(&[(SYSTEM, "web")], &["traitdefinitions/vela-system/web"], false)]
#[tokio::test]
async fn an_author_uses_definitions_that_the_author_can_get(
    #[case] definitions: &[(&str, &str)],
    #[case] allowed: &[&'static str],
    #[case] is_allowed: bool,
) {
    let reviews = FakeReviews {
        allowed: allowed.to_vec(),
        ..FakeReviews::default()
    };
    let types = [used(
        DefinitionKind::Component,
        "web",
        &["spec.components[0].type", "spec.components[1].type"],
    )];
    let checked = checked(&cluster(definitions), &reviews, "team", &types).await.unwrap();
    let lines = [1, 2].map(|line| format!("  {line}) \"spec.components[{}].type\": {DENIED}.", line - 1));
    let expected = if is_allowed { Vec::new() } else { lines.to_vec() };
    assert_eq!(checked, expected);
}

#[tokio::test]
async fn the_review_is_about_the_user_of_the_request_and_the_type_as_it_is_written() {
    let mut definitions = Cluster::default();
    definitions.add_revision(SYSTEM, DefinitionKind::Component, "web", "web-v1", "output: {}");
    let reviews = FakeReviews::default();
    let types = [used(DefinitionKind::Component, "web@v1", &["spec.components[0].type"])];
    let checked = checked(&FakeDefinitions::of(definitions), &reviews, SYSTEM, &types)
        .await
        .unwrap();
    assert_eq!(checked.len(), 1);
    let specs = reviews.specs.lock();
    assert_eq!(
        json!(*specs),
        json!([{
            "user": "alice", "groups": ["dev"],
            "resourceAttributes": {
                "verb": "get", "group": "core.oam.dev", "version": "v1beta1", "resource": "componentdefinitions",
                "namespace": SYSTEM, "name": "web@v1",
            },
        }])
    );
}

#[rstest]
#[case(DefinitionKind::Trait, "traitdefinitions", "TraitDefinition")]
#[case(DefinitionKind::Policy, "policydefinitions", "PolicyDefinition")]
#[case(DefinitionKind::WorkflowStep, "workflowstepdefinitions", "WorkflowStepDefinition")]
#[tokio::test]
async fn all_kinds_of_definitions_are_reviewed(
    #[case] kind: DefinitionKind,
    #[case] resource: &str,
    #[case] definition: &str,
) {
    let mut definitions = Cluster::default();
    definitions.add(definition, SYSTEM, "x", &template(""));
    let (definitions, reviews) = (FakeDefinitions::of(definitions), FakeReviews::default());
    let checked = checked(&definitions, &reviews, "team", &[used(kind, "x", &["f"])])
        .await
        .unwrap();
    assert!(
        checked[0].contains(&format!("cannot get {definition} \"x\"")),
        "{checked:?}"
    );
    assert_eq!(reviews.asked(), [format!("{resource}/vela-system/x")]);
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_is_no_permission() {
    let definitions = cluster(&[(SYSTEM, "error")]);
    let types = [used(DefinitionKind::Component, "error", &["f"])];
    assert!(
        checked(&definitions, &FakeReviews::default(), "team", &types)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn the_number_of_reviews_is_bounded() {
    let types: Vec<_> = (0..101)
        .map(|number| used(DefinitionKind::Component, &format!("t{number}"), &["f"]))
        .collect();
    let reviews = FakeReviews::default();
    let checked = checked(&cluster(&[]), &reviews, "team", &types).await.unwrap();
    assert_eq!(
        checked,
        ["  1) \"spec\": it uses 101 types of definitions, more than 100; split the application."]
    );
    assert!(reviews.asked().is_empty());
}
