//! Passes reviews to the webhooks of Applications and of definitions.

use super::applications::{ApplicationWebhookSettings, ApplicationWebhooks, IdentitySettings, SchedulingSettings};
use super::definitions::DefinitionWebhooks;
use super::review::{AdmissionRequest, Verdict};
use super::serve::{Reviewer, Webhook};
use super::{PreparedWebhooks, WebhookOptions};
use crate::budget::Budgets;
use crate::controllers::oam::Options;
use crate::controllers::oam::definitions::DefinitionCaches;
use crate::cue::Evaluator;

/// Both kinds of webhooks.
pub(super) struct Webhooks {
    applications: ApplicationWebhooks,
    definitions: DefinitionWebhooks<Evaluator>,
}

impl Webhooks {
    pub(super) fn new(
        prepared: &PreparedWebhooks,
        options: &Options,
        caches: &DefinitionCaches,
        evaluator: &Evaluator,
        budgets: &Budgets,
    ) -> Self {
        let client = prepared.client.clone();
        Self {
            applications: ApplicationWebhooks::new(
                client.clone(),
                caches.clone(),
                evaluator.clone(),
                budgets.clone(),
                application_settings(options, &prepared.options, &prepared.own_user),
            ),
            definitions: DefinitionWebhooks {
                client,
                evaluator: evaluator.clone(),
                budgets: budgets.clone(),
                creates_workload_definitions: prepared.options.creates_workload_definitions,
                requires_kinds: prepared.options.checks_kinds,
            },
        }
    }
}

fn application_settings(options: &Options, webhooks: &WebhookOptions, own_user: &str) -> ApplicationWebhookSettings {
    let is_sharded = options.shard.is_some();
    ApplicationWebhookSettings {
        own_user: own_user.to_owned(),
        definition_namespace: options.definition_namespace.clone(),
        watched_namespace: options.namespace.clone(),
        identity: options.identity.is_authenticated.then(|| IdentitySettings {
            records_user: webhooks.records_user,
            group_pattern: webhooks.group_pattern.clone(),
        }),
        scheduling: (is_sharded && webhooks.schedules_shards).then(|| SchedulingSettings {
            shards: webhooks.schedulable_shards.clone(),
            pod_namespace: webhooks.namespace.clone(),
        }),
        checks_components: !is_sharded || webhooks.checks_components_of_shards,
        checks_permissions: webhooks.checks_definition_rights,
        is_strict: options.is_strict,
    }
}

impl Reviewer for Webhooks {
    async fn review(&self, webhook: Webhook, request: &AdmissionRequest) -> Verdict {
        match webhook {
            Webhook::MutateApplications => self.applications.mutate(request).await,
            Webhook::ValidateApplications => self.applications.validate(request).await,
            Webhook::MutateComponentDefinitions => self.definitions.mutate_component(request).await,
            Webhook::ValidateDefinitions(kind) => self.definitions.validate(kind, request).await,
        }
    }
}
