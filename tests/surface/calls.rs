//! Reasons that stand in calls: `Failure::new(CONDITION, "Reason", …)` and `Event::warning("Reason", …)`.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenTree};

use super::is_camel_case;
use super::tokens::{group, ident, is_punct, strings, tokens_of};

/// Calls and constants of a controller.
#[derive(Default)]
pub struct Calls {
    /// Reasons by the constant of their condition.
    failures: BTreeMap<String, BTreeSet<String>>,
    /// Reasons of events with their type.
    pub events: BTreeSet<(String, &'static str)>,
    /// Values of constants by name.
    constants: BTreeMap<String, String>,
}

impl Calls {
    pub fn read(&mut self, tokens: &[TokenTree]) {
        for (at, token) in tokens.iter().enumerate() {
            if let TokenTree::Group(inner) = token {
                self.read(&tokens_of(&inner.stream()));
            }
            match ident(Some(token)).as_deref() {
                Some("const") => self.constant(&tokens[at + 1..]),
                Some(type_ @ ("Failure" | "Event")) if is_punct(tokens.get(at + 1), ':') => {
                    let function = ident(tokens.get(at + 3)).unwrap_or_default();
                    let arguments = group(tokens.get(at + 4), Delimiter::Parenthesis).unwrap_or_default();
                    self.call(type_, &function, &arguments);
                }
                _ => {}
            }
        }
    }

    /// Reads `NAME: &str = "value";`.
    fn constant(&mut self, tokens: &[TokenTree]) {
        let end = tokens.iter().position(|token| is_punct(Some(token), ';')).unwrap_or(0);
        let mut found = Vec::new();
        strings(&tokens[..end], &mut found);
        if let (Some(name), [value]) = (ident(tokens.first()), found.as_slice()) {
            self.constants.insert(name, value.clone());
        }
    }

    fn call(&mut self, type_: &str, function: &str, arguments: &[TokenTree]) {
        let arguments: Vec<&[TokenTree]> = arguments.split(|token| is_punct(Some(token), ',')).collect();
        let argument = |at: usize| arguments.get(at).copied().unwrap_or_default();
        match (type_, function) {
            ("Failure", "new") => {
                let condition = argument(0).iter().rev().find_map(|token| ident(Some(token)));
                self.failures
                    .entry(condition.unwrap_or_default())
                    .or_default()
                    .extend(words(argument(1)));
            }
            ("Failure", "synced") => {
                self.failures
                    .entry("SYNCED".to_owned())
                    .or_default()
                    .extend(words(argument(0)));
            }
            ("Event", "warning") => self.events.extend(words(argument(0)).map(|word| (word, "Warning"))),
            ("Event", "normal") => self.events.extend(words(argument(0)).map(|word| (word, "Normal"))),
            _ => {}
        }
    }

    /// Returns the reasons of failures by the type of their condition.
    pub fn conditions(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let named = self.failures.iter().filter_map(|(constant, reasons)| {
            let reasons: BTreeSet<&str> = reasons.iter().map(String::as_str).collect();
            Some((self.constants.get(constant)?.as_str(), reasons))
        });
        named.filter(|(_, reasons)| !reasons.is_empty()).collect()
    }
}

/// Returns the words in CamelCase of an argument; none if it is a variable.
fn words(argument: &[TokenTree]) -> impl Iterator<Item = String> + use<> {
    let mut found = Vec::new();
    strings(argument, &mut found);
    found.into_iter().filter(|word| is_camel_case(word))
}

#[test]
fn reasons_of_calls_have_their_condition() {
    let source = r#"
        const PARSED: &str = "Parsed";
        fn fail() {
            let error = Failure::new(conditions::PARSED, "FailedParse", text);
            other(Failure::new(conditions::UNKNOWN, "Lost", text));
            events.push(Event::warning(if late { "Late" } else { "Early" }, "no reason"));
        }
    "#;
    let mut calls = Calls::default();
    calls.read(&tokens_of(&source.parse().unwrap()));
    assert_eq!(
        calls.conditions(),
        BTreeMap::from([("Parsed", BTreeSet::from(["FailedParse"]))])
    );
    let events: Vec<_> = calls.events.iter().map(|(reason, _)| reason.as_str()).collect();
    assert_eq!(events, ["Early", "Late"]);
}
