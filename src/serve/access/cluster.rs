use std::fmt;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use kube::{Client, Resource};

use super::reviewer::{ReviewError, Reviews, User};
use crate::api::AppRepository;
use crate::runtime::kube_client::review::{authenticate, is_allowed};

/// A resource whose list is a caller's right to see a namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListedResource {
    #[default]
    AppRepositories,
    /// No API server serves it: a Role grants `list` on it to those who may see which releases are out of date.
    Releases,
}

impl ListedResource {
    fn group(self) -> String {
        match self {
            Self::AppRepositories => AppRepository::group(&()).into_owned(),
            Self::Releases => "portolan.dev".to_owned(),
        }
    }

    fn plural(self) -> String {
        match self {
            Self::AppRepositories => AppRepository::plural(&()).into_owned(),
            Self::Releases => "releases".to_owned(),
        }
    }
}

impl fmt::Display for ListedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.plural(), self.group())
    }
}

/// Has the API server review tokens and rights. Needs the verb `create` on tokenreviews and subjectaccessreviews.
pub struct ClusterReviews {
    client: Client,
    resource: ListedResource,
}

impl ClusterReviews {
    #[must_use]
    pub const fn new(client: Client, resource: ListedResource) -> Self {
        Self { client, resource }
    }
}

impl Reviews for ClusterReviews {
    fn authenticate(&self, token: String) -> BoxFuture<'_, Result<Option<User>, ReviewError>> {
        async move { authenticate(&self.client, &token).await }.boxed()
    }

    fn may_list(&self, user: &User, namespace: Option<&str>) -> BoxFuture<'_, Result<bool, ReviewError>> {
        let access = SubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(self.resource.group()),
                resource: Some(self.resource.plural()),
                verb: Some("list".to_owned()),
                namespace: namespace.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        };
        is_allowed(&self.client, user.clone(), access).boxed()
    }
}
