//! The reasons of conditions and the texts of errors, read from the source: `docs/reference/reasons.md` and `errors.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use proc_macro2::{Delimiter, TokenTree};

use super::calls::Calls;
use super::literals::source;
use super::tokens::{group, ident, is_punct, strings, tokens_of};
use super::{is_camel_case, is_sentence};

const REASONS: &str = "\
# Reasons

*For users who see a reason in a condition, an event or `portolan status`. Generated from the error types in the code by \
`UPDATE_EXPECT=1 make test ARGS=surface`.*

`…` and names in braces stand for what differs. An error that is retried is retried with a backoff; others wait for the next \
tick, a change or a request. *Depends* means that the response or the database decides. Conditions are in \
[AppRepository](repositories.md#status), [Application](applications.md#status) and \
[KubeVela's Applications](kubevela.md#phases).
";

const ERRORS: &str = "\
# Error texts

*For users who look for a message. Generated from the error types in the code by `UPDATE_EXPECT=1 make test ARGS=surface`.*

`…` and names in braces stand for what differs. Messages that wrap another one are left out. [Reasons](reasons.md) has \
those with a reason, [Troubleshooting](../how-to/troubleshooting.md) what to do about the common ones.
";

/// The errors of a file: variants of enums, or structs, with their texts.
#[derive(Default)]
struct File {
    /// Texts of `#[error]` by the name of the enum and the variant; the variant is empty for a struct.
    texts: BTreeMap<(String, String), String>,
    /// Results of the function `reason` of a type, by variant.
    reasons: BTreeMap<(String, String), BTreeSet<String>>,
    /// Results of the function `is_transient` of a type, by variant.
    retried: BTreeMap<(String, String), Retried>,
    /// Words in CamelCase in each function.
    words: BTreeMap<String, BTreeSet<String>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Retried {
    Yes,
    No,
    Depends,
}

/// Returns the text of an attribute `#[error("…")]`.
fn error_text(attribute: &[TokenTree]) -> Option<String> {
    if ident(attribute.first())? != "error" {
        return None;
    }
    let mut found = Vec::new();
    strings(&group(attribute.get(1), Delimiter::Parenthesis)?, &mut found);
    found.into_iter().next()
}

/// Returns the texts of the variants of an enum.
fn variants(body: &[TokenTree]) -> Vec<(String, String)> {
    let mut variants = Vec::new();
    let mut text = None;
    for token in body {
        if let Some(attribute) = group(Some(token), Delimiter::Bracket) {
            text = error_text(&attribute).or(text);
        } else if let Some(name) = ident(Some(token)) {
            variants.extend(text.take().map(|text| (name, text)));
        }
    }
    variants
}

/// Returns the arms of the first `match` of a body: the variants, and the tokens of the result.
fn arms(body: &[TokenTree]) -> Vec<(Vec<String>, Vec<TokenTree>)> {
    let start = body
        .iter()
        .position(|token| ident(Some(token)).as_deref() == Some("match"));
    let arms = start.and_then(|start| {
        body[start..]
            .iter()
            .find_map(|token| group(Some(token), Delimiter::Brace))
    });
    let (arms, mut found) = (arms.unwrap_or_default(), Vec::new());
    let mut at = 0;
    while at < arms.len() {
        let Some(arrow) = (at..arms.len()).find(|at| is_punct(arms.get(*at), '=') && is_punct(arms.get(at + 1), '>'))
        else {
            break;
        };
        let is_end = |at: &usize| is_punct(arms.get(*at), ',') || group(arms.get(*at), Delimiter::Brace).is_some();
        let end = (arrow + 2..arms.len()).find(is_end).unwrap_or(arms.len());
        let result = arms[arrow + 2..arms.len().min(end + 1)].to_vec();
        found.push((variants_named(&arms[at..arrow]), result));
        at = end + 1;
    }
    found
}

/// Returns the names after `Self::`.
fn variants_named(pattern: &[TokenTree]) -> Vec<String> {
    let is_self = |at: &usize| ident(pattern.get(*at)).as_deref() == Some("Self");
    let after = (0..pattern.len()).filter(is_self);
    after.filter_map(|at| ident(pattern.get(at + 3))).collect()
}

impl File {
    fn read(&mut self, tokens: &[TokenTree]) {
        let mut text = None;
        for (at, token) in tokens.iter().enumerate() {
            let word = ident(Some(token)).unwrap_or_default();
            if let Some(attribute) = group(Some(token), Delimiter::Bracket) {
                text = error_text(&attribute).or(text);
            } else if let Some(inner) = group(Some(token), Delimiter::Brace) {
                self.read(&inner);
            } else if let ("enum" | "struct", Some(name)) = (word.as_str(), ident(tokens.get(at + 1))) {
                let body = tokens[at..]
                    .iter()
                    .find_map(|token| group(Some(token), Delimiter::Brace));
                if let Some(text) = text.take() {
                    self.texts.insert((name.clone(), String::new()), text);
                }
                if word == "enum" {
                    for (variant, text) in variants(&body.unwrap_or_default()) {
                        self.texts.insert((name.clone(), variant), text);
                    }
                }
            } else if word == "impl" {
                let header = tokens[at + 1..]
                    .iter()
                    .take_while(|token| group(Some(token), Delimiter::Brace).is_none());
                let header: Vec<String> = header.map(ToString::to_string).collect();
                let name = header
                    .iter()
                    .rev()
                    .find(|word| word.len() > 1 && word.starts_with(char::is_uppercase));
                let body = tokens[at..]
                    .iter()
                    .find_map(|token| group(Some(token), Delimiter::Brace));
                if let (Some(name), Some(body)) = (name, body) {
                    self.functions(name, &body);
                }
            } else if word == "fn" {
                self.function("", &tokens[at + 1..]);
            }
        }
    }

    fn functions(&mut self, name: &str, body: &[TokenTree]) {
        for (at, token) in body.iter().enumerate() {
            if ident(Some(token)).as_deref() == Some("fn") {
                self.function(name, &body[at + 1..]);
            }
        }
    }

    fn function(&mut self, name: &str, rest: &[TokenTree]) {
        let function = ident(rest.first()).unwrap_or_default();
        let body = rest.iter().find_map(|token| group(Some(token), Delimiter::Brace));
        let body = body.unwrap_or_default();
        match (name, function.as_str()) {
            ("", _) => {
                let mut found = Vec::new();
                strings(&body, &mut found);
                let words = found.into_iter().filter(|word| is_camel_case(word));
                self.words.entry(function).or_default().extend(words);
            }
            (_, "reason") => {
                for (variants, result) in arms(&body) {
                    let words = self.results(&result);
                    for variant in variants {
                        self.reasons.insert((name.to_owned(), variant), words.clone());
                    }
                }
            }
            (_, "is_transient") => self.transient(name, &body),
            _ => {}
        }
    }

    /// Returns the words of a result. A function is named with an exclamation mark until all functions are known.
    fn results(&self, result: &[TokenTree]) -> BTreeSet<String> {
        let mut found = Vec::new();
        strings(result, &mut found);
        let mut words: BTreeSet<String> = found.into_iter().filter(|word| is_camel_case(word)).collect();
        if words.is_empty() {
            words.extend(ident(result.first()).map(|function| format!("!{function}")));
        }
        words
    }

    fn transient(&mut self, name: &str, body: &[TokenTree]) {
        for (variants, result) in arms(body) {
            let retried = match result.first().map(ToString::to_string).as_deref() {
                Some("true") => Retried::Yes,
                Some("false") => Retried::No,
                _ => Retried::Depends,
            };
            for variant in variants {
                self.retried.insert((name.to_owned(), variant), retried);
            }
        }
        if ident(body.first()).as_deref() == Some("matches") {
            let pattern = group(body.get(2), Delimiter::Parenthesis).unwrap_or_default();
            let has_guard = pattern.iter().any(|token| ident(Some(token)).as_deref() == Some("if"));
            let retried = if has_guard { Retried::Depends } else { Retried::Yes };
            for variant in variants_named(&pattern) {
                self.retried.insert((name.to_owned(), variant), retried);
            }
            self.retried.insert((name.to_owned(), String::new()), Retried::No);
        }
    }

    /// Returns the rows of the table of reasons: reason, whether it is retried, and message.
    fn rows(&self) -> BTreeSet<(String, &'static str, String)> {
        let mut rows = BTreeSet::new();
        for ((name, variant), words) in &self.reasons {
            let text = self
                .texts
                .get(&(name.clone(), variant.clone()))
                .map_or("", String::as_str);
            let text = if is_sentence(text) { shown(text) } else { String::new() };
            let of_others = (name.clone(), String::new());
            let retried = self
                .retried
                .get(&(name.clone(), variant.clone()))
                .or(self.retried.get(&of_others));
            let retried = match retried {
                Some(Retried::Yes) => "yes",
                Some(Retried::Depends) => "depends",
                Some(Retried::No) | None => "no",
            };
            for word in words {
                let called = word.strip_prefix('!').and_then(|function| self.words.get(function));
                let named = called
                    .into_iter()
                    .flatten()
                    .chain((!word.starts_with('!')).then_some(word));
                rows.extend(named.map(|word| (word.clone(), retried, text.clone())));
            }
        }
        rows
    }
}

/// Returns a text as a cell of a table, with an ellipsis for what has no name.
fn shown(text: &str) -> String {
    let unnamed = regex::Regex::new(r"\{(?:\d*(?::[^}]*)?)\}").unwrap();
    let formatted = regex::Regex::new(r"\{([a-z_]+):[^}]*\}").unwrap();
    let text = unnamed.replace_all(text, "…");
    let text = formatted.replace_all(&text, "{$1}");
    let text = text.replace("{{", "{").replace("}}", "}").replace("\\\"", "\"");
    text.replace('|', "\\|").replace('<', "\\<").replace('*', "\\*")
}

/// Returns the errors of the source by the module that a reader knows: the directory, or two below `controllers`.
fn modules() -> BTreeMap<String, Vec<File>> {
    let mut modules: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for (path, tokens) in source() {
        let mut file = File::default();
        file.read(&tokens_of(&tokens));
        modules.entry(module(&path)).or_default().push(file);
    }
    modules
}

fn module(path: &Path) -> String {
    let parts: Vec<_> = path.with_extension("").iter().map(PathBuf::from).collect();
    let count = if parts[0] == Path::new("controllers") { 2 } else { 1 };
    let parts: Vec<String> = parts
        .iter()
        .take(count)
        .map(|part| part.display().to_string())
        .collect();
    parts.join("/")
}

/// Returns the tables of reasons that stand in calls.
fn reasons_of_calls() -> String {
    let mut controllers: BTreeMap<String, Calls> = BTreeMap::new();
    for (path, tokens) in source() {
        let module = module(&path);
        // The conditions of KubeVela's Applications are named by its types.
        let module = if module == "api" {
            "controllers/oam".to_owned()
        } else {
            module
        };
        controllers.entry(module).or_default().read(&tokens_of(&tokens));
    }
    let mut text = "\n## Conditions of KubeVela's Applications\n\n| condition | reasons |\n|---|---|\n".to_owned();
    let quoted = |words: &BTreeSet<&str>| {
        words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    for (condition, reasons) in controllers["controllers/oam"].conditions() {
        writeln!(text, "| `{condition}` | {} |", quoted(&reasons)).unwrap();
    }
    text.push_str("\n## Events\n\nEvents with a reason that is computed, such as that of an error, are left out.\n\n");
    text.push_str("| controller | type | reason |\n|---|---|---|\n");
    for (module, calls) in &controllers {
        let Some(controller) = module.strip_prefix("controllers/") else {
            continue;
        };
        for (reason, type_) in &calls.events {
            writeln!(text, "| {controller} | {type_} | `{reason}` |").unwrap();
        }
    }
    text
}

#[test]
fn the_page_of_reasons_is_as_generated() {
    let mut page = REASONS.to_owned();
    let mut count = 0;
    for (module, files) in modules() {
        let rows: BTreeSet<_> = files.iter().flat_map(File::rows).collect();
        if rows.is_empty() {
            continue;
        }
        count += rows.len();
        let described: BTreeSet<String> = rows
            .iter()
            .filter(|row| !row.2.is_empty())
            .map(|row| row.0.clone())
            .collect();
        write!(page, "\n## {module}\n\n| reason | retried | message |\n|---|---|---|\n").unwrap();
        // A message that only wraps another adds nothing to one of its own.
        let has_text = |(reason, _, text): &(String, _, String)| !text.is_empty() || !described.contains(reason);
        for (reason, retried, text) in rows.into_iter().filter(has_text) {
            writeln!(page, "| `{reason}` | {retried} | {text} |").unwrap();
        }
    }
    assert!(count > 60, "{count} reasons");
    page.push_str(&reasons_of_calls());
    expect_file!["../../docs/reference/reasons.md"].assert_eq(&page);
}

#[test]
fn the_page_of_error_texts_is_as_generated() {
    let mut page = ERRORS.to_owned();
    let mut count = 0;
    for (module, files) in modules() {
        let texts = files.iter().flat_map(|file| file.texts.values());
        let texts: BTreeSet<String> = texts.filter(|text| is_sentence(text)).map(|text| shown(text)).collect();
        if texts.is_empty() {
            continue;
        }
        count += texts.len();
        write!(page, "\n## {module}\n\n").unwrap();
        for text in texts {
            writeln!(page, "- {text}").unwrap();
        }
    }
    assert!(count > 150, "{count} texts");
    expect_file!["../../docs/reference/errors.md"].assert_eq(&page);
}

#[test]
fn reasons_are_read_by_variant() {
    let source = r##"
        enum Error<E> {
            #[error("no {0:?} in {place}")]
            A(String),
            /// Of the server.
            #[error("{host} has sent {}; {}", status, advice(status))]
            B { status: u16 },
            C(E),
        }
        impl<E> Error<E> {
            fn reason(&self) -> &'static str {
                match self {
                    Self::A(_) | Self::C(_) => "NotFound",
                    Self::B { status } => word(*status),
                }
            }
            fn is_transient(&self) -> bool {
                matches!(self, Self::B { status } if *status > 499)
            }
        }
        fn word(status: u16) -> &'static str {
            match status { 500.. => "ServerError", _ => "Unexpected" }
        }
    "##;
    let mut file = File::default();
    file.read(&tokens_of(&source.parse().unwrap()));
    let rows: Vec<(String, &str, String)> = file.rows().into_iter().collect();
    let rows: Vec<_> = rows
        .iter()
        .map(|(reason, retried, text)| (reason.as_str(), *retried, text.as_str()))
        .collect();
    let expected = [
        ("NotFound", "no", ""),
        ("NotFound", "no", "no … in {place}"),
        ("ServerError", "depends", "{host} has sent …; …"),
        ("Unexpected", "depends", "{host} has sent …; …"),
    ];
    assert_eq!(rows, expected);
}
