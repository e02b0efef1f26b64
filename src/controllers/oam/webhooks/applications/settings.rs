use crate::controllers::oam::ReviewOptions;

/// Flags and feature gates that the webhooks of Applications follow.
#[derive(Clone, Debug)]
pub struct ApplicationWebhookSettings {
    /// The user of the controller, such as `system:serviceaccount:vela-system:portolan`.
    pub own_user: String,
    /// The namespace of definitions for all Applications.
    pub definition_namespace: String,
    /// The namespace of all other definitions that are cached; all namespaces if `None`.
    pub watched_namespace: Option<String>,
    /// The namespace of the pods of shards.
    pub pod_namespace: String,
    /// The gate `AuthenticateApplication`.
    pub is_authenticated: bool,
    /// `--enable-sharding`.
    pub is_sharded: bool,
    /// Undeclared parameters and unknown keys are errors.
    pub is_strict: bool,
    pub reviews: ReviewOptions,
}

impl ApplicationWebhookSettings {
    #[must_use]
    pub fn is_own_user(&self, user: &str) -> bool {
        !user.is_empty() && self.own_user == user
    }

    /// Returns the shards that Applications are assigned to, none for those of ready pods; `None` if none is assigned.
    #[must_use]
    pub fn schedulable_shards(&self) -> Option<&[String]> {
        let is_scheduled = self.is_sharded && self.reviews.schedules_shards;
        is_scheduled.then_some(self.reviews.schedulable_shards.as_slice())
    }

    #[must_use]
    pub const fn checks_components(&self) -> bool {
        !self.is_sharded || self.reviews.checks_components_of_shards
    }
}
