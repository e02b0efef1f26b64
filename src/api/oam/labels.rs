//! Labels, annotations and finalizers that KubeVela's controller and command line use.

pub const APP_NAME: &str = "app.oam.dev/name";
pub const APP_NAMESPACE: &str = "app.oam.dev/namespace";
pub const APP_UID: &str = "app.oam.dev/uid";
/// Name of the ApplicationRevision.
pub const APP_REVISION: &str = "app.oam.dev/appRevision";
/// Hash of the contents of an ApplicationRevision.
pub const APP_REVISION_HASH: &str = "app.oam.dev/app-revision-hash";
pub const COMPONENT: &str = "app.oam.dev/component";
/// `WORKLOAD` or `TRAIT`.
pub const RESOURCE_TYPE: &str = "app.oam.dev/resourceType";
/// Cluster of the object, empty for the controller's own.
pub const CLUSTER: &str = "app.oam.dev/cluster";
/// Type of the component that a workload belongs to.
pub const WORKLOAD_TYPE: &str = "workload.oam.dev/type";
/// Type of the trait that an object belongs to.
pub const TRAIT_TYPE: &str = "trait.oam.dev/type";
/// Key of the object in the outputs of its trait.
pub const TRAIT_RESOURCE: &str = "trait.oam.dev/resource";
/// Hash of the rendered manifest.
pub const RENDER_HASH: &str = "oam.dev/render-hash";
/// Name of the addon that an Application installs.
pub const ADDON_NAME: &str = "addons.oam.dev/name";
/// Shard of the controller that reconciles an Application.
pub const SHARD_ID: &str = "controller.core.oam.dev/scheduled-shard-id";
/// The shard of Applications without that label, and of definitions.
pub const MASTER_SHARD: &str = "master";

pub const COMPONENT_DEFINITION: &str = "componentdefinition.oam.dev/name";
pub const TRAIT_DEFINITION: &str = "trait.oam.dev/name";
pub const POLICY_DEFINITION: &str = "policydefinition.oam.dev/name";
pub const WORKFLOW_STEP_DEFINITION: &str = "workflowstepdefinition.oam.dev/name";
/// Annotation of a definition: the name of its revision, after `<definition>-v`.
pub const DEFINITION_REVISION_NAME: &str = "definitionrevision.oam.dev/name";

/// Annotation: the user with whose rights an Application is deployed.
pub const USER_ANNOTATION: &str = "app.oam.dev/username";
/// Annotation: the groups of that user, separated by commas.
pub const GROUP_ANNOTATION: &str = "app.oam.dev/group";
/// Annotation: the ServiceAccount with whose rights an Application is deployed.
pub const SERVICE_ACCOUNT_ANNOTATION: &str = "app.oam.dev/service-account-name";
/// Annotation: version under which an Application is published; the release is then frozen.
pub const PUBLISH_VERSION: &str = "app.oam.dev/publishVersion";
/// Annotation: name of the workflow, which templates see.
pub const WORKFLOW_NAME: &str = "app.oam.dev/workflowName";
/// Annotation of a recorded object: the URL that it was loaded from.
pub const RESOURCE_URL: &str = "app.oam.dev/resource-url";
/// Annotation of a Secret in a revision, and of the revision: the data of Secrets is left out.
pub const REDACTED: &str = "portolan.dev/redacted-secrets";
/// Annotation: changed definitions make a new revision.
pub const AUTO_UPDATE: &str = "app.oam.dev/autoUpdate";
/// Annotation: version of KubeVela that first reconciled the Application.
pub const KUBEVELA_VERSION: &str = "oam.dev/kubevela-version";
/// Annotation: Applications that share an object, as `namespace/name`, separated by commas; the first one owns it.
pub const SHARED_BY: &str = "app.oam.dev/shared-by";
/// Annotation: manifest that was last applied.
pub const LAST_APPLIED: &str = "app.oam.dev/last-applied-configuration";
/// Annotation of kubectl with the same meaning.
pub const KUBECTL_LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Finalizer of ResourceTrackers.
pub const TRACKER_FINALIZER: &str = "resourcetracker.core.oam.dev/finalizer";
/// Finalizer of Applications whose objects stay when they are deleted.
pub const ORPHAN_FINALIZER: &str = "app.oam.dev/orphan-resource";

/// Label: the Application is left alone.
pub const PAUSE: &str = "controller.core.oam.dev/pause";
/// Annotation: the version of the controller that an object is for.
pub const VERSION_REQUIRED: &str = "app.oam.dev/controller-version-require";
