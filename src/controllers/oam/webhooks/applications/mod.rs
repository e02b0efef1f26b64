//! The webhooks of Applications.
//!
//! ```text
//!  mutate   ─► identity of the author ─► shard ─► names of steps ─► JSON patch
//!  validate ─► annotations, rights, workflow, components, immutable parameters ─► errors, warnings
//! ```
//! Neither writes an object, so dry runs get the same answers.

mod components;
mod definitions;
mod findings;
mod identity;
mod immutable;
mod mutate;
mod permissions;
mod settings;
mod shards;
#[cfg(test)]
mod tests;
mod trial;
mod usage;
mod validate;
mod workflow;

use std::time::Duration;

use kube::Client;

use super::review::{AdmissionRequest, Operation, Verdict};
use crate::api::oam::labels::SHARD_ID;
use crate::budget::{Budgets, Exhausted, Reservation, leave_runtime_if_large};
use crate::controllers::oam::PASS_COPIES;
use crate::controllers::oam::definitions::{DefinitionCaches, Loaded};
use crate::controllers::oam::render::evaluate::NamespaceEvaluator;
use crate::cue::Evaluator;
use definitions::CachedDefinitions;
pub use immutable::ReadImmutable;
use mutate::Mutation;
pub use settings::{ApplicationWebhookSettings, IdentitySettings, SchedulingSettings};
use shards::ReadyShards;
use validate::Validator;

/// Memory that a review takes for decoding without a reservation.
const SMALL_BYTES: u64 = 1 << 20;
/// Longest wait for memory. The API server waits for the review.
const MEMORY_WAIT: Duration = Duration::from_secs(1);

/// Reviews Applications. The client has the rights of the controller.
pub struct ApplicationWebhooks {
    client: Client,
    definitions: DefinitionCaches,
    evaluator: Evaluator,
    budgets: Budgets,
    immutable: ReadImmutable,
    settings: ApplicationWebhookSettings,
    shards: ReadyShards,
}

impl ApplicationWebhooks {
    #[must_use]
    pub fn new(
        client: Client,
        definitions: DefinitionCaches,
        evaluator: Evaluator,
        budgets: Budgets,
        immutable: ReadImmutable,
        settings: ApplicationWebhookSettings,
    ) -> Self {
        let shards = ReadyShards::new(client.clone(), &settings.definition_namespace);
        Self {
            client,
            definitions,
            evaluator,
            budgets,
            immutable,
            settings,
            shards,
        }
    }

    /// Returns the changes to make before an Application is stored.
    pub async fn mutate(&self, request: &AdmissionRequest) -> Verdict {
        if !is_write(request) {
            return Verdict::allowed();
        }
        let mutate = async {
            leave_runtime_if_large(request.object_bytes()).await;
            let mutation = match Mutation::parse(request) {
                Ok(mutation) => mutation,
                Err(verdict) => return verdict,
            };
            let scheduling = self.settings.scheduling.as_ref();
            if !scheduling.is_some_and(|scheduling| scheduling.shards.is_empty() && mutation.needs_shard()) {
                return mutation.verdict(request, &self.settings, None);
            }
            let shard = self.shards.next(request.dry_run).await;
            let verdict = mutation.verdict(request, &self.settings, shard.as_ref().ok().and_then(Option::as_deref));
            match shard {
                Ok(Some(_)) => verdict,
                Ok(None) => warn_unscheduled(verdict, "no pod of a shard is ready"),
                Err(error) => warn_unscheduled(verdict, &format!("failed to list pods: {error}")),
            }
        };
        self.budgets.offloadable(&request.namespace, mutate).await
    }

    /// Returns the reasons not to store an Application.
    pub async fn validate(&self, request: &AdmissionRequest) -> Verdict {
        if !is_write(request) {
            return Verdict::allowed();
        }
        let validate = async {
            leave_runtime_if_large(request.object_bytes()).await;
            let _memory = match self.memory(request).await {
                Ok(memory) => memory,
                Err(error) => return Verdict::Failed(format!("failed to review the application, try again: {error}")),
            };
            let definitions = CachedDefinitions {
                caches: &self.definitions,
                client: &self.client,
                budgets: &self.budgets,
                namespace: &request.namespace,
                loaded: Loaded::default(),
            };
            let evaluator = NamespaceEvaluator {
                pool: &self.evaluator,
                namespace: &request.namespace,
            };
            let validator = Validator {
                settings: &self.settings,
                definitions: &definitions,
                evaluator: &evaluator,
                reviews: &self.client,
                immutable: &self.immutable,
            };
            validator.validate(request).await
        };
        self.budgets.offloadable(&request.namespace, validate).await
    }

    /// Reserves the memory of a large Application.
    async fn memory(&self, request: &AdmissionRequest) -> Result<Option<Reservation>, Exhausted> {
        let bytes = PASS_COPIES * request.decoded_bytes();
        if bytes <= SMALL_BYTES {
            return Ok(None);
        }
        let reserved = self.budgets.memory.reserve(&request.namespace, bytes, MEMORY_WAIT);
        reserved.await.map(Some)
    }
}

const fn is_write(request: &AdmissionRequest) -> bool {
    matches!(request.operation, Operation::Create | Operation::Update)
}

fn warn_unscheduled(verdict: Verdict, cause: &str) -> Verdict {
    match verdict {
        Verdict::Allowed { patch, mut warnings } => {
            let warning = format!("no controller reconciles the application until it has label {SHARD_ID}: {cause}");
            warnings.push(findings::short_warning(&warning));
            Verdict::Allowed { patch, warnings }
        }
        refused => refused,
    }
}
