//! Removes fields from CUE source.

use std::ops::Range;

use super::tokens::{SyntaxError, Token, TokenKind, tokenize};
use super::{Edit, apply};

/// Removes the field at a dotted path. It is left if a value on the way is not a struct literal.
///
/// # Errors
///
/// Literals and brackets that don't match, and sources beyond the limits.
pub fn without_field(source: &str, path: &str) -> Result<String, SyntaxError> {
    let tokens = tokenize(source)?.tokens;
    let finder = Finder {
        source,
        tokens: &tokens,
    };
    let mut edits = Vec::new();
    finder.find(finder.inner(0..tokens.len()), path, "", &mut edits);
    Ok(apply(source, &edits))
}

struct Finder<'a> {
    source: &'a str,
    tokens: &'a [Token],
}

impl Finder<'_> {
    /// Adds edits that remove the field from the declarations in a range of tokens. The recursion is as deep as the path.
    fn find(&self, range: Range<usize>, path: &str, replacement: &str, edits: &mut Vec<Edit>) {
        let (name, rest) = match path.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (path, None),
        };
        let mut at = range.start;
        while at < range.end {
            let end = self.end_of_declaration(at, range.end);
            if let Some(value) = self.value_of(at..end, name) {
                match rest {
                    Some(rest) => {
                        let inner = self.inner(value.clone());
                        // `a: b: 1` without `b: 1` would take the next line as the value of `a`.
                        let replacement = if inner == value { "{}" } else { "" };
                        self.find(inner, rest, replacement, edits);
                    }
                    None => edits.extend(self.removal(at..end, replacement)),
                }
            }
            at = end + 1;
        }
    }

    fn kind(&self, at: usize) -> Option<TokenKind> {
        self.tokens.get(at).map(|token| token.kind)
    }

    fn text(&self, at: usize) -> &str {
        let text = self.tokens.get(at).map(|token| &self.source[token.start..token.end]);
        text.unwrap_or_default()
    }

    /// Returns the index of the comma that ends a declaration, or of the end.
    fn end_of_declaration(&self, start: usize, end: usize) -> usize {
        let mut at = start;
        while at < end {
            match self.tokens.get(at) {
                Some(token) if token.kind == TokenKind::Comma => return at,
                Some(token) if matches!(token.kind, TokenKind::Open | TokenKind::TextStart) => {
                    at = token.partner.max(at) + 1
                }
                _ => at += 1,
            }
        }
        end
    }

    /// Returns the tokens of the value, if the declaration is a field of this name.
    fn value_of(&self, declaration: Range<usize>, name: &str) -> Option<Range<usize>> {
        let label = self.text(declaration.start);
        let is_field = match self.kind(declaration.start)? {
            TokenKind::Word => label == name,
            TokenKind::Text => serde_json::from_str::<String>(label).is_ok_and(|label| label == name),
            _ => false,
        };
        let value = declaration.start + 2..declaration.end;
        (is_field && self.text(declaration.start + 1) == ":" && !value.is_empty()).then_some(value)
    }

    /// Returns the tokens inside the braces, if a range is one struct literal.
    fn inner(&self, range: Range<usize>) -> Range<usize> {
        let is_comma = |at: &usize| self.kind(*at) == Some(TokenKind::Comma);
        let first = range.clone().find(|at| !is_comma(at));
        let last = range.clone().rfind(|at| !is_comma(at));
        match (first, last) {
            (Some(first), Some(last)) if self.text(first) == "{" && self.partner(first) == last => first + 1..last,
            _ => range,
        }
    }

    fn partner(&self, at: usize) -> usize {
        self.tokens.get(at).map_or(at, |token| token.partner)
    }

    /// Returns the edit that removes a declaration with its comma, or replaces it.
    fn removal(&self, declaration: Range<usize>, replacement: &str) -> Option<Edit> {
        let comma = self
            .tokens
            .get(declaration.end)
            .filter(|token| token.kind == TokenKind::Comma);
        let comma = comma.filter(|_| replacement.is_empty());
        let last = comma.or_else(|| self.tokens.get(declaration.end.checked_sub(1)?))?;
        Some(Edit {
            start: self.tokens.get(declaration.start)?.start,
            end: last.end,
            text: replacement.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("a: 1\nb: 2\n", "a", "\nb: 2\n")]
    #[case::quoted("\"my-a\": {\n\tx: 1\n}\nb: 2", "my-a", "\nb: 2")]
    #[case::in_braces("{\n\ta: 1\n\tb: 2\n}", "b", "{\n\ta: 1\n\t\n}")]
    #[case::json(r#"{"a": 1, "b": {"a": 2}}"#, "a", r#"{ "b": {"a": 2}}"#)]
    #[case::nested("a: {\n\tb: 1\n\tc: 2\n}", "a.b", "a: {\n\t\n\tc: 2\n}")]
    #[case::shorthand("a: b: 1\nc: 2", "a.b", "a: {}\nc: 2")]
    #[case::shorthand_with_comma("{a: b: 1, c: 2}", "a.b", "{a: {}, c: 2}")]
    #[case::twice("a: 1\nb: 2\na: 1", "a", "\nb: 2\n")]
    #[case::absent("a: b: 1\n", "b", "a: b: 1\n")]
    #[case::not_a_struct("a: 1\n", "a.b", "a: 1\n")]
    #[case::text_that_looks_like_a_field("a: \"b: 1, c: 2\"\nb: 1\n", "b", "a: \"b: 1, c: 2\"\n\n")]
    #[case::empty("\n", "a", "\n")]
    fn a_field_is_removed_and_others_stay(#[case] source: &str, #[case] path: &str, #[case] expected: &str) {
        assert_eq!(without_field(source, path).unwrap(), expected);
    }

    #[test]
    fn invalid_source_is_an_error() {
        assert!(without_field("a: {", "a").is_err());
        assert!(without_field("a: }", "a").is_err());
    }
}
