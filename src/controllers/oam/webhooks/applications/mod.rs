//! The webhooks of Applications.
//!
//! ```text
//!  mutate   ─► identity of the author ─► shard ─► names of steps ─► JSON patch
//!  validate ─► annotations, rights, workflow, components, immutable parameters ─► errors, warnings
//! ```
//! Neither writes an object.

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

use kube::Client;

use super::review::{AdmissionRequest, Operation, Verdict};
use crate::api::oam::labels::SHARD_ID;
use crate::budget::Budgets;
use crate::controllers::oam::definitions::{DefinitionCaches, Loaded};
use crate::controllers::oam::render::evaluate::NamespaceEvaluator;
use crate::cue::Evaluator;
use definitions::CachedDefinitions;
use mutate::Mutation;
pub use settings::ApplicationWebhookSettings;
use shards::ReadyShards;
use validate::Validator;

/// Reviews Applications. The client has the rights of the controller.
pub struct ApplicationWebhooks {
    client: Client,
    definitions: DefinitionCaches,
    evaluator: Evaluator,
    budgets: Budgets,
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
        settings: ApplicationWebhookSettings,
    ) -> Self {
        let shards = ReadyShards::new(client.clone(), &settings.pod_namespace);
        Self {
            client,
            definitions,
            evaluator,
            budgets,
            settings,
            shards,
        }
    }

    /// Returns the changes to make before an Application is stored.
    pub async fn mutate(&self, request: &AdmissionRequest) -> Verdict {
        if !is_write(request) {
            return Verdict::allowed();
        }
        let mutation = match Mutation::parse(request) {
            Ok(mutation) => mutation,
            // The controller takes its finalizers off whatever an Application has become.
            Err(_) if self.settings.is_own_user(request.user()) => return Verdict::allowed(),
            Err(verdict) => return verdict,
        };
        let shards = self.settings.schedulable_shards();
        if !shards.is_some_and(|shards| shards.is_empty() && mutation.needs_shard()) {
            return mutation.verdict(request, &self.settings, None);
        }
        let shard = self.shards.next().await;
        let verdict = mutation.verdict(request, &self.settings, shard.as_ref().ok().and_then(Option::as_deref));
        match shard {
            Ok(Some(_)) => verdict,
            Ok(None) => warn_unscheduled(verdict, "no pod of a shard is ready"),
            Err(error) => warn_unscheduled(verdict, &format!("failed to list pods: {error}")),
        }
    }

    /// Returns the reasons not to store an Application. Those that this process does not reconcile have definitions that it
    /// does not know.
    pub async fn validate(&self, request: &AdmissionRequest) -> Verdict {
        let watched = self.settings.watched_namespace.as_ref();
        let is_foreign = watched.is_some_and(|watched| *watched != request.namespace);
        if !is_write(request) || is_foreign {
            return Verdict::allowed();
        }
        let definitions = CachedDefinitions {
            caches: &self.definitions,
            client: &self.client,
            budgets: &self.budgets,
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
            inspector: &self.evaluator,
            reviews: &self.client,
        };
        validator.validate(request).await
    }
}

const fn is_write(request: &AdmissionRequest) -> bool {
    matches!(request.operation, Operation::Create | Operation::Update)
}

fn warn_unscheduled(verdict: Verdict, cause: &str) -> Verdict {
    match verdict {
        Verdict::Allowed { patch, mut warnings } => {
            let warning = format!("no label {SHARD_ID} is set, so the master reconciles the application: {cause}");
            warnings.push(findings::short_warning(&warning));
            Verdict::Allowed { patch, warnings }
        }
        refused => refused,
    }
}
