//! Compares random rules with a reference evaluator.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A rule of the form that Kubeapps' dashboard writes.
#[derive(Clone, Debug)]
enum Term {
    Bool(bool),
    NameIs(String),
    VariableIs(usize),
    NameHas(String),
    AnyMaintainer(String),
    Not(Box<Term>),
    And(Box<Term>, Box<Term>),
    Or(Box<Term>, Box<Term>),
}

struct Chart {
    name: String,
    maintainers: Vec<String>,
    variables: Vec<String>,
}

impl Term {
    fn jq(&self) -> String {
        match self {
            Self::Bool(bool) => bool.to_string(),
            Self::NameIs(word) => format!(".name == {word:?}"),
            Self::VariableIs(index) => format!(".name == $var{index}"),
            Self::NameHas(word) => format!("(.name | test({word:?}))"),
            Self::AnyMaintainer(word) => format!("(.maintainers | any(.name == {word:?}))"),
            Self::Not(term) => format!("({} | not)", term.jq()),
            Self::And(a, b) => format!("({} and {})", a.jq(), b.jq()),
            // No parentheses where operator precedence makes them redundant.
            Self::Or(a, b) => format!("({} or {})", a.jq(), b.jq()),
        }
    }

    fn answer(&self, chart: &Chart) -> bool {
        match self {
            Self::Bool(bool) => *bool,
            Self::NameIs(word) => chart.name == *word,
            Self::VariableIs(index) => chart.name == chart.variables[*index],
            Self::NameHas(word) => chart.name.contains(word.as_str()),
            Self::AnyMaintainer(word) => chart.maintainers.contains(word),
            Self::Not(term) => !term.answer(chart),
            Self::And(a, b) => a.answer(chart) && b.answer(chart),
            Self::Or(a, b) => a.answer(chart) || b.answer(chart),
        }
    }
}

fn word() -> impl Strategy<Value = String> {
    "[ab]{0,3}"
}

fn term() -> impl Strategy<Value = Term> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Term::Bool),
        word().prop_map(Term::NameIs),
        (0..3_usize).prop_map(Term::VariableIs),
        word().prop_map(Term::NameHas),
        word().prop_map(Term::AnyMaintainer),
    ];
    leaf.prop_recursive(5, 24, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|term| Term::Not(Box::new(term))),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Term::And(Box::new(a), Box::new(b))),
            (inner.clone(), inner).prop_map(|(a, b)| Term::Or(Box::new(a), Box::new(b))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn rules_of_the_dashboard_match_a_reference_evaluator(
        term in term(),
        name in word(),
        maintainers in proptest::collection::vec(word(), 0..3),
        variables in proptest::collection::vec(word(), 3),
    ) {
        let names = ["$var0", "$var1", "$var2"];
        let declared: Vec<(&str, &str)> = names.into_iter().zip(variables.iter().map(String::as_str)).collect();
        let people: Vec<_> = maintainers.iter().map(|name| json!({ "name": name })).collect();
        let input = json!({ "name": name, "maintainers": people });
        let filter = Filter::compile(&rule(&term.jq(), &declared), FilterLimits::default()).unwrap();
        prop_assert_eq!(filter.keeps(&input).unwrap(), term.answer(&Chart { name, maintainers, variables }));
    }
}
