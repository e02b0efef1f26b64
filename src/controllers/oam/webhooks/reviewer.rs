//! Passes reviews to the webhooks of Applications and of definitions.

use super::applications::{ApplicationWebhookSettings, ApplicationWebhooks};
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
                creates_workload_definitions: prepared.options.reviews.creates_workload_definitions,
                requires_kinds: prepared.options.reviews.checks_kinds,
            },
        }
    }
}

fn application_settings(options: &Options, webhooks: &WebhookOptions, own_user: &str) -> ApplicationWebhookSettings {
    ApplicationWebhookSettings {
        own_user: own_user.to_owned(),
        definition_namespace: options.definition_namespace.clone(),
        watched_namespace: options.namespace.clone(),
        pod_namespace: webhooks.namespace.clone(),
        is_authenticated: options.identity.is_authenticated,
        is_sharded: options.shard.is_some(),
        is_strict: options.is_strict,
        reviews: webhooks.reviews.clone(),
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
