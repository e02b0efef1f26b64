//! Reads a template: its imports, and the fields that may be calls.

use std::collections::HashMap;

use super::fields::{FieldCondition, FieldPathTooLong, LabelPath, TemplateFields, find};
use super::types::{MAX_CONDITION_BYTES, MAX_FIELDS, MAX_IMPORTS, MAX_LABELS, MAX_PATH_BYTES};
use crate::controllers::oam::source::tokens::{Token, TokenKind, tokenize};
use crate::controllers::oam::source::{CueImport, Role, SyntaxError, imports, scan, selected};

/// A template of a step, ready to be wrapped.
#[derive(Debug)]
pub struct ScannedTemplate {
    pub imports: Vec<CueImport>,
    /// The template without imports; markers of patches are data, and conditions that are not known yet are false.
    pub body: String,
    /// The fields that may be calls, in the order in which KubeVela would do them: inner ones first.
    pub fields: Vec<LabelPath>,
    /// For each field, the index where it is declared last.
    pub last: Vec<usize>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    #[error("invalid template: {0}")]
    Syntax(#[from] SyntaxError),
    #[error("the template has more than {MAX_FIELDS} fields that may be calls")]
    TooManyFields,
    #[error("a field that may be a call has a path of more than {MAX_LABELS} labels or {MAX_PATH_BYTES} bytes")]
    PathTooLong,
    #[error("conditions of the template, with all that they contain, are larger than {MAX_CONDITION_BYTES} bytes")]
    LargeConditions,
    #[error("the template has more than {MAX_IMPORTS} imports")]
    TooManyImports,
    #[error("{0} is not supported by this controller: it has more than one computed label")]
    ComputedLabels(String),
}

impl ScannedTemplate {
    /// Scans a template.
    ///
    /// # Errors
    ///
    /// Literals and brackets that don't match, templates beyond the limits, and calls under two computed labels.
    pub fn scan(source: &str) -> Result<Self, ScanError> {
        // In a trait, markers of patches may be anywhere.
        let scanned = scan(source, Role::Trait, false)?;
        let tokens = tokenize(&scanned.body)?.tokens;
        let TemplateFields { fields, conditions } =
            find(&scanned.body, &tokens).map_err(|FieldPathTooLong| ScanError::PathTooLong)?;
        if guard_bytes(&tokens, &conditions) > MAX_CONDITION_BYTES {
            return Err(ScanError::LargeConditions);
        }
        if fields.len() > MAX_FIELDS {
            return Err(ScanError::TooManyFields);
        }
        if let Some(field) = fields.iter().find(|field| field.computed_labels() > 1) {
            return Err(ScanError::ComputedLabels(field.path("(…)")));
        }
        let mut imports = imports(&scanned.imports)?;
        if imports.len() > MAX_IMPORTS {
            return Err(ScanError::TooManyImports);
        }
        for import in &mut imports {
            import.functions = selected(&scanned.body, &tokens, &import.name);
        }
        Ok(Self {
            imports,
            last: last(&fields),
            body: add_guards(&scanned.body, &tokens, &conditions),
            fields,
        })
    }
}

/// Returns the size of what guards repeat: a loop over a struct with loops repeats these loops, too.
fn guard_bytes(tokens: &[Token], conditions: &[FieldCondition]) -> usize {
    let bytes = |condition: &FieldCondition| {
        let last = tokens.get(condition.end.checked_sub(1)?)?;
        last.end.checked_sub(tokens.get(condition.start)?.start)
    };
    conditions.iter().filter_map(bytes).sum()
}

/// Puts a guard in front of each condition. CUE selects no field of a struct with a condition that is not known, such as
/// `if read.$returns.value.ready == true` before the call `read` is done, so that no call would be found in it.
fn add_guards(body: &str, tokens: &[Token], conditions: &[FieldCondition]) -> String {
    let mut text = String::with_capacity(body.len());
    let mut copied = 0;
    let mut conditions = conditions.to_vec();
    conditions.sort_by_key(|condition| condition.clause);
    for condition in conditions {
        let (Some(clause), Some(repeated)) = (tokens.get(condition.clause), tokens.get(condition.start..condition.end))
        else {
            continue;
        };
        if let Some(before) = body.get(copied..clause.start) {
            text.push_str(before);
            text.push_str(&format!("if ({}) != _|_ ", in_one_line(body, repeated)));
            copied = clause.start;
        }
    }
    text.push_str(body.get(copied..).unwrap_or_default());
    text
}

/// Returns the text of tokens without line ends and comments, so that the lines after it keep their numbers.
fn in_one_line(body: &str, tokens: &[Token]) -> String {
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
        return String::new();
    };
    let text = body.get(first.start..last.end).unwrap_or_default();
    if !text.contains('\n') {
        return text.to_owned();
    }
    let texts = tokens.iter().map(|token| match token.kind {
        // A line end implies a comma.
        TokenKind::Comma => ",",
        _ => body.get(token.start..token.end).unwrap_or_default(),
    });
    texts.collect::<Vec<_>>().join(" ")
}

fn last(fields: &[LabelPath]) -> Vec<usize> {
    // A later index replaces an earlier one.
    let last: HashMap<&LabelPath, usize> = fields.iter().zip(0..).collect();
    fields.iter().filter_map(|field| last.get(field).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(template: &str) -> Vec<String> {
        let template = ScannedTemplate::scan(template).unwrap();
        template.fields.iter().map(|field| field.path("(…)")).collect()
    }

    #[test]
    fn one_computed_label_is_followed_and_two_are_refused_by_name() {
        let one = "apply: {for p in places {\"\\(p)\": do: kube.#Apply}}";
        assert_eq!(fields(one), ["apply.(…).do", "apply", ""]);
        let two = "apply: {for p in places {(p): \"\\(p)-x\": kube.#Apply}}";
        let error = ScannedTemplate::scan(two).unwrap_err().to_string();
        assert_eq!(
            error,
            "apply.(…).(…) is not supported by this controller: it has more than one computed label"
        );
    }

    #[test]
    fn a_field_that_is_declared_several_times_is_last_where_it_is_declared_last() {
        let template = ScannedTemplate::scan("if x {a: #A}\nb: #A\nif !x {a: #A}").unwrap();
        assert_eq!(template.fields.len(), 4);
        assert_eq!(template.last, [2, 1, 2, 3]);
    }

    #[test]
    fn conditions_beside_fields_are_guarded_and_those_of_values_are_not() {
        let template = r#"
if read.x == 1 {a: kube.#Read}
load: {
	for k, v in read.items if v > 1 {"\(k)": {if v.y {z: 1}}}
}
call: kube.#Apply & {$params: {if read.x {value: 1}}}
list: [if read.x {1}]
plain: {let if_a = read.b, c: if_a}
if parameter.ask == true && context.name != "a" {ask: kube.#Read}
group: op.#Steps & {if read.x {b: kube.#Read}}
"#;
        let expected = r#"
if (read.x == 1) != _|_ if read.x == 1 {a: kube.#Read}
load: {
	if (read.items) != _|_ for k, v in read.items if (v > 1) != _|_ if v > 1 {"\(k)": {if (v.y) != _|_ if v.y {z: 1}}}
}
call: kube.#Apply & {$params: {if read.x {value: 1}}}
list: [if read.x {1}]
plain: {let if_a = read.b, c: if_a}
if parameter.ask == true && context.name != "a" {ask: kube.#Read}
group: op.#Steps & {if (read.x) != _|_ if read.x {b: kube.#Read}}
"#;
        assert_eq!(ScannedTemplate::scan(template).unwrap().body, expected);
    }

    #[test]
    fn a_guard_of_several_lines_takes_one() {
        let template = "if read.a && // one\n\tread.b {a: kube.#Read}\nfor k in {x: read.a\n y: 1} {b: kube.#Read}\n";
        let expected = "if (read . a && read . b) != _|_ if read.a && // one\n\tread.b {a: kube.#Read}\n\
                        if ({ x : read . a , y : 1 }) != _|_ for k in {x: read.a\n y: 1} {b: kube.#Read}\n";
        assert_eq!(ScannedTemplate::scan(template).unwrap().body, expected);
    }

    #[test]
    fn imports_have_names() {
        let template =
            "import \"vela/kube\"\nimport (\n\t\"encoding/json\"\n\tb64 \"encoding/base64\"\n\t\"x.y/z:w\"\n)\n";
        let imports = ScannedTemplate::scan(template).unwrap().imports;
        let names: Vec<_> = imports
            .iter()
            .map(|import| (import.name.as_str(), import.vela_package()))
            .collect();
        assert_eq!(
            names,
            [("kube", Some("kube")), ("json", None), ("b64", None), ("w", None)]
        );
    }

    #[test]
    fn broken_and_huge_templates_are_errors() {
        assert!(matches!(
            ScannedTemplate::scan("a: {").unwrap_err(),
            ScanError::Syntax(_)
        ));
        let many: String = (0..=MAX_FIELDS).map(|index| format!("f{index}: #A\n")).collect();
        assert_eq!(ScannedTemplate::scan(&many).unwrap_err(), ScanError::TooManyFields);
        let deep = "a: ".repeat(200_000) + "#A";
        assert_eq!(ScannedTemplate::scan(&deep).unwrap_err(), ScanError::PathTooLong);
        let nested = "for x in {".repeat(150) + &"a: b\n".repeat(1_000) + &"} {}".repeat(150);
        assert_eq!(ScannedTemplate::scan(&nested).unwrap_err(), ScanError::LargeConditions);
        let imports = |count: usize| "import \"strings\"\n".repeat(count);
        assert!(ScannedTemplate::scan(&imports(MAX_IMPORTS)).is_ok());
        assert_eq!(
            ScannedTemplate::scan(&imports(MAX_IMPORTS + 1)).unwrap_err(),
            ScanError::TooManyImports
        );
        for hostile in [
            "a:",
            ":",
            "for k, in",
            "a: b: c:",
            "if",
            "let x",
            "a: {}}",
            "\"\\(a",
            "(",
            "[x]: ",
            "=",
            "a=:",
        ] {
            let _ = ScannedTemplate::scan(hostile);
        }
    }
}
