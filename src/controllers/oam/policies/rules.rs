use serde::Deserialize;

use super::selector::{PolicyTarget, Selector};
use crate::api::lenient::{self, null_as_default};

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GarbageCollect {
    /// Maximum number of revisions besides those in use.
    pub application_revision_limit: Option<i64>,
    /// Keeps objects of older versions until nothing records them.
    #[serde(deserialize_with = "null_as_default")]
    pub keep_legacy_resource: bool,
    #[serde(deserialize_with = "null_as_default")]
    pub continue_on_failure: bool,
    #[serde(deserialize_with = "null_as_default")]
    order: String,
    #[serde(deserialize_with = "lenient::list")]
    rules: Vec<GarbageCollectRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GarbageCollectRule {
    #[serde(deserialize_with = "null_as_default")]
    selector: Selector,
    #[serde(deserialize_with = "null_as_default")]
    strategy: String,
    propagation: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GarbageCollectStrategy {
    Never,
    /// With the application.
    OnAppDelete,
    /// As soon as the application no longer contains the object.
    #[default]
    OnAppUpdate,
}

impl GarbageCollect {
    #[must_use]
    pub fn is_ordered_by_dependency(&self) -> bool {
        self.order == "dependency"
    }

    /// Returns the limit of revisions. A negative limit means the default.
    #[must_use]
    pub fn revision_limit(&self) -> Option<usize> {
        self.application_revision_limit
            .and_then(|limit| usize::try_from(limit).ok())
    }

    fn rule(&self, target: &PolicyTarget<'_>) -> Option<&GarbageCollectRule> {
        self.rules.iter().find(|rule| rule.selector.matches(target))
    }

    #[must_use]
    pub fn strategy(&self, target: &PolicyTarget<'_>) -> GarbageCollectStrategy {
        match self.rule(target).map(|rule| rule.strategy.as_str()) {
            Some("never") => GarbageCollectStrategy::Never,
            Some("onAppDelete") => GarbageCollectStrategy::OnAppDelete,
            _ => GarbageCollectStrategy::OnAppUpdate,
        }
    }

    #[must_use]
    pub fn has_strategy(&self, target: &PolicyTarget<'_>) -> bool {
        self.rule(target).is_some_and(|rule| !rule.strategy.is_empty())
    }

    /// Returns true if an object stays, and no longer belongs to the application.
    #[must_use]
    pub fn is_orphaned(&self, target: &PolicyTarget<'_>) -> bool {
        let propagation = self.rule(target).and_then(|rule| rule.propagation.as_deref());
        propagation == Some("orphan")
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplyOnce {
    #[serde(deserialize_with = "null_as_default")]
    pub enable: bool,
    pub rules: Option<Vec<ApplyOnceRule>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplyOnceRule {
    #[serde(deserialize_with = "null_as_default")]
    selector: Selector,
    strategy: Option<ApplyOnceStrategy>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ApplyOnceStrategy {
    /// Paths whose live values are kept; `*` for the whole object.
    #[serde(rename = "path", deserialize_with = "lenient::list")]
    pub paths: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    affect: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApplyOnceStage {
    /// The workflow dispatches it.
    Update,
    /// Its state is restored.
    StateKeep,
}

impl ApplyOnceStrategy {
    #[must_use]
    pub fn affects(&self, stage: ApplyOnceStage) -> bool {
        match self.affect.as_str() {
            "" | "always" => true,
            "onUpdate" => stage == ApplyOnceStage::Update,
            "onStateKeep" => stage == ApplyOnceStage::StateKeep,
            _ => false,
        }
    }
}

impl ApplyOnce {
    /// Returns true if trackers hold no manifests, so that no state is kept.
    #[must_use]
    pub fn omits_manifests(&self) -> bool {
        self.enable && self.rules.is_none()
    }

    #[must_use]
    pub fn strategy(&self, target: &PolicyTarget<'_>) -> Option<&ApplyOnceStrategy> {
        let rules = self.rules.as_ref().filter(|_| self.enable)?;
        let rule = rules.iter().find(|rule| rule.selector.matches(target))?;
        rule.strategy.as_ref()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SelectedResources {
    #[serde(deserialize_with = "lenient::list")]
    rules: Vec<SelectorRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SelectorRule {
    #[serde(deserialize_with = "null_as_default")]
    selector: Selector,
}

impl SelectedResources {
    #[must_use]
    pub fn contains(&self, target: &PolicyTarget<'_>) -> bool {
        self.rules.iter().any(|rule| rule.selector.matches(target))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceUpdate {
    #[serde(deserialize_with = "lenient::list")]
    rules: Vec<ResourceUpdateRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceUpdateRule {
    #[serde(deserialize_with = "null_as_default")]
    selector: Selector,
    #[serde(deserialize_with = "null_as_default")]
    strategy: ResourceUpdateStrategy,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceUpdateStrategy {
    #[serde(deserialize_with = "null_as_default")]
    op: String,
    #[serde(deserialize_with = "lenient::list")]
    pub recreate_fields: Vec<String>,
}

impl ResourceUpdateStrategy {
    #[must_use]
    pub fn replaces(&self) -> bool {
        self.op == "replace"
    }
}

impl ResourceUpdate {
    #[must_use]
    pub fn strategy(&self, target: &PolicyTarget<'_>) -> Option<&ResourceUpdateStrategy> {
        let rule = self.rules.iter().find(|rule| rule.selector.matches(target))?;
        Some(&rule.strategy)
    }
}
