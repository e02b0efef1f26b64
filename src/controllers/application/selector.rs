//! Label selectors as Kubernetes means them, compiled once.
//!
//! The rules are those of `metav1.LabelSelectorAsSelector`: no selector selects nothing, an empty one everything, and all
//! requirements have to hold.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::runtime::watch::Labels;
use crate::text::{printable, truncate};

/// Bytes of a wrong operator or key that are quoted.
const QUOTED: usize = 64;

/// Which objects are selected by their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// None: there is no selector.
    Nothing,
    /// Those for which all requirements hold.
    All(Vec<Requirement>),
}

/// What has to hold of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Selection {
    /// Reads a selector.
    ///
    /// # Errors
    /// What is wrong with it: an operator that is none, or one with values that it can't have. Such a selector can't be applied at
    /// all, rather than in part: what it leaves out may be what keeps it from selecting everything.
    pub fn of(selector: Option<&LabelSelector>) -> Result<Self, String> {
        let Some(selector) = selector else {
            return Ok(Self::Nothing);
        };
        let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
            Ok(Requirement {
                key: key.clone(),
                test: Test::In(vec![value.clone()]),
            })
        });
        let expressions = selector.match_expressions.iter().flatten().map(requirement);
        labels.chain(expressions).collect::<Result<_, _>>().map(Self::All)
    }

    /// Whether an object with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|requirement| requirement.holds(labels)),
        }
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_in = |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
        match &self.test {
            Test::In(values) => is_in(values),
            Test::NotIn(values) => !is_in(values),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
        }
    }
}

fn requirement(expression: &LabelSelectorRequirement) -> Result<Requirement, String> {
    let LabelSelectorRequirement { key, operator, values } = expression;
    let values = values.clone().unwrap_or_default();
    let quoted = |text: &str| truncate(&printable(text), QUOTED);
    let test = match (operator.as_str(), values.is_empty()) {
        ("In", false) => Test::In(values),
        ("NotIn", false) => Test::NotIn(values),
        ("Exists", true) => Test::Exists,
        ("DoesNotExist", true) => Test::DoesNotExist,
        ("In" | "NotIn", true) => return Err(format!("{operator} for the label {} needs values", quoted(key))),
        ("Exists" | "DoesNotExist", false) => {
            return Err(format!("{operator} for the label {} can't have values", quoted(key)));
        }
        _ => {
            return Err(format!(
                "the operator {} for the label {} is none of In, NotIn, Exists and DoesNotExist",
                quoted(operator),
                quoted(key)
            ));
        }
    };
    Ok(Requirement { key: key.clone(), test })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn selection(selector: Value) -> Result<Selection, String> {
        Selection::of(
            serde_json::from_value::<Option<LabelSelector>>(selector)
                .unwrap()
                .as_ref(),
        )
    }

    #[rstest]
    #[case::no_selector(json!(null), false)]
    #[case::an_empty_selector(json!({}), true)]
    #[case::empty_members(json!({ "matchLabels": {}, "matchExpressions": [] }), true)]
    #[case::a_label(json!({ "matchLabels": { "app": "web" } }), true)]
    #[case::another_value(json!({ "matchLabels": { "app": "db" } }), false)]
    #[case::one_of_two_labels(json!({ "matchLabels": { "app": "web", "tier": "back" } }), false)]
    #[case::is_in(json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["db", "web"] }] }), true)]
    #[case::is_not_in(json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["db"] }] }), false)]
    #[case::not_in(json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["db"] }] }), true)]
    #[case::not_in_what_it_is(json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["web"] }] }), false)]
    #[case::not_in_without_the_label(json!({ "matchExpressions": [{ "key": "none", "operator": "NotIn", "values": ["x"] }] }), true)]
    #[case::exists(json!({ "matchExpressions": [{ "key": "app", "operator": "Exists" }] }), true)]
    #[case::exists_not(json!({ "matchExpressions": [{ "key": "none", "operator": "Exists" }] }), false)]
    #[case::does_not_exist(json!({ "matchExpressions": [{ "key": "none", "operator": "DoesNotExist" }] }), true)]
    #[case::does_exist(json!({ "matchExpressions": [{ "key": "app", "operator": "DoesNotExist", "values": [] }] }), false)]
    #[case::both(json!({ "matchLabels": { "app": "web" }, "matchExpressions": [{ "key": "tier", "operator": "Exists" }] }), true)]
    #[case::one_of_both(json!({ "matchLabels": { "app": "web" }, "matchExpressions": [{ "key": "none", "operator": "Exists" }] }), false)]
    fn selectors_select_as_in_kubernetes(#[case] selector: Value, #[case] selects: bool) {
        let labels = [("app", "web"), ("tier", "front")].into_iter().collect();
        assert_eq!(selection(selector).unwrap().matches(&labels), selects);
    }

    #[rstest]
    #[case(json!([{ "key": "app", "operator": "Equals", "values": ["web"] }]), "the operator Equals for the label app is none of")]
    #[case(json!([{ "key": "app", "operator": "in", "values": ["web"] }]), "the operator in")]
    #[case(json!([{ "key": "app", "operator": "In" }]), "In for the label app needs values")]
    #[case(json!([{ "key": "app", "operator": "NotIn", "values": [] }]), "NotIn for the label app needs values")]
    #[case(json!([{ "key": "app", "operator": "Exists", "values": ["web"] }]), "Exists for the label app can't have values")]
    fn a_selector_that_is_wrong_in_part_selects_nothing_and_says_why(#[case] expressions: Value, #[case] why: &str) {
        let error = selection(json!({ "matchLabels": { "app": "web" }, "matchExpressions": expressions })).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}
