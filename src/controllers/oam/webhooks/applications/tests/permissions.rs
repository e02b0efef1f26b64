use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use parking_lot::Mutex;
use rstest::rstest;
use serde_json::json;

use super::super::permissions::Permissions;
use super::super::usage::UsedType;
use super::{SYSTEM, shown};
use crate::api::oam::DefinitionKind;
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

fn used(kind: DefinitionKind, type_: &str, fields: &[&str], namespaces: &[&str]) -> UsedType {
    let [fields, namespaces] = [fields, namespaces].map(|list| list.iter().map(|text| (*text).to_owned()).collect());
    UsedType {
        kind,
        type_: type_.to_owned(),
        fields,
        namespaces,
    }
}

async fn checked(reviews: &FakeReviews, types: &[UsedType]) -> Result<Vec<String>, ApiError> {
    let user = UserInfo {
        username: Some("alice".to_owned()),
        groups: Some(vec!["dev".to_owned()]),
        ..UserInfo::default()
    };
    let permissions = Permissions {
        user: &user,
        namespace: "team",
        definition_namespace: SYSTEM,
        reviews,
    };
    permissions.check(types).await.map(shown)
}

const DENIED: &str = "user \"alice\" cannot get ComponentDefinition \"web\" in namespace \"team\" or \"vela-system\"";

#[rstest]
#[case::in_the_shared_namespace(&[SYSTEM], &["componentdefinitions/vela-system/web"], true)]
#[case::in_its_own(&["team"], &["componentdefinitions/team/web"], true)]
#[case::in_either(&[SYSTEM, "team"], &["componentdefinitions/team/web"], true)]
#[case::without_rights(&[SYSTEM, "team"], &[], false)]
#[case::with_rights_where_the_definition_is_not(&[SYSTEM], &["componentdefinitions/team/web"], false)]
#[case::with_rights_to_nothing(&[], &["componentdefinitions/vela-system/web", "componentdefinitions/team/web"], false)]
#[case::with_rights_to_another_kind(&[SYSTEM], &["traitdefinitions/vela-system/web"], false)]
#[tokio::test]
async fn an_author_uses_definitions_that_the_author_can_get(
    #[case] namespaces: &[&str],
    #[case] allowed: &[&'static str],
    #[case] is_allowed: bool,
) {
    let reviews = FakeReviews {
        allowed: allowed.to_vec(),
        ..FakeReviews::default()
    };
    let fields = ["spec.components[0].type", "spec.components[1].type"];
    let types = [used(DefinitionKind::Component, "web", &fields, namespaces)];
    let checked = checked(&reviews, &types).await.unwrap();
    let lines = [1, 2].map(|line| format!("  {line}) \"spec.components[{}].type\": {DENIED}.", line - 1));
    let expected = if is_allowed { Vec::new() } else { lines.to_vec() };
    assert_eq!(checked, expected);
}

#[tokio::test]
async fn the_review_is_about_the_user_of_the_request_and_the_type_as_it_is_written() {
    let reviews = FakeReviews::default();
    let types = [used(
        DefinitionKind::Component,
        "web@v1",
        &["spec.components[0].type"],
        &[SYSTEM],
    )];
    assert_eq!(checked(&reviews, &types).await.unwrap().len(), 1);
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
    let reviews = FakeReviews::default();
    let checked = checked(&reviews, &[used(kind, "x", &["f"], &[SYSTEM])]).await.unwrap();
    assert!(
        checked[0].contains(&format!("cannot get {definition} \"x\"")),
        "{checked:?}"
    );
    assert_eq!(reviews.asked(), [format!("{resource}/vela-system/x")]);
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_is_no_permission() {
    let types = [used(DefinitionKind::Component, "error", &["f"], &[SYSTEM])];
    assert!(checked(&FakeReviews::default(), &types).await.is_err());
}

#[tokio::test]
async fn the_number_of_reviews_is_bounded() {
    let type_ = |number| used(DefinitionKind::Component, &format!("t{number}"), &["f"], &[SYSTEM]);
    let types: Vec<_> = (0..101).map(type_).collect();
    let reviews = FakeReviews::default();
    let checked = checked(&reviews, &types).await.unwrap();
    assert_eq!(
        checked,
        ["  1) \"spec\": it uses 101 types of definitions, more than 100; split the application."]
    );
    assert!(reviews.asked().is_empty());
}
