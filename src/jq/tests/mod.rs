mod messages;
mod reference;
mod rules;

use super::*;

fn rule(jq: &str, variables: &[(&str, &str)]) -> JqRule {
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    JqRule {
        jq: jq.to_owned(),
        variables: variables.collect(),
    }
}
