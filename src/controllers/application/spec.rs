use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;

use super::selector::LabelSelection;
use crate::api::{Application, NamespacedName};
use crate::runtime::watch::GroupKind;

/// Maximum number of kinds per Application; each may need a watch.
pub const MAX_KINDS: usize = 100;

/// Annotation with the kinds of owned objects, such as `Deployment.apps,Service`. Written before the first owner
/// reference, so that stale references are found after the spec has changed.
pub const OWNED_KINDS: &str = "portolan.dev/owned-kinds";

#[derive(Clone, Debug, PartialEq)]
pub struct AppSpec {
    pub name: NamespacedName,
    pub uid: String,
    /// Component kinds in order, without duplicates.
    pub kinds: Vec<GroupKind>,
    /// Number of kinds beyond [`MAX_KINDS`].
    pub omitted_kinds: usize,
    pub selection: Result<LabelSelection, String>,
    pub add_owner_ref: bool,
    pub generation: Option<i64>,
    /// The kinds in [`OWNED_KINDS`], sorted, without duplicates.
    pub recorded_kinds: Box<[GroupKind]>,
}

impl AppSpec {
    #[must_use]
    pub fn of(name: &NamespacedName, application: &Application) -> Self {
        let mut seen = BTreeSet::new();
        let all = application
            .spec
            .component_kinds
            .iter()
            .map(|component| GroupKind::new(strip_version(&component.group), component.kind.clone()))
            .filter(|kind| seen.insert(kind.clone()));
        let mut kinds: Vec<_> = all.collect();
        let omitted_kinds = kinds.len().saturating_sub(MAX_KINDS);
        kinds.truncate(MAX_KINDS);
        Self {
            name: name.clone(),
            uid: application.uid().unwrap_or_default(),
            kinds,
            omitted_kinds,
            selection: LabelSelection::of(application.spec.selector.as_ref()),
            add_owner_ref: application.spec.add_owner_ref,
            generation: application.metadata.generation,
            recorded_kinds: recorded_kinds(application.metadata.annotations.as_ref()),
        }
    }

    /// Compares everything but the recorded kinds.
    #[must_use]
    pub fn has_same_spec_as(&self, other: &Self) -> bool {
        let Self {
            name,
            uid,
            kinds,
            omitted_kinds,
            selection,
            add_owner_ref,
            generation,
            recorded_kinds: _,
        } = other;
        (&self.name, &self.uid, &self.generation) == (name, uid, generation)
            && (&self.kinds, &self.omitted_kinds) == (kinds, omitted_kinds)
            && (&self.selection, &self.add_owner_ref) == (selection, add_owner_ref)
    }

    /// `kubectl replace` removes annotations. Only a reconcile that finds nothing owned shortens the record.
    #[must_use]
    pub fn with_record_of(new: &Arc<Self>, old: &Self) -> Arc<Self> {
        let is_kept = |kind| new.recorded_kinds.contains(kind);
        if new.uid != old.uid || old.recorded_kinds.iter().all(is_kept) {
            return Arc::clone(new);
        }
        let recorded: BTreeSet<_> = new.recorded_kinds.iter().chain(&old.recorded_kinds).cloned().collect();
        Arc::new(Self {
            recorded_kinds: recorded.into_iter().collect(),
            ..Self::clone(new)
        })
    }

    pub fn watched_kinds(&self) -> impl Iterator<Item = &GroupKind> {
        let components = self.component_kinds();
        let others = (self.recorded_kinds.iter()).filter(move |kind| !components.contains(kind));
        components.iter().chain(others)
    }

    #[must_use]
    pub fn component_kinds(&self) -> &[GroupKind] {
        match self.selection {
            Ok(LabelSelection::Nothing) => &[],
            _ => &self.kinds,
        }
    }
}

pub(super) fn recorded_kinds(annotations: Option<&BTreeMap<String, String>>) -> Box<[GroupKind]> {
    let record = annotations.and_then(|annotations| annotations.get(OWNED_KINDS));
    let kinds = record.into_iter().flat_map(|record| record.split(','));
    let kinds: BTreeSet<_> = kinds
        .filter(|kind| !kind.is_empty())
        .take(MAX_KINDS)
        .map(|kind| {
            let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
            GroupKind::new(group, kind)
        })
        .collect();
    kinds.into_iter().collect()
}

/// Strips a version from a group as users write it, like kubernetes-sigs' controller: `v1` and `/v1` are the core
/// group, `apps/v1` is `apps`. `core` is kept; no such group exists.
fn strip_version(group: &str) -> &str {
    let mut characters = group.chars();
    let is_version =
        matches!(characters.next(), Some('v' | 'V')) && characters.next().is_some_and(|c| c.is_ascii_digit());
    match group.split_once('/') {
        _ if is_version => "",
        Some((group, _)) => group,
        None => group,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case("", "")]
    #[case("v1", "")]
    #[case("V1beta1", "")]
    #[case("v1/anything", "")]
    #[case("/v1", "")]
    #[case("apps", "apps")]
    #[case("apps/v1", "apps")]
    #[case("apps/v1/deployments", "apps")]
    #[case("core", "core")]
    #[case("velero.io", "velero.io")]
    #[case("v", "v")]
    fn versions_are_stripped_from_groups_as_in_kubernetes_sigs_application(#[case] written: &str, #[case] group: &str) {
        assert_eq!(strip_version(written), group);
    }

    fn app_spec(kinds: &serde_json::Value) -> AppSpec {
        let application = serde_json::from_value(json!({
            "apiVersion": "app.k8s.io/v1beta1", "kind": "Application",
            "metadata": { "name": "shop", "namespace": "team", "uid": "u" },
            "spec": { "componentKinds": kinds }
        }));
        let name = NamespacedName {
            namespace: "team".to_owned(),
            name: "shop".to_owned(),
        };
        AppSpec::of(&name, &application.unwrap())
    }

    #[test]
    fn duplicate_kinds_are_dropped_and_the_order_is_kept() {
        let kinds = json!([
            { "group": "v1", "kind": "Service" }, { "group": "apps/v1", "kind": "Deployment" },
            { "group": "", "kind": "Service" }, { "group": "apps", "kind": "Deployment" }
        ]);
        let spec = app_spec(&kinds);
        assert_eq!(
            spec.kinds,
            [GroupKind::new("", "Service"), GroupKind::new("apps", "Deployment")]
        );
        assert_eq!(spec.omitted_kinds, 0);
        assert!(spec.component_kinds().is_empty());
    }

    #[test]
    fn kinds_beyond_the_limit_are_dropped_and_counted() {
        let kinds: Vec<_> = (0..150)
            .map(|number| json!({ "group": "example.com", "kind": format!("Kind{number}") }))
            .collect();
        let spec = app_spec(&json!(kinds));
        assert_eq!((spec.kinds.len(), spec.omitted_kinds), (MAX_KINDS, 50));
    }
}
