//! Returns an Application to a revision that has succeeded.

use kube::ResourceExt;

use super::OperationError;
use crate::api::oam::{
    Application, ApplicationRevision, ApplicationStatus, AppliedResource, LatestRevision, ManagedResource, labels,
};
use crate::controllers::oam::revisions::names::revision_number;

/// The revision that a rollback restores.
#[derive(Clone, Debug, PartialEq)]
pub struct RollbackTarget<'a> {
    pub revision: &'a ApplicationRevision,
    /// Version to publish again. Its release is in place already, so that its workflow need not run.
    pub version: Option<&'a str>,
    /// Newer revisions of a published Application, none of which has succeeded.
    pub outdated: Vec<&'a ApplicationRevision>,
}

/// Chooses the newest revision that has succeeded; for a published Application, the newest that was published too.
/// `revisions` are the revisions of the Application, oldest first.
///
/// # Errors
/// If the workflow is running, or no revision has succeeded.
pub fn choose_rollback<'a>(
    application: &Application,
    revisions: &'a [ApplicationRevision],
) -> Result<RollbackTarget<'a>, OperationError> {
    let workflow = application.status.as_ref().and_then(|status| status.workflow.as_ref());
    if workflow.is_some_and(|workflow| !workflow.terminated && !workflow.suspend && !workflow.finished) {
        return Err(OperationError::Running);
    }
    let is_published = version_of(application).is_some();
    let succeeded = |revision: &ApplicationRevision| revision.status.as_ref().is_some_and(|status| status.succeeded);
    let mut outdated = Vec::new();
    for revision in revisions.iter().rev() {
        let version = version_of(revision).filter(|_| is_published);
        if succeeded(revision) && (!is_published || version.is_some()) {
            return Ok(RollbackTarget {
                revision,
                version,
                outdated: if is_published { outdated } else { Vec::new() },
            });
        }
        outdated.push(revision);
    }
    Err(if is_published {
        OperationError::NoPublishedRevision
    } else {
        OperationError::NoSucceededRevision
    })
}

fn version_of(object: &impl ResourceExt) -> Option<&str> {
    let version = object.annotations().get(labels::PUBLISH_VERSION)?;
    (!version.is_empty()).then_some(version)
}

/// Replaces a status by the status at the end of a revision's run, with the objects that its tracker records.
pub fn restore_status(status: &mut ApplicationStatus, revision: &ApplicationRevision, objects: &[ManagedResource]) {
    let name = revision.name_any();
    status.workflow = revision.status.as_ref().and_then(|status| status.workflow.clone());
    status.services.clear();
    let applied = objects.iter().filter(|object| !object.deleted);
    status.applied_resources = applied.map(applied_resource).collect();
    status.latest_revision = Some(LatestRevision {
        revision: revision_number(&name).unwrap_or_default(),
        revision_hash: revision
            .labels()
            .get(labels::APP_REVISION_HASH)
            .cloned()
            .unwrap_or_default(),
        name,
    });
}

fn applied_resource(object: &ManagedResource) -> AppliedResource {
    AppliedResource {
        cluster: object.cluster.clone(),
        creator: object.creator.clone(),
        api_version: object.api_version.clone(),
        kind: object.kind.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
        uid: object.uid.clone(),
    }
}
