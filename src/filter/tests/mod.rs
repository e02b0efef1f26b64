//! Tests of rules as a whole.

mod goldens;
mod hostile;
mod messages;
mod reference;
mod rules;

#[path = "../../../tests/support/corpus.rs"]
#[allow(dead_code, reason = "shared with tests that read the indexes too")]
mod corpus;

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
