//! Reads expressions, as far as they hold declarations: split by brackets and commas.

use super::declarations::{Ending, FieldPlace, Parser, Region};
use super::tokens::TokenKind;
use super::{Edit, SyntaxError};

impl Parser<'_> {
    /// Reads clauses and the body of a comprehension.
    pub(super) fn comprehension(&mut self, place: FieldPlace, guards: bool) -> Result<(), SyntaxError> {
        loop {
            let clause = self.at;
            self.at += 1;
            let mut source = self.at;
            while !self.ends_clause() {
                if self.text(self.at) == "in" {
                    source = self.at + 1;
                }
                self.operand(FieldPlace { is_top: false, ..place })?;
            }
            if guards && self.text(clause) == "for" {
                self.guard(clause, source);
            }
            if !self.is_clause_word() {
                break;
            }
        }
        if self.text(self.at) == "{" {
            self.at += 1;
            self.declarations(FieldPlace {
                is_conditional: true,
                ..place
            })?;
            self.at += 1;
        }
        self.expression(FieldPlace { is_top: false, ..place })
    }

    fn is_clause_word(&self) -> bool {
        self.is_word(self.at) && matches!(self.text(self.at), "if" | "for" | "let")
    }

    /// Returns true at the body, at the next clause, and where the comprehension is broken off.
    fn ends_clause(&self) -> bool {
        let follows_operand = self.at.checked_sub(1).is_some_and(|before| match self.kind(before) {
            Some(TokenKind::Number | TokenKind::Text | TokenKind::TextEnd | TokenKind::Close) => true,
            Some(TokenKind::Word) => !matches!(self.text(before), "in" | "if" | "for" | "let"),
            _ => false,
        });
        match self.kind(self.at) {
            None | Some(TokenKind::Close | TokenKind::TextEnd | TokenKind::TextMiddle) => true,
            // `for k, v in …` has a comma; a line end after an operand has not.
            Some(TokenKind::Comma) => self.token(self.at).is_some_and(|token| token.start == token.end),
            Some(_) => follows_operand && (self.text(self.at) == "{" || self.is_clause_word()),
        }
    }

    /// Guards a clause whose source is a reference, such as `parameter.ports`.
    fn guard(&mut self, clause: usize, source: usize) {
        let is_reference = self.at > source
            && (source..self.at).all(|index| {
                let is_name = (index - source).is_multiple_of(2);
                if is_name {
                    self.is_word(index)
                } else {
                    self.text(index) == "."
                }
            })
            && (self.at - source) % 2 == 1;
        let (Some(start), Some(first), Some(last)) = (self.token(clause), self.token(source), self.token(self.at - 1))
        else {
            return;
        };
        if is_reference {
            self.guards.push(Edit {
                start: start.start,
                end: start.start,
                text: format!("if {} != _|_ ", &self.source[first.start..last.end]),
            });
        }
    }

    /// Reads a value. If it is nothing but a list literal, returns how the list ends.
    pub(super) fn value(&mut self, place: FieldPlace) -> Result<Ending, SyntaxError> {
        let mut ending = Ending::Closed;
        if self.text(self.at) == "[" {
            ending = self.list(place)?;
            let is_whole = matches!(self.kind(self.at), None | Some(TokenKind::Comma | TokenKind::Close))
                || self.text(self.at) == "@";
            if !is_whole {
                ending = Ending::Closed;
            }
        }
        self.expression(place)?;
        Ok(ending)
    }

    /// Reads operands up to a comma or a closing bracket.
    pub(super) fn expression(&mut self, place: FieldPlace) -> Result<(), SyntaxError> {
        while !matches!(
            self.kind(self.at),
            None | Some(TokenKind::Comma | TokenKind::Close | TokenKind::TextEnd | TokenKind::TextMiddle)
        ) {
            self.operand(place)?;
        }
        Ok(())
    }

    /// Reads one token, with all that is inside if it opens a bracket.
    fn operand(&mut self, place: FieldPlace) -> Result<(), SyntaxError> {
        match (self.kind(self.at), self.text(self.at)) {
            (Some(TokenKind::Open), "{") => {
                self.at += 1;
                self.declarations(FieldPlace { is_top: false, ..place })?;
            }
            (Some(TokenKind::Open), "[") => {
                self.list(place)?;
                return Ok(());
            }
            (Some(TokenKind::Open), _) => {
                self.at += 1;
                self.elements(place)?;
            }
            (Some(TokenKind::TextStart), _) => {
                self.at += 1;
                self.elements(place)?;
                while self.kind(self.at) == Some(TokenKind::TextMiddle) {
                    self.at += 1;
                    self.elements(place)?;
                }
            }
            _ => {}
        }
        self.at += 1;
        Ok(())
    }

    /// Reads expressions separated by commas, up to a closing bracket.
    fn elements(&mut self, place: FieldPlace) -> Result<(), SyntaxError> {
        loop {
            self.skip_commas();
            if matches!(
                self.kind(self.at),
                None | Some(TokenKind::Close | TokenKind::TextEnd | TokenKind::TextMiddle)
            ) {
                return Ok(());
            }
            self.expression(place)?;
        }
    }

    /// Reads a list, or an index.
    fn list(&mut self, place: FieldPlace) -> Result<Ending, SyntaxError> {
        let mut ending = Ending::Closed;
        let mut count = 0;
        self.at += 1;
        loop {
            self.skip_commas();
            if matches!(
                self.kind(self.at),
                None | Some(TokenKind::Close | TokenKind::TextEnd | TokenKind::TextMiddle)
            ) {
                self.at += 1;
                return Ok(ending);
            }
            ending = Ending::Closed;
            if self.is_clause_word() {
                self.comprehension(FieldPlace { is_top: false, ..place }, false)?;
            } else if self.text(self.at) == "..." {
                self.at += 1;
                let is_plain = matches!(self.kind(self.at), None | Some(TokenKind::Comma | TokenKind::Close));
                ending = if is_plain {
                    Ending::Open
                } else {
                    Ending::Constrained { is_only: count == 0 }
                };
                self.constrains_elements |= !is_plain && place.region == Region::Patch;
                self.expression(place)?;
            } else {
                self.expression(place)?;
            }
            count += 1;
        }
    }
}
