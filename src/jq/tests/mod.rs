//! Tests of rules as a whole.

mod hostile;
mod messages;
mod reference;
mod rules;

use super::*;

/// A rule with these variables.
fn rule(jq: &str, variables: &[(&str, &str)]) -> Rule {
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Rule {
        jq: jq.to_owned(),
        variables: variables.collect(),
    }
}
