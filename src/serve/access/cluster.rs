use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use kube::{Client, Resource};

use super::reviewer::{ReviewError, Reviews, User};
use crate::api::AppRepository;
use crate::runtime::kube_client::review::{authenticate, is_allowed};

/// Has the API server review tokens and rights. Needs the verb `create` on tokenreviews and subjectaccessreviews.
pub struct ClusterReviews(Client);

impl ClusterReviews {
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self(client)
    }
}

impl Reviews for ClusterReviews {
    fn authenticate(&self, token: String) -> BoxFuture<'_, Result<Option<User>, ReviewError>> {
        async move { authenticate(&self.0, &token).await }.boxed()
    }

    fn may_list(&self, user: &User, namespace: Option<&str>) -> BoxFuture<'_, Result<bool, ReviewError>> {
        let access = SubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(AppRepository::group(&()).into_owned()),
                resource: Some(AppRepository::plural(&()).into_owned()),
                verb: Some("list".to_owned()),
                namespace: namespace.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        is_allowed(&self.0, user.clone(), access).boxed()
    }
}
