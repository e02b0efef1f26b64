//! Reviews of bearer tokens and rights, as kube-rbac-proxy and controller-runtime do them.

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};

use super::{ApiError, call};

pub const SELF_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Returns the review of a right of the sender in all namespaces, for [`SELF_REVIEWS`].
#[must_use]
pub fn self_review(verb: &str, group: &str, resource: &str) -> SelfSubjectAccessReview {
    SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some(verb.to_owned()),
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        },
        ..SelfSubjectAccessReview::default()
    }
}

/// Returns true if the owner of `token` may get a non-resource URL, `None` if the token is not valid.
pub async fn may_get_path(client: &Client, token: &str, path: &str) -> Result<Option<bool>, ApiError> {
    let Some(user) = authenticate(client, token).await? else {
        return Ok(None);
    };
    let access = SubjectAccessReviewSpec {
        non_resource_attributes: Some(NonResourceAttributes {
            path: Some(path.to_owned()),
            verb: Some("get".to_owned()),
        }),
        ..SubjectAccessReviewSpec::default()
    };
    is_allowed(client, user, access).await.map(Some)
}

/// Returns the owner of `token`, `None` if the token is not valid.
pub async fn authenticate(client: &Client, token: &str) -> Result<Option<UserInfo>, ApiError> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token.to_owned()),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let reviewed = call(Api::all(client.clone()).create(&PostParams::default(), &review)).await?;
    let status = reviewed.status.unwrap_or_default();
    Ok(status.user.filter(|_| status.authenticated == Some(true)))
}

/// Returns true if the user may do what the attributes of `access` say.
pub async fn is_allowed(client: &Client, user: UserInfo, access: SubjectAccessReviewSpec) -> Result<bool, ApiError> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            ..access
        },
        ..SubjectAccessReview::default()
    };
    let reviewed = call(Api::all(client.clone()).create(&PostParams::default(), &review)).await?;
    Ok(reviewed.status.is_some_and(|status| status.allowed))
}
