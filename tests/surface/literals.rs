//! Reads the string literals of the production code, token by token.

use std::fs;
use std::iter::Peekable;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::support::{files_below, project};

/// Prefixes of metric names.
const METRICS: [&str; 13] = [
    "application_phase_number",
    "application_reconcile_time_seconds",
    "apply_component_time_seconds",
    "list_resourcetracker_num",
    "step_duration_ms",
    "workflow_",
    "portolan_",
    "workqueue_",
    "controller_runtime_",
    "rest_client_",
    "leader_election_",
    "kubevela_",
    "process_",
];

/// A string literal of the source.
pub enum Literal {
    /// The name of a metric as it is registered, and the text behind it.
    Metric { name: String, help: String },
    /// Any other.
    Text(String),
}

/// Returns the literals of all files below `src/`, without tests, doc comments and attributes other than `#[error]`.
pub fn literals_of_source() -> Vec<Literal> {
    let mut literals = Vec::new();
    for (_, tokens) in source() {
        collect(tokens, &mut literals);
    }
    literals
}

/// Returns the tokens of all files below `src/`, without tests, by their path there.
pub fn source() -> Vec<(PathBuf, TokenStream)> {
    let root = project("src");
    let mut files = files_below(&root, "rs");
    files.retain(|file| !is_test(file.strip_prefix(&root).unwrap()));
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            let tokens = text
                .parse()
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            (file.strip_prefix(&root).unwrap().to_owned(), tokens)
        })
        .collect()
}

/// Returns true for a file of tests, or in a directory of tests.
fn is_test(file: &Path) -> bool {
    let file = file.with_extension("");
    let mut names = file.iter().map(|name| name.to_str().unwrap());
    names.any(|name| name == "tests" || name.ends_with("_tests"))
}

fn collect(tokens: TokenStream, literals: &mut Vec<Literal>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => attribute(&mut tokens, literals),
            TokenTree::Group(group) => collect(group.stream(), literals),
            TokenTree::Literal(literal) => {
                let Some(text) = unquoted(&literal.to_string()) else {
                    continue;
                };
                let is_first = is_comma(tokens.peek());
                let literal = match is_first && METRICS.iter().any(|prefix| text.starts_with(prefix)) {
                    true => Literal::Metric {
                        name: text,
                        help: help(&mut tokens, literals),
                    },
                    false => Literal::Text(text),
                };
                literals.push(literal);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

fn is_comma(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ',')
}

/// Returns the help text of a metric, the argument after its name: a literal, or a variable `…help` with the literal
/// before. Empty for other variables.
fn help(tokens: &mut Peekable<impl Iterator<Item = TokenTree>>, literals: &mut Vec<Literal>) -> String {
    tokens.next();
    let is_help = |token: &TokenTree| matches!(token, TokenTree::Literal(_)) || token.to_string().ends_with("help");
    let argument = tokens.next_if(is_help);
    match argument {
        Some(TokenTree::Literal(literal)) => unquoted(&literal.to_string()).unwrap_or_default(),
        Some(_) => match literals.pop() {
            Some(Literal::Text(help)) => help,
            other => panic!("no text before the variable `help`: {}", other.is_some()),
        },
        None => String::new(),
    }
}

/// Reads on behind a `#`: takes the text of `#[error("…")]`, and skips the module behind `#[cfg(test)]`.
fn attribute(tokens: &mut Peekable<impl Iterator<Item = TokenTree>>, literals: &mut Vec<Literal>) {
    tokens.next_if(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '!'));
    let Some(TokenTree::Group(group)) = tokens.next_if(|token| matches!(token, TokenTree::Group(_))) else {
        return;
    };
    let text = group.stream().to_string();
    if text.starts_with("error") {
        collect(group.stream(), literals);
    } else if text.replace(' ', "") == "cfg(test)" {
        for token in tokens.by_ref() {
            let is_end = match &token {
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                TokenTree::Punct(punct) => punct.as_char() == ';',
                _ => false,
            };
            if is_end {
                return;
            }
        }
    }
}

/// Returns the content of a string literal, with its line continuations joined; nothing for numbers, bytes and characters.
pub fn unquoted(literal: &str) -> Option<String> {
    if let Some(raw) = literal.strip_prefix('r') {
        return Some(raw.trim_matches('#').trim_matches('"').to_owned());
    }
    let text = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    Some(
        lines
            .fold(first, |text, line| text + line.trim_start())
            .replace('\n', "\\n"),
    )
}
