//! Finds the fields of a template that may be calls, and the conditions among them.

use super::types::{MAX_FIELDS, MAX_LABELS, MAX_PATH_BYTES};
use crate::controllers::oam::source::tokens::{Token, TokenKind};

/// The labels from the top of the template to a field. No labels are the template itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelPath(pub Vec<Label>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Label {
    /// As the template writes it.
    Named(String),
    /// `(expression)` or an interpolation.
    Computed,
}

/// A condition, or the source of a loop, by the indexes of its first token and of the token after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldCondition {
    /// The index of `if` or `for`.
    pub clause: usize,
    pub start: usize,
    pub end: usize,
}

/// The parts of a template.
#[derive(Debug, Default)]
pub struct TemplateFields {
    /// At most one more than [`MAX_FIELDS`]. A field that is declared under several conditions is there several times.
    pub fields: Vec<LabelPath>,
    /// The conditions beside fields, but not within values of calls.
    pub conditions: Vec<FieldCondition>,
}

/// The path of a field that may be a call is longer than [`MAX_LABELS`] or [`MAX_PATH_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPathTooLong;

/// Finds the fields of a template that may be calls, and the conditions beside them. Brackets must match.
///
/// # Errors
///
/// A path is too long: each is repeated in every evaluation.
pub fn find(source: &str, tokens: &[Token]) -> Result<TemplateFields, FieldPathTooLong> {
    let mut walker = Walker {
        source,
        tokens,
        path: Vec::new(),
        is_within_value: false,
        has_long_path: false,
        found: TemplateFields::default(),
    };
    walker.declarations(0, tokens.len());
    walker.push();
    if walker.has_long_path {
        Err(FieldPathTooLong)
    } else {
        Ok(walker.found)
    }
}

impl LabelPath {
    #[must_use]
    pub fn computed_labels(&self) -> usize {
        self.0.iter().filter(|label| **label == Label::Computed).count()
    }

    /// Returns the path as people write it, with `key` for the computed label.
    #[must_use]
    pub fn path(&self, key: &str) -> String {
        let labels = self.0.iter().map(|label| match label {
            Label::Named(name) => name.trim_matches('"'),
            Label::Computed => key,
        });
        labels.collect::<Vec<_>>().join(".")
    }
}

/// Walks through structs.
struct Walker<'a> {
    source: &'a str,
    tokens: &'a [Token],
    path: Vec<Label>,
    /// True within values that are more than a struct: values of calls.
    is_within_value: bool,
    has_long_path: bool,
    found: TemplateFields,
}

/// The labels before a value: `a: b: `.
struct LabelRun {
    labels: Vec<Label>,
    /// The index of the token after them.
    value: usize,
    /// Returns true for definitions, optional fields and patterns, which are no fields of the result.
    is_skipped: bool,
}

impl Walker<'_> {
    fn text(&self, index: usize) -> &str {
        self.tokens
            .get(index)
            .map_or("", |token| &self.source[token.start..token.end])
    }

    fn kind(&self, index: usize) -> Option<TokenKind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    /// Returns the index after a token and, for a bracket, all that is in it.
    fn after(&self, index: usize) -> usize {
        match self.tokens.get(index) {
            Some(token) if matches!(token.kind, TokenKind::Open | TokenKind::TextStart) => token.partner.max(index) + 1,
            _ => index + 1,
        }
    }

    fn push(&mut self) {
        let is_short = |path: &[Label]| {
            let bytes = |label: &Label| match label {
                Label::Named(name) => name.len(),
                Label::Computed => 0,
            };
            path.len() <= MAX_LABELS && path.iter().map(bytes).sum::<usize>() <= MAX_PATH_BYTES
        };
        if !is_short(&self.path) {
            self.has_long_path = true;
        } else if self.found.fields.len() <= MAX_FIELDS {
            self.found.fields.push(LabelPath(self.path.clone()));
        }
    }

    fn declarations(&mut self, start: usize, end: usize) {
        let mut at = start;
        while at < end {
            let LabelRun {
                labels,
                value,
                is_skipped,
            } = self.labels(at);
            let stop = self.declaration_end(value, end);
            let is_let = labels.is_empty() && self.text(at) == "let";
            if !is_skipped && !is_let {
                let depth = self.path.len();
                let is_field = !labels.is_empty();
                self.path.extend(labels);
                let was_within_value = self.is_within_value;
                self.is_within_value |= is_field && self.after(value) != stop && !self.is_group(value, stop);
                if !is_field && !self.is_within_value {
                    self.conditions(at, stop);
                }
                self.structs(value, stop);
                self.is_within_value = was_within_value;
                if is_field && self.names_definition(value, stop) {
                    self.push();
                }
                self.path.truncate(depth);
            }
            at = stop.max(at + 1);
            while self.kind(at) == Some(TokenKind::Comma) {
                at += 1;
            }
        }
    }

    /// Finds the conditions in front of a struct.
    fn conditions(&mut self, start: usize, end: usize) {
        let mut at = start;
        while at < end && matches!(self.text(at), "if" | "for" | "let") {
            let mut source = at + 1;
            let mut stop = at + 1;
            while stop < end && !self.begins_clause(stop) && !(self.text(stop) == "{" && self.after(stop) >= end) {
                if self.text(at) == "for" && self.text(stop) == "in" {
                    source = stop + 1;
                }
                stop = self.after(stop);
            }
            let is_comma = |index: usize| self.kind(index) == Some(TokenKind::Comma);
            let last = (source..stop).rev().find(|index| !is_comma(*index));
            if let Some(last) = last.filter(|_| self.text(at) != "let" && self.may_come(source, stop)) {
                self.found.conditions.push(FieldCondition {
                    clause: at,
                    start: source,
                    end: last + 1,
                });
            }
            at = stop;
        }
    }

    /// Returns true for `op.#Steps & {…}`, a struct with calls that is no call itself.
    fn is_group(&self, start: usize, end: usize) -> bool {
        let mut before_struct = (start..end).take_while(|index| self.text(*index) != "{");
        before_struct.any(|index| self.text(index) == "#Steps")
    }

    /// Returns true if an expression refers to anything but inputs: what is missing there never comes, and must not skip
    /// an approval.
    fn may_come(&self, start: usize, end: usize) -> bool {
        (start..end).any(|index| {
            let text = self.text(index);
            let is_selected = index.checked_sub(1).is_some_and(|before| self.text(before) == ".");
            let is_input = matches!(text, "parameter" | "context" | "true" | "false" | "null" | "_");
            self.kind(index) == Some(TokenKind::Word) && !is_selected && !is_input
        })
    }

    fn begins_clause(&self, index: usize) -> bool {
        let is_selected = index.checked_sub(1).is_some_and(|before| self.text(before) == ".");
        matches!(self.text(index), "if" | "for" | "let") && !is_selected
    }

    /// Walks through the structs that a value consists of.
    fn structs(&mut self, start: usize, end: usize) {
        let mut at = start;
        while at < end {
            let next = self.after(at);
            if self.text(at) == "{" {
                self.declarations(at + 1, next - 1);
            }
            at = next;
        }
    }

    /// Returns true if a value names a definition: without one it is no call.
    fn names_definition(&self, start: usize, end: usize) -> bool {
        (start..end).any(|index| self.kind(index) == Some(TokenKind::Word) && is_definition(self.text(index)))
    }

    fn declaration_end(&self, start: usize, end: usize) -> usize {
        let mut at = start;
        while at < end {
            // `for k, v in …`
            let is_clause = at >= 2 && self.text(at - 2) == "for" && self.text(at) == ",";
            match self.kind(at) {
                Some(TokenKind::Comma) if !is_clause => return at,
                _ => at = self.after(at),
            }
        }
        end
    }

    fn labels(&self, start: usize) -> LabelRun {
        let mut labels = LabelRun {
            labels: Vec::new(),
            value: start,
            is_skipped: false,
        };
        loop {
            let has_alias = self.kind(labels.value) == Some(TokenKind::Word) && self.text(labels.value + 1) == "=";
            let first = if has_alias { labels.value + 2 } else { labels.value };
            let next = self.after(first);
            let is_optional = matches!(self.text(next), "?" | "!");
            let colon = next + usize::from(is_optional);
            if self.text(colon) != ":" {
                return labels;
            }
            let text = self.text(first);
            let label = match self.kind(first) {
                Some(TokenKind::Word | TokenKind::Text) => Label::Named(text.to_owned()),
                Some(TokenKind::TextStart | TokenKind::Open) => Label::Computed,
                _ => return labels,
            };
            let is_top = self.path.is_empty() && labels.labels.is_empty();
            let is_input = is_top && matches!(text, "parameter" | "context");
            labels.is_skipped |= is_optional || is_input || text == "[" || is_definition(text);
            labels.labels.push(label);
            labels.value = colon + 1;
        }
    }
}

fn is_definition(word: &str) -> bool {
    word.starts_with('#') || word.starts_with("_#")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::oam::source::tokens::tokenize;

    fn fields(template: &str) -> Vec<String> {
        let tokens = tokenize(template).unwrap().tokens;
        let fields = find(template, &tokens).unwrap().fields;
        fields.iter().map(|field| field.path("(…)")).collect()
    }

    #[test]
    fn fields_that_name_definitions_are_found_inner_ones_first() {
        let template = r#"
plain: {a: 1}
read: kube.#Read & {$params: value: {}} @step(1)
load: {
	if read.$returns.err != _|_ {
		configMap: kube.#Read & {$params: value: name: "a"}
		wait:      kube.#Read
	}
	for k, v in {a: 1} if v > 0 {
		wait: kube.#Read
	}
}
_hidden: "a-b": chain: kube.#Read
"#;
        assert_eq!(
            fields(template),
            [
                "read",
                "load.configMap",
                "load.wait",
                "load.wait",
                "load",
                "_hidden.a-b.chain",
                "" // the template itself
            ]
        );
    }

    #[test]
    fn inputs_definitions_and_optional_fields_are_no_calls() {
        let template = r#"
parameter: {link: #link, #link: {}}
context: #Context
#Mine: kube.#Read
optional?: kube.#Read
[string]: kube.#Read
let hidden = {a: kube.#Read}
x=aliased: y={b: #Mine}
"#;
        assert_eq!(fields(template), ["aliased.b", "aliased", ""]);
    }
    #[test]
    fn long_paths_are_refused_only_where_a_call_may_be() {
        let result = |template: &str| {
            let tokens = tokenize(template).unwrap().tokens;
            find(template, &tokens).map(|found| found.fields.len())
        };
        let chain = |labels: usize, value: &str| format!("{}{value}\n", "a: ".repeat(labels));
        assert_eq!(result(&chain(MAX_LABELS, "#A")), Ok(2));
        assert_eq!(result(&chain(MAX_LABELS + 1, "#A")), Err(FieldPathTooLong));
        assert_eq!(result(&chain(MAX_LABELS + 1, "1")), Ok(1));
        assert_eq!(
            result(&chain(40, &format!("{{{}}}", chain(40, "#A")))),
            Err(FieldPathTooLong)
        );
        let long = "a".repeat(MAX_PATH_BYTES + 1);
        assert_eq!(result(&format!("{long}: #A")), Err(FieldPathTooLong));
        let hostile = format!("{}{{{}}}", "a: ".repeat(200_000), "b: #A\n".repeat(500));
        assert_eq!(result(&hostile), Err(FieldPathTooLong));
    }
}
