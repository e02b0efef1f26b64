//! Rights of authors to the definitions that their Applications use (gate `ValidateDefinitionPermissions`).

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authentication::v1::UserInfo;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};

use super::findings::Findings;
use super::usage::UsedType;
use crate::api::oam::{DefinitionKind, GROUP};
use crate::controllers::oam::rights::Review;
use crate::runtime::kube_client::ApiError;
use crate::text::{sanitize, truncate};

const VERSION: &str = "v1beta1";
/// Types of one Application. Each takes up to two requests.
const MAX_TYPES: usize = 100;
/// Requests at the same time.
const CONCURRENT: usize = 8;
/// Bytes of a name in an error.
const MAX_SHOWN: usize = 253;

pub struct Permissions<'a, R> {
    pub user: &'a UserInfo,
    /// Of the Application.
    pub namespace: &'a str,
    pub definition_namespace: &'a str,
    pub reviews: &'a R,
}

impl<R: Review> Permissions<'_, R> {
    /// Checks that the user can get all definitions.
    ///
    /// # Errors
    /// The API server does not answer a review. This is no permission.
    pub async fn check(&self, types: &[UsedType]) -> Result<Findings, ApiError> {
        let mut findings = Findings::default();
        if types.len() > MAX_TYPES {
            let count = types.len();
            findings.error(
                "spec",
                &format!("it uses {count} types of definitions, more than {MAX_TYPES}; split the application"),
            );
            return Ok(findings);
        }
        let answers: Vec<_> = types.iter().map(|used| self.is_allowed(used).boxed()).collect();
        let answers: Vec<bool> = stream::iter(answers).buffered(CONCURRENT).try_collect().await?;
        for (used, _) in types.iter().zip(answers).filter(|(_, is_allowed)| !is_allowed) {
            let detail = self.denied(used);
            for field in &used.fields {
                findings.error(field, &detail);
            }
        }
        Ok(findings)
    }

    async fn is_allowed(&self, used: &UsedType) -> Result<bool, ApiError> {
        for namespace in &used.namespaces {
            if self.reviews.review(self.review(used, namespace)).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn review(&self, used: &UsedType, namespace: &str) -> SubjectAccessReviewSpec {
        SubjectAccessReviewSpec {
            user: self.user.username.clone(),
            groups: self.user.groups.clone(),
            extra: self.user.extra.clone(),
            uid: self.user.uid.clone(),
            resource_attributes: Some(ResourceAttributes {
                verb: Some("get".to_owned()),
                group: Some(GROUP.to_owned()),
                version: Some(VERSION.to_owned()),
                resource: Some(resource(used.kind).to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(used.type_.clone()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        }
    }

    fn denied(&self, used: &UsedType) -> String {
        let shown = |name: &str| format!("{:?}", truncate(&sanitize(name), MAX_SHOWN));
        format!(
            "user {} cannot get {} {} in namespace {} or {}",
            shown(self.user.username.as_deref().unwrap_or_default()),
            used.definition_kind(),
            shown(&used.type_),
            shown(self.namespace),
            shown(self.definition_namespace),
        )
    }
}

const fn resource(kind: DefinitionKind) -> &'static str {
    match kind {
        DefinitionKind::Component => "componentdefinitions",
        DefinitionKind::Trait => "traitdefinitions",
        DefinitionKind::Policy => "policydefinitions",
        DefinitionKind::WorkflowStep => "workflowstepdefinitions",
    }
}
