//! Reasons of events that stand in calls: `Event::warning("Reason", …)`.

use std::collections::BTreeSet;

use proc_macro2::{Delimiter, TokenTree};

use super::is_camel_case;
use super::tokens::{group, ident, is_punct, strings, tokens_of};

/// The events of a controller.
#[derive(Default)]
pub struct Calls {
    /// Reasons with their type.
    pub events: BTreeSet<(String, &'static str)>,
}

impl Calls {
    pub fn read(&mut self, tokens: &[TokenTree]) {
        for (at, token) in tokens.iter().enumerate() {
            if let TokenTree::Group(inner) = token {
                self.read(&tokens_of(&inner.stream()));
            }
            if ident(Some(token)).as_deref() == Some("Event") && is_punct(tokens.get(at + 1), ':') {
                let function = ident(tokens.get(at + 3)).unwrap_or_default();
                let arguments = group(tokens.get(at + 4), Delimiter::Parenthesis).unwrap_or_default();
                self.call(&function, &arguments);
            }
        }
    }

    fn call(&mut self, function: &str, arguments: &[TokenTree]) {
        let reason = arguments.split(|token| is_punct(Some(token), ',')).next();
        let type_ = match function {
            "warning" => "Warning",
            "normal" => "Normal",
            _ => return,
        };
        let reasons = words(reason.unwrap_or_default());
        self.events.extend(reasons.map(|reason| (reason, type_)));
    }
}

/// Returns the words in CamelCase of an argument; none if it is a variable.
fn words(argument: &[TokenTree]) -> impl Iterator<Item = String> + use<> {
    let mut found = Vec::new();
    strings(argument, &mut found);
    found.into_iter().filter(|word| is_camel_case(word))
}

#[test]
fn all_literals_of_a_reason_are_found() {
    let source = r#"
        fn fail() {
            events.push(Event::warning(if late { "Late" } else { "Early" }, "no reason"));
            events.push(Event::normal(computed, "Ignored"));
        }
    "#;
    let mut calls = Calls::default();
    calls.read(&tokens_of(&source.parse().unwrap()));
    let events: Vec<_> = calls
        .events
        .iter()
        .map(|(reason, type_)| (reason.as_str(), *type_))
        .collect();
    assert_eq!(events, [("Early", "Warning"), ("Late", "Warning")]);
}
