//! Published versions: frozen releases, which are deployed from their revision alone.

use std::collections::BTreeMap;

use kube::ResourceExt;

use crate::api::oam::{Application, ApplicationRevision, ApplicationRevisionSpec, labels};

/// Returns true if a revision, the latest of the application, is the version that the application publishes.
#[must_use]
pub fn is_release_of(revision: &ApplicationRevision, application: &Application) -> bool {
    let version = application.annotations().get(labels::PUBLISH_VERSION);
    version.is_some() && version == revision.annotations().get(labels::PUBLISH_VERSION)
}

#[must_use]
pub fn is_record_of(
    revision: &ApplicationRevision,
    contents: &ApplicationRevisionSpec,
    application: &Application,
) -> bool {
    let version = |annotations: &BTreeMap<String, String>| annotations.get(labels::PUBLISH_VERSION).cloned();
    contents.application.spec == application.spec
        && version(revision.annotations()) == version(application.annotations())
}

/// `contents` are expanded. KubeVela's CRD drops the recorded metadata; the revision has labels and annotations then.
#[must_use]
pub fn recorded_application(revision: &ApplicationRevision, contents: &ApplicationRevisionSpec) -> Application {
    let mut application = contents.application.clone();
    application.metadata.namespace = revision.namespace();
    if !application.labels().is_empty() || !application.annotations().is_empty() {
        return application;
    }
    let mut revision_labels = revision.labels().clone();
    revision_labels.remove(labels::APP_REVISION_HASH);
    let name = revision_labels.remove(labels::APP_NAME);
    let metadata = &mut application.metadata;
    metadata.name = metadata.name.take().filter(|name| !name.is_empty()).or(name);
    metadata.labels = Some(revision_labels);
    metadata.annotations = Some(revision.annotations().clone());
    application
}
