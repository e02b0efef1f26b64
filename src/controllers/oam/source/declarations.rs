//! A parser of CUE declarations that finds what [`super::scan`] rewrites.

use super::tokens::{Comment, SyntaxError, Token, TokenKind, Tokens};
use super::{Edit, PARAMETER, Role};

/// The rules that apply at a place in the template.
#[derive(Clone, Copy)]
pub(super) struct FieldPlace {
    pub(super) is_top: bool,
    pub(super) is_conditional: bool,
    pub(super) allows_markers: bool,
    pub(super) region: Region,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Region {
    Patch,
    PatchOutputs,
    Outputs,
    Other,
}

#[derive(Clone, Copy)]
pub(super) struct FieldLabel {
    /// Returns false for an expression in parentheses and for a pattern.
    pub(super) is_literal: bool,
    pub(super) is_optional: bool,
    pub(super) start: usize,
    pub(super) end: usize,
    /// The index of the token after the colon.
    next: usize,
}

/// The last element of a list literal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Closed,
    Open,
    /// `...` with a constraint on further elements.
    Constrained {
        is_only: bool,
    },
}

pub struct Parser<'a> {
    pub(super) source: &'a str,
    tokens: &'a [Token],
    pub(super) comments: &'a [Comment],
    role: Role,
    pub(super) at: usize,
    pub imports: String,
    pub fields: Vec<String>,
    pub private: Vec<String>,
    pub removals: Vec<Edit>,
    pub guards: Vec<Edit>,
    pub markers: Vec<Edit>,
    pub marked_values: Vec<Edit>,
    pub open_in_patch: Vec<Edit>,
    pub open_in_outputs: Vec<Edit>,
    /// Renames the top-level field `parameter`.
    pub parameters: Vec<Edit>,
    /// Returns true if a list in `patch` ends in `...` with a constraint.
    pub constrains_elements: bool,
}

impl<'a> Parser<'a> {
    pub fn new(source: &'a str, tokens: &'a Tokens, role: Role) -> Self {
        Self {
            source,
            tokens: &tokens.tokens,
            comments: &tokens.comments,
            role,
            at: 0,
            imports: String::new(),
            fields: Vec::new(),
            private: Vec::new(),
            removals: Vec::new(),
            guards: Vec::new(),
            markers: Vec::new(),
            marked_values: Vec::new(),
            open_in_patch: Vec::new(),
            open_in_outputs: Vec::new(),
            parameters: Vec::new(),
            constrains_elements: false,
        }
    }

    pub fn run(mut self) -> Result<Self, SyntaxError> {
        self.preamble();
        self.declarations(FieldPlace {
            is_top: true,
            is_conditional: false,
            allows_markers: self.role == Role::Trait,
            region: Region::Other,
        })?;
        match self.token(self.at) {
            Some(token) => Err(SyntaxError::at(self.source, token.start, "unexpected closing bracket")),
            None => Ok(self),
        }
    }

    pub(super) fn token(&self, index: usize) -> Option<Token> {
        self.tokens.get(index).copied()
    }

    pub(super) fn kind(&self, index: usize) -> Option<TokenKind> {
        self.token(index).map(|token| token.kind)
    }

    pub(super) fn text(&self, index: usize) -> &'a str {
        self.token(index)
            .map_or("", |token| &self.source[token.start..token.end])
    }

    pub(super) fn is_word(&self, index: usize) -> bool {
        self.kind(index) == Some(TokenKind::Word)
    }

    pub(super) fn skip_commas(&mut self) {
        while self.kind(self.at) == Some(TokenKind::Comma) {
            self.at += 1;
        }
    }

    /// Reads the package clause and the imports.
    fn preamble(&mut self) {
        loop {
            self.skip_commas();
            let first = self.at;
            let last = match (self.text(first), self.token(first + 1)) {
                ("package", Some(name)) if name.kind == TokenKind::Word => first + 1,
                ("import", Some(path)) if path.kind == TokenKind::Text => first + 1,
                ("import", Some(name))
                    if self.kind(first + 2) == Some(TokenKind::Text) && name.kind == TokenKind::Word =>
                {
                    first + 2
                }
                ("import", Some(list)) if list.kind == TokenKind::Open => list.partner,
                _ => return,
            };
            let (Some(start), Some(end)) = (self.token(first), self.token(last)) else {
                return;
            };
            if self.text(first) == "import" {
                self.imports.push_str(&self.source[start.start..end.end]);
                self.imports.push('\n');
            }
            self.removals.push(Edit {
                start: start.start,
                end: end.end,
                // Lines keep their numbers.
                text: self.source[start.start..end.end].matches('\n').collect(),
            });
            self.at = last + 1;
        }
    }

    pub(super) fn declarations(&mut self, place: FieldPlace) -> Result<(), SyntaxError> {
        loop {
            self.skip_commas();
            match self.kind(self.at) {
                None | Some(TokenKind::Close | TokenKind::TextEnd | TokenKind::TextMiddle) => return Ok(()),
                Some(_) => self.declaration(place)?,
            }
        }
    }

    fn declaration(&mut self, place: FieldPlace) -> Result<(), SyntaxError> {
        if let Some(label) = self.label(self.at) {
            return self.field(place, label);
        }
        let guards = place.region != Region::Other;
        match self.text(self.at) {
            "if" | "for" => return self.comprehension(place, guards),
            "let" if self.text(self.at + 2) == "=" => self.at += 3,
            "..." | "@" => self.at += 1,
            _ => {}
        }
        self.expression(FieldPlace { is_top: false, ..place })
    }

    /// Returns the rules for the value of a field: below the top level, the rules of the top-level field.
    fn below(&self, place: FieldPlace, label: &str) -> FieldPlace {
        if !place.is_top {
            return place;
        }
        let is_trait = self.role == Role::Trait;
        FieldPlace {
            is_top: false,
            is_conditional: place.is_conditional,
            allows_markers: place.allows_markers && label != "parameter",
            region: match label {
                "patch" if is_trait => Region::Patch,
                "patchOutputs" if is_trait => Region::PatchOutputs,
                "outputs" if self.role != Role::Status => Region::Outputs,
                _ => Region::Other,
            },
        }
    }

    /// Returns the label that begins at a token, if one does.
    fn label(&self, first: usize) -> Option<FieldLabel> {
        let has_alias = self.is_word(first) && self.text(first + 1) == "=";
        let index = if has_alias { first + 2 } else { first };
        let token = self.token(index)?;
        let last = match token.kind {
            TokenKind::Word | TokenKind::Text => index,
            TokenKind::TextStart => token.partner,
            TokenKind::Open if self.text(index) != "{" => token.partner,
            _ => return None,
        };
        let is_optional = matches!(self.text(last + 1), "?" | "!");
        let colon = last + 1 + usize::from(is_optional);
        (self.text(colon) == ":").then_some(FieldLabel {
            is_literal: token.kind != TokenKind::Open,
            is_optional,
            start: token.start,
            end: self.token(colon - 1)?.end,
            next: colon + 1,
        })
    }

    /// Returns the name of a field, or an empty string for a computed label.
    fn name(&self, label: FieldLabel) -> &'a str {
        let text = self.source[label.start..label.end].trim_end_matches(['?', '!']);
        match text.find(['"', '\'']) {
            _ if !label.is_literal || text.contains('\\') => "",
            Some(_) => text.trim_matches('#').trim_matches(['"', '\'']),
            None => text,
        }
    }

    fn field(&mut self, place: FieldPlace, first: FieldLabel) -> Result<(), SyntaxError> {
        let mut chain = vec![first];
        let start = self.at;
        self.at = first.next;
        while let Some(label) = self.label(self.at) {
            chain.push(label);
            self.at = label.next;
        }
        let name = self.name(first);
        if place.is_top && !place.is_conditional && !first.is_optional {
            self.fields.push(name.to_owned());
        }
        if place.is_top && name == "parameter" {
            self.parameters.push(Edit {
                start: first.start,
                end: first.end,
                text: PARAMETER.to_owned(),
            });
        }
        let inner = self.below(place, name);
        if self.is_word(self.at) && self.text(self.at + 1) == "=" {
            self.at += 2;
        }
        let value = self.at;
        let ending = self.value(inner)?;
        if place.is_top && self.has_private_attribute(value) {
            self.private.push(name.to_owned());
        }
        self.mark(inner, start, &chain, value, ending)
    }

    fn has_private_attribute(&self, value: usize) -> bool {
        let mut index = value;
        while index < self.at {
            if self.text(index) == "@" && matches!(self.text(index + 1), "local" | "private") {
                return true;
            }
            let is_bracket = matches!(self.kind(index), Some(TokenKind::Open | TokenKind::TextStart));
            index = self
                .token(index)
                .map_or(self.at, |token| if is_bracket { token.partner } else { index })
                + 1;
        }
        false
    }
}
