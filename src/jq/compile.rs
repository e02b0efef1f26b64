use std::panic::{AssertUnwindSafe, catch_unwind};

use jaq_core::compile::Undefined;
use jaq_core::load::{self, Arena, File, Loader};
use jaq_core::{Compiler, Filter};

use super::evaluate::Counted;
use super::{FilterError, FilterLimits, JqRule, natives};
use crate::text::{printable, truncate};

pub(super) struct Compiled {
    pub(super) filter: Filter<Counted>,
    pub(super) variables: Vec<String>,
}

pub(super) fn compile(rule: &JqRule, limits: &FilterLimits) -> Result<Compiled, FilterError> {
    check_size(rule, limits).map_err(FilterError::Invalid)?;
    for name in rule.variables.keys() {
        check_name(name).map_err(FilterError::Invalid)?;
    }
    let program = || load_and_compile(rule);
    let filter = catch_unwind(AssertUnwindSafe(program))
        .unwrap_or_else(|_| Err("the jq parser panicked".to_owned()))
        .map_err(FilterError::Invalid)?;
    Ok(Compiled {
        filter,
        variables: rule.variables.values().cloned().collect(),
    })
}

fn check_size(rule: &JqRule, limits: &FilterLimits) -> Result<(), String> {
    let variables = rule.variables.iter();
    let variable_bytes: usize = variables.map(|(name, value)| name.len() + value.len()).sum();
    if rule.jq.len() > limits.rule_bytes {
        Err(format!("the rule is longer than {} bytes", limits.rule_bytes))
    } else if rule.variables.len() > limits.variables {
        Err(format!("there are more than {} variables", limits.variables))
    } else if variable_bytes > limits.variable_bytes {
        Err(format!("the variables take more than {} bytes", limits.variable_bytes))
    } else {
        Ok(())
    }
}

/// Checks a variable name, which includes the `$` as in Kubeapps.
fn check_name(name: &str) -> Result<(), String> {
    let shown = printable(&truncate(name, 64));
    let Some(identifier) = name.strip_prefix('$') else {
        return Err(format!(
            "the variable {shown:?} must be written with its dollar sign, as \"${shown}\""
        ));
    };
    let is_word = identifier.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_word || identifier.is_empty() || identifier.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "the variable {shown:?} is not a valid name: use letters, digits and underscores after the dollar sign, and no digit first"
        ));
    }
    if matches!(identifier, "ENV" | "__loc__") {
        return Err(format!("the variable {shown:?} is reserved in jq; rename it"));
    }
    Ok(())
}

fn load_and_compile(rule: &JqRule) -> Result<Filter<Counted>, String> {
    let code = rule.jq.as_str();
    let arena = Arena::default();
    let modules = Loader::new(natives::definitions())
        .load(&arena, File { code, path: () })
        .map_err(|errors| first_of(errors, |error| loading(code, &error)))?;
    // Rules have no modules to import data from.
    load::import(&modules, |_| Err("modules".to_owned()))
        .map_err(|errors| first_of(errors, |error| loading(code, &error)))?;
    Compiler::default()
        .with_funs(natives::functions())
        .with_global_vars(rule.variables.keys().map(String::as_str))
        .compile(modules)
        .map_err(|errors| first_of(errors, |errors| undefined(code, &errors)))
}

/// Describes the first error only. The others are often its consequence.
fn first_of<S, E>(errors: load::Errors<S, (), E>, describe: impl Fn(E) -> String) -> String {
    let first = errors.into_iter().next();
    first.map_or_else(|| "it does not compile".to_owned(), |(_, error)| describe(error))
}

fn loading(code: &str, error: &load::Error<&str>) -> String {
    match error {
        load::Error::Io(errors) => {
            let path = errors.first().map_or("", |(path, _)| path);
            format!("import and include are not allowed{}", position(code, path))
        }
        load::Error::Lex(errors) => errors.first().map_or_else(String::new, |(expected, found)| {
            format!("expected {}{}", expected.as_str(), place(code, found))
        }),
        load::Error::Parse(errors) => errors.first().map_or_else(String::new, |(expected, found)| {
            format!("expected {}{}", expected.as_str(), place(code, found))
        }),
    }
}

fn undefined(code: &str, errors: &[(&str, Undefined)]) -> String {
    let Some((name, kind)) = errors.first() else {
        return "it does not compile".to_owned();
    };
    let shown = quoted(name);
    let position = position(code, name);
    match kind {
        Undefined::Var => {
            format!("the variable {shown} is not declared{position}; add \"{shown}\" to spec.filterRule.variables")
        }
        Undefined::Filter(arity) => {
            let arguments = match arity {
                0 => "without arguments".to_owned(),
                1 => "with one argument".to_owned(),
                arity => format!("with {arity} arguments"),
            };
            format!("there is no function {shown} {arguments}{position}")
        }
        other => format!("there is no {} {shown}{position}", other.as_str()),
    }
}

fn quoted(text: &str) -> String {
    const QUOTED_BYTES: usize = 32;
    truncate(&printable(text), QUOTED_BYTES)
}

fn place(code: &str, found: &str) -> String {
    let position = position(code, found);
    if found.trim().is_empty() {
        format!(" at the end{position}")
    } else {
        format!(" instead of {:?}{position}", quoted(found))
    }
}

/// Returns line and column, counted from 1, or nothing if `part` is not a slice of `code`.
fn position(code: &str, part: &str) -> String {
    let offset = part.as_ptr().addr().checked_sub(code.as_ptr().addr());
    let Some(before) = offset.and_then(|offset| code.get(..offset)) else {
        return String::new();
    };
    let line = before.split('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!(" (line {line}, column {column})")
}
