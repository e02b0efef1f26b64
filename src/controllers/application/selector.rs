//! Compiled label selectors with the semantics of `metav1.LabelSelectorAsSelector`: no selector selects nothing, an
//! empty selector everything.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::runtime::watch::Labels;
use crate::text::{printable, truncate};

const MAX_QUOTED: usize = 64;

// Each change of a component in the namespace matches the selectors of all Applications there, so their cost is limited.
const MAX_REQUIREMENTS: usize = 100;
const MAX_VALUES: usize = 1_000;
/// Maximum size of all keys and values, in bytes.
const MAX_BYTES: usize = 64 * 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelSelection {
    Nothing,
    All(Vec<Requirement>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    test: RequirementTest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum RequirementTest {
    In(HashSet<String>),
    NotIn(HashSet<String>),
    Exists,
    DoesNotExist,
}

impl LabelSelection {
    /// Never compiles a part of a selector: the missing part may keep it from selecting everything.
    pub fn of(selector: Option<&LabelSelector>) -> Result<Self, String> {
        let Some(selector) = selector else {
            return Ok(Self::Nothing);
        };
        check_size(selector)?;
        let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
            check_key(key)?;
            check_value(key, value)?;
            Ok(Requirement {
                key: key.clone(),
                test: RequirementTest::In(HashSet::from([value.clone()])),
            })
        });
        let expressions = selector.match_expressions.iter().flatten().map(requirement);
        labels.chain(expressions).collect::<Result<_, _>>().map(Self::All)
    }

    #[must_use]
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.iter().all(|requirement| requirement.holds(labels)),
        }
    }

    /// Returns the number of requirements, at least 1.
    #[must_use]
    pub fn requirements(&self) -> usize {
        match self {
            Self::Nothing => 1,
            Self::All(requirements) => requirements.len().max(1),
        }
    }
}

impl Requirement {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_in = |values: &HashSet<String>| value.is_some_and(|value| values.contains(value));
        match &self.test {
            RequirementTest::In(values) => is_in(values),
            RequirementTest::NotIn(values) => !is_in(values),
            RequirementTest::Exists => value.is_some(),
            RequirementTest::DoesNotExist => value.is_none(),
        }
    }
}

fn check_size(selector: &LabelSelector) -> Result<(), String> {
    let labels = || selector.match_labels.iter().flatten();
    let expressions = || selector.match_expressions.iter().flatten();
    let listed = || expressions().flat_map(|expression| expression.values.iter().flatten());
    let requirements = labels().count() + expressions().count();
    if requirements > MAX_REQUIREMENTS {
        return Err(format!(
            "{requirements} labels and expressions, more than {MAX_REQUIREMENTS}"
        ));
    }
    let values = labels().count() + listed().count();
    if values > MAX_VALUES {
        return Err(format!(
            "{values} values, more than {MAX_VALUES}; select by a label that the components have in common"
        ));
    }
    let bytes = labels().map(|(key, value)| key.len() + value.len()).sum::<usize>()
        + expressions().map(|expression| expression.key.len()).sum::<usize>()
        + listed().map(String::len).sum::<usize>();
    if bytes > MAX_BYTES {
        return Err(format!("{bytes} bytes of keys and values, more than {MAX_BYTES}"));
    }
    Ok(())
}

fn requirement(expression: &LabelSelectorRequirement) -> Result<Requirement, String> {
    let LabelSelectorRequirement { key, operator, values } = expression;
    let values: HashSet<_> = values.iter().flatten().cloned().collect();
    check_key(key)?;
    let label = key;
    let test = match (operator.as_str(), values.is_empty()) {
        ("In", false) => RequirementTest::In(values),
        ("NotIn", false) => RequirementTest::NotIn(values),
        ("Exists", true) => RequirementTest::Exists,
        ("DoesNotExist", true) => RequirementTest::DoesNotExist,
        ("In" | "NotIn", true) => return Err(format!("operator {operator} of label {label} requires values")),
        ("Exists" | "DoesNotExist", false) => {
            return Err(format!("operator {operator} of label {label} does not allow values"));
        }
        _ => {
            return Err(format!(
                "operator {} of label {label} is not one of In, NotIn, Exists and DoesNotExist",
                shown(operator)
            ));
        }
    };
    if let RequirementTest::In(values) | RequirementTest::NotIn(values) = &test {
        values.iter().try_for_each(|value| check_value(key, value))?;
    }
    Ok(Requirement { key: key.clone(), test })
}

fn shown(text: &str) -> String {
    truncate(&printable(text), MAX_QUOTED)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", shown(text))
}

/// Checks a label key with the rules of the API server: an optional DNS subdomain, a slash, and a name.
fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) || name.is_empty() || !is_label_text(name) {
        return Err(format!("{} is not a valid label key", quoted(key)));
    }
    Ok(())
}

fn check_value(key: &str, value: &str) -> Result<(), String> {
    if value.is_empty() || is_label_text(value) {
        return Ok(());
    }
    Err(format!("{} is not a valid value of label {key}", quoted(value)))
}

/// Returns true for up to 63 letters, digits, `-`, `_` and `.` that begin and end with a letter or digit.
fn is_label_text(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(|byte| is_inner(*byte)) && is_outer(bytes.first()) && is_outer(bytes.last())
}

fn is_dns_subdomain(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part =
        |part: &str| !part.is_empty() && part.bytes().all(is_inner) && !part.starts_with('-') && !part.ends_with('-');
    text.len() <= 253 && text.split('.').all(is_part)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn selection(selector: Value) -> Result<LabelSelection, String> {
        LabelSelection::of(
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
    #[case::an_empty_key(json!({ "matchLabels": { "": "web" } }), r#""" is not a valid label key"#)]
    #[case::an_empty_name(json!({ "matchLabels": { "example.com/": "web" } }), "is not a valid label key")]
    #[case::an_upper_case_prefix(json!({ "matchLabels": { "Example.com/app": "web" } }), "is not a valid label key")]
    #[case::two_slashes(json!({ "matchLabels": { "a/b/c": "web" } }), "is not a valid label key")]
    #[case::a_space(json!({ "matchLabels": { "my app": "web" } }), "is not a valid label key")]
    #[case::a_long_key(json!({ "matchExpressions": [{ "key": "k".repeat(64), "operator": "Exists" }] }), "is not a valid label key")]
    #[case::an_odd_value(json!({ "matchLabels": { "app": "-web" } }), r#""-web" is not a valid value of label app"#)]
    #[case::a_long_value(json!({ "matchLabels": { "app": "v".repeat(64) } }), "is not a valid value of label app")]
    #[case::a_value_of_many(json!({ "matchExpressions": [{ "key": "app", "operator": "NotIn", "values": ["a", "b c"] }] }), r#""b c" is not"#)]
    fn keys_and_values_are_validated_as_by_the_api_server(#[case] selector: Value, #[case] message: &str) {
        let error = selection(selector).unwrap_err();
        assert!(error.contains(message), "{error}");
    }

    #[rstest]
    #[case::as_many_values_as_allowed(1, 1_000, 10, None)]
    #[case::values(1, 1_001, 10, Some("1001 values, more than 1000"))]
    #[case::values_of_several_expressions(10, 101, 10, Some("1010 values, more than 1000"))]
    #[case::as_many_expressions_as_allowed(100, 1, 10, None)]
    #[case::expressions(101, 1, 10, Some("101 labels and expressions, more than 100"))]
    #[case::bytes(20, 50, 70, Some("bytes of keys and values, more than 65536"))]
    fn a_selector_beyond_a_limit_is_rejected(
        #[case] expressions: usize,
        #[case] values: usize,
        #[case] length: usize,
        #[case] message: Option<&str>,
    ) {
        let values: Vec<_> = (0..values).map(|number| format!("{number:0length$}")).collect();
        let expressions: Vec<_> = (0..expressions)
            .map(|number| json!({ "key": format!("k{number}"), "operator": "NotIn", "values": values }))
            .collect();
        let error = selection(json!({ "matchExpressions": expressions })).err();
        assert_eq!(error.is_some(), message.is_some(), "{error:?}");
        assert!(error.unwrap_or_default().contains(message.unwrap_or_default()));
    }

    #[test]
    fn usual_keys_and_values_are_valid() {
        let labels = json!({ "app.kubernetes.io/name": "web", "a": "", "x-1_y.Z": "v1.2-3_4", "3d": "A" });
        assert!(selection(json!({ "matchLabels": labels })).is_ok());
    }

    #[rstest]
    #[case(json!([{ "key": "app", "operator": "Equals", "values": ["web"] }]), "operator Equals of label app is not one of")]
    #[case(json!([{ "key": "app", "operator": "in", "values": ["web"] }]), "operator in")]
    #[case(json!([{ "key": "app", "operator": "In" }]), "operator In of label app requires values")]
    #[case(json!([{ "key": "app", "operator": "NotIn", "values": [] }]), "operator NotIn of label app requires values")]
    #[case(json!([{ "key": "app", "operator": "Exists", "values": ["web"] }]), "operator Exists of label app does not allow values")]
    fn a_partially_invalid_selector_is_rejected_with_a_reason(#[case] expressions: Value, #[case] message: &str) {
        let error = selection(json!({ "matchLabels": { "app": "web" }, "matchExpressions": expressions })).unwrap_err();
        assert!(error.contains(message), "{error}");
    }
}
