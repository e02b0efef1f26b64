//! The review of an Application before it is stored.
//!
//! ```text
//!  decode ─► annotations ─► rights to definitions ─► workflow ─► components ─► immutable parameters ─► verdict
//!               │                  │                    │         parse, trial render     │
//!               └──────────────────┴────────────────────┴── errors and warnings ──────────┘
//! ```
//! Errors are listed in this order, which is KubeVela's. Without the time to check it, all but rights is allowed with a
//! warning.

use std::time::Duration;

use kube::ResourceExt;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{Instant, sleep, timeout_at};

use super::components::ComponentChecks;
use super::definitions::ReviewDefinitions;
use super::findings::{Findings, with_uid};
use super::immutable::ImmutableChecks;
use super::permissions::Permissions;
use super::settings::ApplicationWebhookSettings;
use super::usage::{UsedType, used_types};
use super::workflow::{check_annotations, check_workflow};
use crate::api::oam::{Application, DefinitionKind, labels};
use crate::controllers::oam::parse::{Lookup, is_built_in_step};
use crate::controllers::oam::policies::is_built_in;
use crate::controllers::oam::render::evaluate::Evaluate;
use crate::controllers::oam::rights::Review;
use crate::controllers::oam::webhooks::inspect::InspectTemplate;
use crate::controllers::oam::webhooks::review::{AdmissionRequest, Operation, Verdict};
use crate::runtime::watch::{MAX_DECODED_BYTES, too_large};

/// Time of all that a review waits for.
const MAX_TIME: Duration = Duration::from_secs(3);
/// Wait for a definition that is not in the cache: it may have been created right before the Application.
const DEFINITION_WAIT: Duration = Duration::from_millis(300);

pub struct Validator<'a, D, E, I, R> {
    pub settings: &'a ApplicationWebhookSettings,
    pub definitions: &'a D,
    pub evaluator: &'a E,
    pub inspector: &'a I,
    pub reviews: &'a R,
}

/// The part of an object that tells if it is being deleted.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DeletionOutline {
    metadata: DeletionMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeletionMetadata {
    deletion_timestamp: Option<IgnoredAny>,
}

impl DeletionOutline {
    const fn is_requested(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

/// The objects of a request.
struct ReviewedObjects {
    app: Application,
    /// Before an update.
    old: Option<Application>,
}

impl<D: ReviewDefinitions, E: Evaluate, I: InspectTemplate, R: Review> Validator<'_, D, E, I, R> {
    pub async fn validate(&self, request: &AdmissionRequest) -> Verdict {
        let deadline = Instant::now() + MAX_TIME;
        let objects = match ReviewedObjects::read(request) {
            Ok(objects) => objects,
            Err(error) => return Verdict::Invalid(with_uid(&format!("failed to decode: {error}"), &request.uid)),
        };
        let Some(objects) = objects else {
            return Verdict::allowed();
        };
        let is_own = self.settings.is_own_user(request.user());
        // Or else the controller could not add its finalizer to an Application that is older than the webhook.
        if is_own && !objects.is_spec_changed() {
            return Verdict::allowed();
        }
        let findings = self.check(&objects, request, is_own, deadline).await;
        findings.into_verdict(&request.uid)
    }

    async fn check(
        &self,
        objects: &ReviewedObjects,
        request: &AdmissionRequest,
        is_own: bool,
        deadline: Instant,
    ) -> Findings {
        let app = &objects.app;
        let is_changed = objects.is_spec_changed();
        let needs_components = self.settings.checks_components() && is_changed && !objects.is_frozen();
        let needs_permissions = self.settings.reviews.checks_definition_rights && !is_own;
        let mut findings = check_annotations(app);
        if needs_components || needs_permissions {
            let types = self.used_types(app, deadline).await;
            if needs_permissions {
                findings.append(self.check_permissions(app, request, types, deadline).await);
            }
        }
        if !is_changed {
            return findings;
        }
        findings.append(check_workflow(app));
        // First, so that a slow trial does not take its time.
        let immutable = self.check_immutable(objects, deadline).await;
        if needs_components {
            let components = ComponentChecks {
                app,
                settings: self.settings,
                definitions: self.definitions,
                evaluator: self.evaluator,
                deadline,
            };
            findings.append(components.run().await);
        }
        findings.append(immutable);
        findings
    }

    /// Returns the types that the Application uses, after a wait for those that are not in the cache.
    async fn used_types(&self, app: &Application, deadline: Instant) -> Result<Vec<UsedType>, String> {
        let types_of = |lookup: &dyn Lookup| used_types(app, lookup, &self.settings.definition_namespace);
        let resolve = || async {
            let resolved = timeout_at(deadline, self.definitions.resolve(types_of)).await;
            resolved.map_err(|_| "definitions were not read in time".to_owned())?
        };
        let types = resolve().await?;
        let is_missing = |used: &UsedType| needs_definition(used) && used.namespaces.is_empty();
        if !types.iter().any(is_missing) {
            return Ok(types);
        }
        sleep(DEFINITION_WAIT).await;
        resolve().await
    }

    /// Rights that can't be checked are refused, as in KubeVela, whatever the failure policy of the webhook is.
    async fn check_permissions(
        &self,
        app: &Application,
        request: &AdmissionRequest,
        types: Result<Vec<UsedType>, String>,
        deadline: Instant,
    ) -> Findings {
        let namespace = app.namespace().unwrap_or_default();
        let permissions = Permissions {
            user: &request.user_info,
            namespace: &namespace,
            definition_namespace: &self.settings.definition_namespace,
            reviews: self.reviews,
        };
        let checked = match types {
            Ok(types) => match timeout_at(deadline, permissions.check(&types)).await {
                Ok(checked) => checked.map_err(|error| error.to_string()),
                Err(_) => Err("the API server did not answer in time".to_owned()),
            },
            Err(cause) => Err(cause),
        };
        checked.unwrap_or_else(|cause| {
            let mut findings = Findings::default();
            findings.error("spec", &format!("unable to verify permissions, try again: {cause}"));
            findings
        })
    }

    async fn check_immutable(&self, objects: &ReviewedObjects, deadline: Instant) -> Findings {
        let Some(old) = &objects.old else {
            return Findings::default();
        };
        let checks = ImmutableChecks {
            app: &objects.app,
            old,
            definition_namespace: &self.settings.definition_namespace,
            definitions: self.definitions,
            evaluator: self.inspector,
            deadline,
        };
        checks.run().await
    }
}

impl ReviewedObjects {
    /// Returns `None` for an Application that is not reviewed.
    fn read(request: &AdmissionRequest) -> Result<Option<Self>, String> {
        let decode = |error: serde_json::Error| error.to_string();
        let is_update = request.operation == Operation::Update;
        // It may go even if the rest of it can't be read.
        if is_update && request.object::<DeletionOutline>().map_err(decode)?.is_requested() {
            return Ok(None);
        }
        let [bytes, old_bytes] = request.decoded_bytes();
        if bytes > MAX_DECODED_BYTES {
            return Err(too_large(bytes, MAX_DECODED_BYTES));
        }
        // What is too large was never deployed, so that nothing in it is immutable.
        let old: Option<Application> = if is_update && old_bytes <= MAX_DECODED_BYTES {
            Some(request.old_object().map_err(decode)?)
        } else {
            None
        };
        let mut app: Application = request.object().map_err(decode)?;
        app.metadata.namespace = Some(request.namespace.clone());
        Ok(Some(Self { app, old }))
    }

    fn is_spec_changed(&self) -> bool {
        self.old.as_ref().is_none_or(|old| old.spec != self.app.spec)
    }

    /// Returns true for a published version, which is deployed from its revision, whatever the spec says.
    fn is_frozen(&self) -> bool {
        let version = |app: &Application| app.annotations().get(labels::PUBLISH_VERSION).cloned();
        let published = version(&self.app).filter(|version| !version.is_empty());
        self.old.as_ref().is_some_and(|old| {
            let status = old.status.as_ref();
            let is_released = status.is_some_and(|status| status.latest_revision.is_some());
            is_released && published.is_some() && published == version(old)
        })
    }
}

fn needs_definition(used: &UsedType) -> bool {
    match used.kind {
        DefinitionKind::Component | DefinitionKind::Trait => true,
        DefinitionKind::Policy => !is_built_in(&used.type_),
        DefinitionKind::WorkflowStep => !is_built_in_step(&used.type_),
    }
}
