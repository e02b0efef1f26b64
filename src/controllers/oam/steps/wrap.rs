//! Builds the texts that the evaluator gets.
//!
//! The template is a `let`: CUE evaluates the parts of it that the exported fields need, and reports no other errors.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::fields::{Label, LabelPath};
use super::packages::{self, IMPORTS, JSON};
use super::scan::ScannedTemplate;
use super::types::Caller;
use crate::controllers::oam::render::evaluate::TemplateAnswers;
use crate::controllers::oam::source::tokens::{Token, tokenize};
use crate::controllers::oam::source::{SyntaxError, selected};
use crate::cue::CueSource;

/// The template, in a struct with the packages. A package can't be a `let` itself: a field could have its name.
const STEP: &str = "velaRoot.velaStep";
const PENDING: &str = "velaPending";
const INPUTS: [&str; 2] = ["parameter", "context"];
/// The label of the exported value of an expression, in a list: CUE can't name a value of a `let` that is not concrete, but
/// an element of a list.
const VALUE: &str = "value";

/// A field that is a call, where it is declared last, with the key of its computed label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallPosition {
    pub field: usize,
    pub key: String,
}

/// A template with its values and the answers so far.
#[derive(Debug)]
pub struct WrappedStep<'a> {
    pub caller: Caller,
    pub template: &'a ScannedTemplate,
    pub parameter: &'a str,
    pub context: &'a str,
    pub done: BTreeSet<CallPosition>,
    /// The declarations of answers.
    pub answers: String,
}

impl WrappedStep<'_> {
    /// Returns the text that exports the first call to do as `call`, if there is one, with `params` if they are concrete, and
    /// as `faults` the inputs that can't be read: `parameter` if it conflicts with its types, both if the template has a
    /// condition that is not known.
    #[must_use]
    pub fn pending(&self) -> CueSource {
        let mut text = self.template("", &[], true);
        let mut calls = String::new();
        let _ = writeln!(text, "let {PENDING} = [");
        for (index, field) in self.template.fields.iter().enumerate() {
            let last = self.template.last.get(index).copied().unwrap_or(index);
            let Some(condition) = self.condition(index, last, field) else {
                continue;
            };
            let _ = writeln!(text, "\t{condition},");
            let call = selector(STEP, &field.0, &format!("{PENDING}[0].key"));
            let provider = provider(&call);
            let arguments = |comparison: &str, arguments: &str| {
                format!(
                    "\tif {provider} {comparison} \"op\" if {JSON}.Marshal({arguments}) != _|_ {{params: {arguments}}}\n"
                )
            };
            let _ = writeln!(
                calls,
                "if len({PENDING}) > 0 if {PENDING}[0].index == {index} {{\"call\": {{\n\
                 \tindex: {index}\n\tkey: {PENDING}[0].key\n\tprovider: {provider}\n\tfunction: {call}.#do\n{}{}}}}}",
                arguments("==", &call),
                arguments("!=", &format!("{call}.$params")),
            );
        }
        text.push_str("]\n");
        text.push_str(&calls);
        let faults = INPUTS.map(|input| format!("if {STEP}.{input} == _|_ {{\"{input}\"}}"));
        let _ = writeln!(text, "\"faults\": [{}]", faults.join(", "));
        text
    }

    /// Returns the text that exports the arguments of a call, also to learn why they are not concrete.
    #[must_use]
    pub fn arguments(&self, position: &CallPosition, is_op: bool) -> CueSource {
        let mut text = self.template("", &[], false);
        let key = Value::from(position.key.as_str()).to_string();
        let labels = self.template.fields.get(position.field).map(|field| field.0.as_slice());
        let call = selector(STEP, labels.unwrap_or_default(), &key);
        let arguments = if is_op { "" } else { ".$params" };
        let _ = writeln!(text, "\"{VALUE}\": [{call}{arguments}]");
        text
    }

    /// Returns the text that exports an input, to learn why it can't be read.
    #[must_use]
    pub fn input(&self, input: &str) -> CueSource {
        let mut text = self.template("", &[], false);
        let _ = writeln!(text, "\"{VALUE}\": [{STEP}.{input}]");
        text
    }

    /// Returns the text that exports the value of an expression over the fields of the template.
    ///
    /// # Errors
    ///
    /// Literals and brackets that don't match.
    pub fn expression(&self, expression: &str) -> Result<CueSource, SyntaxError> {
        let tokens = tokenize(expression)?.tokens;
        let mut text = self.template(expression, &tokens, false);
        let _ = writeln!(text, "\"{VALUE}\": [{STEP}.\"${VALUE}\"]");
        Ok(text)
    }

    /// Returns imports, packages and the template. CUE refuses imports that are not used: `has_json` is true if the text
    /// around the template encodes JSON.
    fn template(&self, expression: &str, tokens: &[Token], has_json: bool) -> CueSource {
        let (head, declarations) = self.imports(expression, tokens, has_json);
        let mut text = CueSource::from(head);
        let _ = write!(text, "let velaRoot = {{\n{declarations}velaStep: {{\n");
        text.push_template(&self.template.body);
        let _ = write!(
            text,
            "\nparameter: {}\ncontext: {}\n{}",
            self.parameter, self.context, self.answers
        );
        if !expression.is_empty() {
            let _ = writeln!(text, "\"${VALUE}\": {expression}");
        }
        text.push_str("}\n}\n");
        text
    }

    /// Returns what the template needs to be rendered with the answers so far.
    #[must_use]
    pub fn answers(&self) -> TemplateAnswers {
        let (imports, packages) = self.imports("", &[], false);
        TemplateAnswers {
            imports,
            packages,
            fields: self.answers.clone(),
        }
    }

    /// Returns the imports of packages of CUE, and the declarations of packages with functions.
    fn imports(&self, expression: &str, tokens: &[Token], has_json: bool) -> (String, String) {
        let mut head = String::new();
        let mut declarations = String::new();
        for (name, path) in IMPORTS {
            if (has_json && name == JSON) || self.packages_use(name) {
                let _ = writeln!(head, "import {name} \"{path}\"");
            }
        }
        for import in &self.template.imports {
            let functions = [import.functions.clone(), selected(expression, tokens, &import.name)];
            let Some(functions) = functions.into_iter().flatten().reduce(|mut all, more| {
                all.extend(more);
                all
            }) else {
                continue;
            };
            match import.vela_package() {
                Some(package) => {
                    let declaration = packages::declaration(self.caller, &import.name, package, &functions);
                    declarations.push_str(&declaration);
                }
                None => {
                    let path = Value::from(import.path.as_str());
                    let _ = writeln!(head, "import {} {path}", import.name);
                }
            }
        }
        (head, declarations)
    }

    fn packages_use(&self, name: &str) -> bool {
        let uses = |package: &str| packages::uses(self.caller, package, name);
        self.template
            .imports
            .iter()
            .any(|import| import.functions.is_some() && import.vela_package().is_some_and(uses))
    }

    /// Returns, as CUE, the keys of the calls with labels of their own beside a call with a computed label.
    fn keys_beside(&self, field: &LabelPath, computed: usize) -> impl Iterator<Item = String> {
        self.template.fields.iter().filter_map(move |other| {
            let Some(Label::Named(name)) = other.0.get(computed) else {
                return None;
            };
            let mut generic = other.clone();
            *generic.0.get_mut(computed)? = Label::Computed;
            (generic == *field).then(|| {
                if name.contains('"') {
                    name.clone()
                } else {
                    format!("\"{name}\"")
                }
            })
        })
    }

    /// Returns the element of the list of pending calls, `None` if the call of a field is done.
    fn condition(&self, index: usize, last: usize, field: &LabelPath) -> Option<String> {
        let done = self.done.iter().filter(|position| position.field == last);
        let computed = field.0.iter().position(|label| *label == Label::Computed);
        let Some((before, after)) = computed.and_then(|at| field.0.split_at_checked(at)) else {
            let call = selector(STEP, &field.0, "");
            let condition = is_call(&call, index == last);
            return (done.count() == 0).then(|| format!("{condition} {{index: {index}, key: \"\"}}"));
        };
        let source = selector(STEP, before, "");
        let call = selector("velaValue", after.get(1..).unwrap_or_default(), "");
        let condition = is_call(&call, index == last);
        let mut text = format!("if {source} != _|_ for velaKey, velaValue in {source} {condition}");
        let done = done.map(|position| Value::from(position.key.as_str()).to_string());
        for key in done.chain(self.keys_beside(field, before.len())) {
            let _ = write!(text, " if velaKey != {key}");
        }
        let _ = write!(text, " {{index: {index}, key: velaKey}}");
        Some(text)
    }
}

/// Returns the condition that a field is a call. A field that is declared under several conditions is in front of other
/// calls only where it is declared last, or if its arguments are concrete: the others may belong to another condition.
fn is_call(call: &str, is_last: bool) -> String {
    let mut text = format!("if {call}.#do != _|_ if {call}.#do != \"steps\"");
    if !is_last {
        let provider = provider(call);
        let _ = write!(
            text,
            " if {JSON}.Marshal([if {provider} == \"op\" {{{call}}}, if {provider} != \"op\" {{{call}.$params}}]) != _|_"
        );
    }
    text
}

/// Returns the provider of a call, which KubeVela takes for `builtin` if it is missing.
fn provider(call: &str) -> String {
    format!("(*{call}.#provider | \"builtin\")")
}

/// Returns the declaration of a value at a field.
#[must_use]
pub fn declaration(field: &LabelPath, key: &str, value: &Value) -> String {
    let mut text = String::new();
    for label in &field.0 {
        match label {
            Label::Named(name) => text.push_str(name),
            Label::Computed => text.push_str(&Value::from(key).to_string()),
        }
        text.push_str(": ");
    }
    text.push_str(&value.to_string());
    text.push('\n');
    text
}

/// Returns the reference to a field; `key` is an expression for its computed label.
fn selector(root: &str, labels: &[Label], key: &str) -> String {
    let mut text = root.to_owned();
    for label in labels {
        let _ = match label {
            Label::Named(name) if name.contains('"') => write!(text, "[{name}]"),
            Label::Named(name) => write!(text, ".{name}"),
            Label::Computed => write!(text, "[{key}]"),
        };
    }
    text
}

/// Returns the text that exports the value of an expression over the fields of a scope.
#[must_use]
pub fn scope(fields: &Map<String, Value>, expression: &str) -> String {
    let mut text = "let velaScope = {\n".to_owned();
    for (name, value) in fields {
        let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let _ = if is_identifier {
            writeln!(text, "{name}: {value}")
        } else {
            writeln!(text, "{}: {value}", Value::from(name.as_str()))
        };
    }
    let _ = writeln!(
        text,
        "\"${VALUE}\": {expression}\n}}\n\"{VALUE}\": [velaScope.\"${VALUE}\"]"
    );
    text
}

/// Returns the exported value of an expression.
#[must_use]
pub fn value(result: &mut Map<String, Value>) -> Value {
    match result.remove(VALUE) {
        Some(Value::Array(values)) => values.into_iter().next().unwrap_or_default(),
        _ => Value::Null,
    }
}

/// Removes what wrapping added to an error.
#[must_use]
pub fn clean_error(text: &str) -> String {
    // In front of the path of a value in the list.
    let text = text.strip_prefix(&format!("{VALUE}.")).unwrap_or(text);
    let text = ["let[].", "velaRoot.", "velaStep.", "velaScope."]
        .iter()
        .fold(text.to_owned(), |text, prefix| text.replace(prefix, ""));
    let text = text.strip_prefix(&format!("${VALUE}: ")).unwrap_or(&text);
    text.strip_prefix(&format!("${VALUE}.")).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_paths_of_the_template() {
        for (text, expected) in [
            (
                "velaRoot.velaStep.a.b: conflicting values 1 and 2",
                "a.b: conflicting values 1 and 2",
            ),
            (
                "velaRoot.velaStep.value.a: undefined field: b",
                "value.a: undefined field: b",
            ),
            ("value.$params.url: cannot convert", "$params.url: cannot convert"),
            ("velaScope.$value: undefined field: x", "undefined field: x"),
            ("let[].$value: reference \"x\" not found", "reference \"x\" not found"),
            (
                "let[].velaStep.a: reference \"x\" not found",
                "a: reference \"x\" not found",
            ),
            ("value.$value.a: cannot convert", "a: cannot convert"),
        ] {
            assert_eq!(clean_error(text), expected);
        }
    }

    #[test]
    fn answers_are_declared_where_their_call_is() {
        let named = |name: &str| Label::Named(name.to_owned());
        let field = LabelPath(vec![named("load"), named("\"a-b\""), Label::Computed]);
        let text = declaration(&field, "x\"y", &serde_json::json!({ "err": "no" }));
        assert_eq!(text, "load: \"a-b\": \"x\\\"y\": {\"err\":\"no\"}\n");
        assert_eq!(selector("v", &field.0, "\"k\""), "v.load[\"a-b\"][\"k\"]");
    }

    #[test]
    fn labels_that_are_no_identifiers_are_quoted_in_a_scope() {
        let fields = Map::from_iter([("a-b".to_owned(), 1.into()), ("status".to_owned(), 2.into())]);
        let text = scope(&fields, "status > 1");
        assert!(
            text.contains("\n\"a-b\": 1\nstatus: 2\n\"$value\": status > 1\n"),
            "{text}"
        );
    }
}
