/// Flags and feature gates that the webhooks of Applications follow.
#[derive(Clone, Debug)]
pub struct ApplicationWebhookSettings {
    /// The user of the controller, such as `system:serviceaccount:vela-system:portolan`.
    pub own_user: String,
    /// The namespace of definitions for all Applications.
    pub definition_namespace: String,
    /// The namespace of all other definitions that are cached; all namespaces if `None`.
    pub watched_namespace: Option<String>,
    /// The gate `AuthenticateApplication`; `None` without it.
    pub identity: Option<IdentitySettings>,
    /// `--enable-sharding` without the gate `DisableWebhookAutoSchedule`; `None` otherwise.
    pub scheduling: Option<SchedulingSettings>,
    /// Checks components: without `--enable-sharding`, or with the gate `ValidateComponentWhenSharding`.
    pub checks_components: bool,
    /// The gate `ValidateDefinitionPermissions`.
    pub checks_permissions: bool,
    /// Undeclared parameters and unknown keys are errors.
    pub is_strict: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentitySettings {
    /// `--authentication-with-user`.
    pub records_user: bool,
    /// `--authentication-group-pattern`.
    pub group_pattern: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulingSettings {
    /// `--schedulable-shards`; the shards of ready pods if it is empty.
    pub shards: Vec<String>,
    /// The namespace of these pods.
    pub pod_namespace: String,
}

impl ApplicationWebhookSettings {
    #[must_use]
    pub fn is_own_user(&self, user: &str) -> bool {
        !user.is_empty() && self.own_user == user
    }
}
