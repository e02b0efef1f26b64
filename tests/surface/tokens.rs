//! Parts of the source as tokens.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::literals::unquoted;

pub fn tokens_of(stream: &TokenStream) -> Vec<TokenTree> {
    stream.clone().into_iter().collect()
}

pub fn is_punct(token: Option<&TokenTree>, expected: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == expected)
}

pub fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
        _ => None,
    }
}

pub fn group(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<Vec<TokenTree>> {
    match token {
        Some(TokenTree::Group(group)) if group.delimiter() == delimiter => Some(tokens_of(&group.stream())),
        _ => None,
    }
}

/// Returns all string literals of tokens, also in groups.
pub fn strings(tokens: &[TokenTree], found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Literal(literal) => found.extend(unquoted(&literal.to_string())),
            TokenTree::Group(group) => strings(&tokens_of(&group.stream()), found),
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}
