//! The arguments and results of calls, in the present and older forms of KubeVela's packages.

use serde_json::{Value, json};

use super::types::Call;
use crate::controllers::oam::render::patch::clean_fields;
use crate::controllers::oam::source::tokens::{TokenKind, tokenize};

/// The field of a call with its answer.
const RETURNS: &str = "$returns";

/// The fields of a request.
const REQUEST: [&str; 4] = ["method", "url", "request", "tls_config"];

/// Returns an expression with the fields of `output`, or else its own value, in the answer of a call: templates of KubeVela's
/// former versions had them in the call itself. `None` if the expression names answers.
#[must_use]
pub fn within_returns(expression: &str) -> Option<String> {
    let tokens = tokenize(expression).ok()?.tokens;
    let text = |at: usize| tokens.get(at).map_or("", |token| &expression[token.start..token.end]);
    if (0..tokens.len()).any(|at| text(at) == RETURNS) {
        return None;
    }
    let is_output =
        |at: &usize| tokens[*at].kind == TokenKind::Word && text(*at).ends_with("output") && text(*at + 1) == ".";
    let mut changed = String::new();
    let mut copied = 0;
    for at in (0..tokens.len()).filter(is_output) {
        let end = tokens[at].end;
        changed.push_str(&expression[copied..end]);
        changed.push_str(&format!(".{RETURNS}"));
        copied = end;
    }
    changed.push_str(&expression[copied..]);
    if copied == 0 {
        changed = format!("{}.{RETURNS}", expression.trim_end());
    }
    Some(changed)
}

/// Returns the arguments as the function gets them: with defaults, and without markers but those of a patch.
#[must_use]
pub fn arguments(mut params: Value, is_op: bool, provider: &str, function: &str) -> Value {
    let Value::Object(fields) = &mut params else {
        return params;
    };
    let patch = ["patch", "$+patch"].map(|label| Some((label.to_owned(), fields.remove(label)?)));
    let mut fields = clean_fields(fields);
    fields.extend(patch.into_iter().flatten());
    if is_op && provider == "http" {
        // Messages of chats stand beside the request that they become.
        fields.retain(|label, _| REQUEST.contains(&label.as_str()));
    }
    let default = match (provider, function) {
        ("kube", _) => Some(("cluster", json!(""))),
        ("http", _) => Some(("method", json!("GET"))),
        ("util", "log") => Some(("level", json!(3))),
        ("multicluster", "deploy") => Some(("inlinePolicies", json!([]))),
        _ => None,
    };
    if let Some((label, value)) = default {
        fields.entry(label).or_insert(value);
    }
    fields.into()
}

/// Returns the fields that an answer adds to its call.
#[must_use]
pub fn answer_fields(call: &Call, is_op: bool, mut value: Value) -> Option<Value> {
    if value.is_null() {
        return None;
    }
    let (provider, function) = (call.provider.as_str(), call.function.as_str());
    // `values` is the name in `$returns`, `list` the name in `vela/op`.
    if (provider, function) == ("kube", "list")
        && let Some(fields) = value.as_object_mut()
        && let Some(list) = fields.get("values").cloned()
    {
        fields.insert("list".to_owned(), list);
    }
    Some(match (is_op, provider) {
        (true, "http") => json!({ "response": value }),
        (true, _) => value,
        (false, _) => json!({ RETURNS: value }),
    })
}

#[cfg(test)]
mod tests {
    use super::within_returns;

    #[test]
    fn fields_of_an_output_are_looked_up_in_its_answer() {
        for (expression, expected) in [
            ("output.value.data[\"cpu\"]", "output.$returns.value.data[\"cpu\"]"),
            (
                "strings.ToUpper(output.a + output.b)",
                "strings.ToUpper(output.$returns.a + output.$returns.b)",
            ),
            ("read.output.value", "read.output.$returns.value"),
            ("\"output.x\" + output.x", "\"output.x\" + output.$returns.x"),
            ("configs", "configs.$returns"),
            ("outputs.x\n", "outputs.x.$returns"),
        ] {
            assert_eq!(within_returns(expression).as_deref(), Some(expected));
        }
        assert_eq!(within_returns("output.$returns.value"), None);
        assert_eq!(within_returns("output.x }"), None);
    }
}
