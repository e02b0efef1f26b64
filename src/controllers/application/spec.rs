//! What an Application declares, read once.

use std::collections::BTreeSet;

use kube::Resource;

use super::selector::Selection;
use crate::api::Application;
use crate::api::NamespacedName;
use crate::runtime::watch::GroupKind;

/// Kinds of one Application that are looked at; each may cost a watch.
pub const MAX_KINDS: usize = 100;

/// The annotation that holds the kinds of which an Application owns something: `Deployment.apps,Service`. It is written before the
/// first is owned, and remembers what is to be let go when the Application is declared otherwise.
pub const OWNED_KINDS: &str = "portolan.dev/owned-kinds";

/// An Application as far as its components are concerned.
#[derive(Clone, Debug, PartialEq)]
pub struct AppSpec {
    /// Its name.
    pub name: NamespacedName,
    /// Its UID.
    pub uid: String,
    /// The kinds of its components in their order, each once.
    pub kinds: Vec<GroupKind>,
    /// How many kinds were left out, being more than [`MAX_KINDS`].
    pub left_out: usize,
    /// Which objects of these kinds are its components, or what is wrong with the selector.
    pub selection: Result<Selection, String>,
    /// Whether it is to own its components.
    pub adopts: bool,
    /// The generation of its spec.
    pub generation: Option<i64>,
    /// The kinds of which it owns something, by its own record: in order, each once.
    pub recorded: Box<[GroupKind]>,
}

impl AppSpec {
    /// Reads an Application.
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
        let left_out = kinds.len().saturating_sub(MAX_KINDS);
        kinds.truncate(MAX_KINDS);
        Self {
            name: name.clone(),
            uid: application.meta().uid.clone().unwrap_or_default(),
            kinds,
            left_out,
            selection: Selection::of(application.spec.selector.as_ref()),
            adopts: application.spec.add_owner_ref,
            generation: application.metadata.generation,
            recorded: recorded(application),
        }
    }

    /// Whether the same object declares the same in `other`, whatever either's record says.
    #[must_use]
    pub fn is_declared_as(&self, other: &Self) -> bool {
        let Self {
            name,
            uid,
            kinds,
            left_out,
            selection,
            adopts,
            generation,
            recorded: _,
        } = other;
        (&self.name, &self.uid, &self.generation) == (name, uid, generation)
            && (&self.kinds, &self.left_out) == (kinds, left_out)
            && (&self.selection, &self.adopts) == (selection, adopts)
    }

    /// The kinds that have to be watched: those of components, and those of which something may be owned.
    pub fn watched(&self) -> impl Iterator<Item = &GroupKind> {
        let components = self.components();
        let others = self.recorded.iter().filter(move |kind| !components.contains(kind));
        components.iter().chain(others)
    }

    /// The kinds of components; none, where nothing is selected.
    #[must_use]
    pub fn components(&self) -> &[GroupKind] {
        if self.selects_anything() { &self.kinds } else { &[] }
    }

    /// Whether anything can be a component at all.
    #[must_use]
    pub fn selects_anything(&self) -> bool {
        !matches!(self.selection, Ok(Selection::Nothing))
    }
}

/// The kinds in the record.
fn recorded(application: &Application) -> Box<[GroupKind]> {
    let annotations = application.metadata.annotations.as_ref();
    let record = annotations.and_then(|annotations| annotations.get(OWNED_KINDS));
    let kinds = record
        .into_iter()
        .flat_map(|record| record.split(','))
        .filter(|kind| !kind.is_empty());
    let kinds: BTreeSet<_> = kinds
        .take(MAX_KINDS)
        .map(|kind| {
            let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
            GroupKind::new(group, kind)
        })
        .collect();
    kinds.into_iter().collect()
}

/// The group of what users write as one, which may be a version or end in one (application.md A2.2): `v1` and `/v1` are the core,
/// `apps/v1` is `apps`. `core` stays what it is, which no group is called.
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
    fn the_version_is_stripped_as_the_peer_does(#[case] written: &str, #[case] group: &str) {
        assert_eq!(strip_version(written), group);
    }

    fn declared(kinds: &serde_json::Value) -> AppSpec {
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
    fn a_kind_that_is_listed_twice_counts_once_and_the_order_stays() {
        let kinds = json!([
            { "group": "v1", "kind": "Service" }, { "group": "apps/v1", "kind": "Deployment" },
            { "group": "", "kind": "Service" }, { "group": "apps", "kind": "Deployment" }
        ]);
        let declared = declared(&kinds);
        assert_eq!(
            declared.kinds,
            [GroupKind::new("", "Service"), GroupKind::new("apps", "Deployment")]
        );
        assert_eq!(declared.left_out, 0);
        assert!(!declared.selects_anything());
    }

    #[test]
    fn more_kinds_than_can_be_watched_are_left_out_and_counted() {
        let kinds: Vec<_> = (0..150)
            .map(|number| json!({ "group": "example.com", "kind": format!("Kind{number}") }))
            .collect();
        let declared = declared(&json!(kinds));
        assert_eq!((declared.kinds.len(), declared.left_out), (MAX_KINDS, 50));
    }
}
