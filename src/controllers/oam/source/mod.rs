//! Reads the declarations of a template and rewrites what an export as JSON would lose.
//!
//! CUE passes comments, open lists and incomplete comprehensions along with a value; JSON does not. So three things
//! become data before the template is evaluated:
//!
//! - `+patchKey` and `+patchStrategy` above a field become a sibling: `"$+containers": {patchKey: "name"}`. References,
//!   conditions and unification carry it to where the field ends up.
//! - A list in a patch that ends in `...` gets the sibling `{open: "true"}`.
//! - A comprehension over a reference that may be absent is skipped if it is: `if a.b != _|_ for v in a.b {`.

mod declarations;
mod expressions;
mod fields;
mod imports;
mod markers;
pub mod tokens;

#[cfg(test)]
mod tests;

pub use fields::without_field;
pub use imports::{CueImport, function_imports, imports, selected};
pub use tokens::SyntaxError;

use declarations::Parser;
use tokens::{Token, TokenKind, Tokens, tokenize};

/// The name of the definition that declares `parameter` in a strict template: a definition is closed at all levels.
pub const PARAMETER: &str = "#velaParameter";
/// The prefix of the label that holds the markers of a field.
pub const MARKER: &str = "$+";
/// A resource of the API server is not larger.
const MAX_TEMPLATE_BYTES: usize = 1024 * 1024;
/// Nesting of brackets in a template. Built-in definitions stay below 20.
const MAX_NESTING: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Component,
    Trait,
    /// A template of `status`: details, health policy or custom status.
    Status,
}

#[derive(Debug)]
pub struct Scan {
    /// Import declarations, which CUE allows only at the top of a file.
    pub imports: String,
    /// The template without imports, rewritten.
    pub body: String,
    /// The body with `_` for marked values, if lists of the patch constrain elements and other fields have markers.
    pub unmarked: Option<String>,
    /// The names that the template selects from `context`.
    pub context: ContextNames,
    /// Labels of top-level fields without a condition.
    pub fields: Vec<String>,
    /// Labels of top-level fields with the attribute `@local` or `@private`.
    pub private: Vec<String>,
    pub has_markers: bool,
    /// Returns true if the template sets the field `patch`, and reads it nowhere.
    pub only_sets_patch: bool,
    /// Returns true if the declaration of `parameter` has become the definition [`PARAMETER`].
    pub closes_parameter: bool,
}

impl Scan {
    /// Returns true if the template has this top-level field, whatever its parameters are.
    #[must_use]
    pub fn has_field(&self, label: &str) -> bool {
        self.fields.iter().any(|field| field == label)
    }
}

/// The names that a template selects from `context`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContextNames {
    All,
    Only(Vec<String>),
}

impl ContextNames {
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|one| one == name),
        }
    }

    fn of(template: &str, tokens: &[Token]) -> Self {
        let text = |token: &Token| &template[token.start..token.end];
        let mut names = Vec::new();
        for (index, token) in tokens.iter().enumerate() {
            let is_selected = index > 0 && text(&tokens[index - 1]) == ".";
            if token.kind != TokenKind::Word || text(token) != "context" || is_selected {
                continue;
            }
            match tokens.get(index + 1..) {
                Some([dot, name, ..]) if text(dot) == "." && name.kind == TokenKind::Word => {
                    names.push(text(name).to_owned())
                }
                _ => return Self::All,
            }
        }
        names.sort_unstable();
        names.dedup();
        Self::Only(names)
    }
}

/// Scans a template for evaluation. A strict template rejects parameters that it does not declare.
///
/// # Errors
///
/// Literals and brackets that don't match, sources beyond the limits, and markers on a pattern.
pub fn scan(template: &str, role: Role, is_strict: bool) -> Result<Scan, SyntaxError> {
    let tokens = tokenize(template)?;
    let declarations = Parser::new(template, &tokens, role).run()?;
    let has_markers = !declarations.markers.is_empty();
    let closes_parameter = is_strict && !declarations.parameters.is_empty();
    let mut common = vec![&declarations.removals, &declarations.guards];
    if closes_parameter {
        common.push(&declarations.parameters);
    }
    let apply_with = |edits: &[&Vec<Edit>]| apply(template, common.iter().chain(edits).copied().flatten());
    let mut edits = vec![&declarations.markers, &declarations.open_in_outputs];
    if has_markers {
        edits.push(&declarations.open_in_patch);
    }
    let body = apply_with(&edits);
    let unmarked =
        (has_markers && declarations.constrains_elements).then(|| apply_with(&[&declarations.marked_values]));
    Ok(Scan {
        imports: declarations.imports,
        body,
        unmarked,
        context: ContextNames::of(template, &tokens.tokens),
        fields: declarations.fields,
        private: declarations.private,
        has_markers,
        only_sets_patch: only_sets_patch(template, &tokens.tokens),
        closes_parameter,
    })
}

fn only_sets_patch(template: &str, tokens: &[Token]) -> bool {
    let text = |index: usize| tokens.get(index).map_or("", |token| &template[token.start..token.end]);
    let is_patch = |index: &usize| text(*index) == "patch" && (*index == 0 || text(index - 1) != ".");
    let mut uses = (0..tokens.len()).filter(is_patch).peekable();
    uses.peek().is_some() && uses.all(|index| text(index + 1) == ":")
}

/// Returns the names that a template selects from `context`, or [`ContextNames::All`] if it can't tell.
#[must_use]
pub fn context_names(template: &str) -> ContextNames {
    tokenize(template).map_or(ContextNames::All, |tokens| ContextNames::of(template, &tokens.tokens))
}

/// Returns true if a template may read the status of the workload from `context`, however it spells that.
#[must_use]
pub fn reads_output_status(template: &str) -> bool {
    let Ok(Tokens { tokens, .. }) = tokenize(template) else {
        return false;
    };
    let is_status = |token: &Token| match token.kind {
        TokenKind::Word => &template[token.start..token.end] == "status",
        TokenKind::Text => template[token.start..token.end].contains("status"),
        _ => false,
    };
    ContextNames::of(template, &tokens).contains("output") && tokens.iter().any(is_status)
}

/// A replacement of a part of the source.
#[derive(Debug)]
pub struct Edit {
    pub start: usize,
    pub end: usize,
    pub text: String,
}

/// Applies edits. Drops an edit inside another.
fn apply<'a>(source: &str, edits: impl IntoIterator<Item = &'a Edit>) -> String {
    let mut edits: Vec<&Edit> = edits.into_iter().collect();
    edits.sort_by_key(|edit| edit.start);
    let mut result = String::with_capacity(source.len());
    let mut at = 0;
    for edit in edits {
        if edit.start < at {
            continue;
        }
        result.push_str(&source[at..edit.start]);
        result.push_str(&edit.text);
        at = edit.end;
    }
    result.push_str(&source[at..]);
    result
}
