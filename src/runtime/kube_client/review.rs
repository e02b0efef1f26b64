//! Reviews of bearer tokens, as kube-rbac-proxy and controller-runtime do them.

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::{Api, PostParams};

use super::{ApiError, call};

/// Returns true if the owner of `token` may get a non-resource URL, `None` if the token is not valid.
pub async fn may_get_path(client: &Client, token: &str, path: &str) -> Result<Option<bool>, ApiError> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token.to_owned()),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let parameters = PostParams::default();
    let reviewed = call(Api::all(client.clone()).create(&parameters, &review)).await?;
    let status = reviewed.status.unwrap_or_default();
    let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
        return Ok(None);
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviewed = call(Api::all(client.clone()).create(&parameters, &review)).await?;
    Ok(Some(reviewed.status.is_some_and(|status| status.allowed)))
}
