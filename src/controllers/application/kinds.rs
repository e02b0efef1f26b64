//! An author of Applications chooses what Portolan watches, and with `addOwnerRef` what is deleted with an Application.
//! So only kinds that tenants usually own are watched by default, and kinds that restrict tenants are adopted only if
//! the operator names them.

use std::collections::BTreeSet;
use std::str::FromStr;

use crate::runtime::watch::{GroupKind, KindFilter};

/// Group and kind. The chart renders the same list.
pub const DEFAULT: [(&str, &str); 14] = [
    ("", "ConfigMap"),
    ("", "PersistentVolumeClaim"),
    ("", "Pod"),
    ("", "ReplicationController"),
    ("", "Service"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("batch", "CronJob"),
    ("batch", "Job"),
    ("networking.k8s.io", "Ingress"),
    ("policy", "PodDisruptionBudget"),
];

/// Kinds that `*` does not adopt: they limit what a tenant may do, or are used by others.
pub const PROTECTED: [(&str, &str); 6] = [
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("", "ServiceAccount"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
];

/// The value of `--application-kinds`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentKinds(KindFilter);

impl Default for ComponentKinds {
    fn default() -> Self {
        Self(KindFilter {
            named: group_kinds(&DEFAULT).collect(),
            ..KindFilter::default()
        })
    }
}

impl ComponentKinds {
    #[must_use]
    pub fn filter(&self) -> &KindFilter {
        &self.0
    }

    #[must_use]
    pub fn may_adopt(&self, kind: &GroupKind) -> bool {
        let is_protected = || group_kinds(&PROTECTED).any(|protected| protected == *kind);
        self.0.named.contains(kind) || self.0.has_all_namespaced && !is_protected()
    }
}

#[must_use]
pub fn application_kind() -> GroupKind {
    GroupKind::new("app.k8s.io", "Application")
}

/// Returns the advice to watch a kind. Its name comes from a tenant and may be no kind at all.
#[must_use]
pub fn to_watch(kind: &GroupKind) -> String {
    let addition = format!("+{}/{}", kind.group, kind.kind);
    let kinds = addition.parse::<ComponentKinds>();
    let added = |kinds: ComponentKinds| {
        let named = kinds.0.named.len();
        !kinds.0.has_all_namespaced && kinds.0.named.contains(kind) && named <= DEFAULT.len() + 1
    };
    if kinds.is_ok_and(added) {
        format!("add {addition} to --application-kinds")
    } else {
        "fix its group and kind (the group of Pods and Services is empty)".to_owned()
    }
}

fn group_kinds(kinds: &[(&'static str, &'static str)]) -> impl Iterator<Item = GroupKind> {
    kinds.iter().map(|(group, kind)| GroupKind::new(*group, *kind))
}

/// Parses `*`, `GROUP/KIND` and `+GROUP/KIND`, separated by commas. Kinds without `+` replace the default list.
impl FromStr for ComponentKinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut listed, mut added, mut has_all_namespaced) = (BTreeSet::new(), BTreeSet::new(), false);
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            match entry.strip_prefix('+') {
                _ if entry == "*" => has_all_namespaced = true,
                Some(entry) => drop(added.insert(group_kind(entry)?)),
                None => drop(listed.insert(group_kind(entry)?)),
            }
        }
        if listed.is_empty() {
            listed.extend(group_kinds(&DEFAULT));
        }
        listed.extend(added);
        Ok(Self(KindFilter {
            named: listed,
            has_all_namespaced,
            ..KindFilter::default()
        }))
    }
}

fn group_kind(entry: &str) -> Result<GroupKind, String> {
    let (group, kind) = entry.split_once('/').unwrap_or(("", entry));
    let is_group = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-');
    if !group.chars().all(is_group)
        || !kind.starts_with(char::is_alphabetic)
        || !kind.chars().all(char::is_alphanumeric)
    {
        return Err("expected *, or kinds such as +apps/Deployment and +/Secret, separated by commas".to_owned());
    }
    if group == "core" || group.starts_with('v') && group[1..].starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "the group of {kind} is written without a version, and empty for core kinds: +/{kind}"
        ));
    }
    Ok(GroupKind::new(group, kind))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn admitted(text: &str, kind: (&str, &str)) -> [bool; 2] {
        let kinds: ComponentKinds = text.parse().unwrap();
        let kind = GroupKind::new(kind.0, kind.1);
        let filter = kinds.filter();
        let is_watched = filter.has_all_namespaced || filter.named.contains(&kind);
        [is_watched, kinds.may_adopt(&kind)]
    }

    #[rstest]
    #[case::default("", [true, true], [false, false], [false, false])]
    #[case::addition("+example.com/Widget", [true, true], [true, true], [false, false])]
    #[case::additions("+/ResourceQuota, +example.com/Widget", [true, true], [true, true], [true, true])]
    #[case::all("*", [true, true], [true, true], [true, false])]
    #[case::all_and_a_protected_one("*,+/ResourceQuota", [true, true], [true, true], [true, true])]
    #[case::replacement("example.com/Widget", [false, false], [true, true], [false, false])]
    #[case::core_without_a_slash("+ResourceQuota", [true, true], [false, false], [true, true])]
    fn protected_kinds_are_adopted_only_if_named(
        #[case] text: &str,
        #[case] deployment: [bool; 2],
        #[case] widget: [bool; 2],
        #[case] quota: [bool; 2],
    ) {
        assert_eq!(admitted(text, ("apps", "Deployment")), deployment);
        assert_eq!(admitted(text, ("example.com", "Widget")), widget);
        assert_eq!(admitted(text, ("", "ResourceQuota")), quota);
    }

    #[test]
    fn an_empty_value_is_the_default_without_protected_kinds() {
        assert_eq!("".parse(), Ok(ComponentKinds::default()));
        let kinds = ComponentKinds::default();
        assert!(group_kinds(&PROTECTED).all(|kind| !kinds.may_adopt(&kind)));
        assert!(!kinds.may_adopt(&GroupKind::new("", "Secret")));
    }

    #[rstest]
    #[case("", "Secret", "add +/Secret to --application-kinds")]
    #[case("example.com", "Widget", "add +example.com/Widget to --application-kinds")]
    #[case("core", "Pod", "fix its group and kind (the group of Pods and Services is empty)")]
    #[case("apps", "X,*", "fix its group and kind (the group of Pods and Services is empty)")]
    #[case("apps", "X,Y", "fix its group and kind (the group of Pods and Services is empty)")]
    fn the_advice_for_a_kind_adds_that_kind_only(#[case] group: &str, #[case] kind: &str, #[case] advice: &str) {
        assert_eq!(to_watch(&GroupKind::new(group, kind)), advice);
    }

    #[rstest]
    #[case("+", "expected *")]
    #[case("+apps/v1/Deployment", "expected *")]
    #[case("Apps/Deployment", "expected *")]
    #[case("apps/", "expected *")]
    #[case("all kinds", "expected *")]
    #[case("+core/Secret", "+/Secret")]
    #[case("+v1/Secret", "+/Secret")]
    fn an_invalid_value_is_refused_with_a_valid_one(#[case] text: &str, #[case] words: &str) {
        let error = text.parse::<ComponentKinds>().unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}
