//! Evaluates CUE: reads requests from standard input and writes responses to standard output (`portolan::cue::protocol`).
//!
//! Opens no file and no connection. An evaluation can't be interrupted, so the parent kills a process that takes too long.

use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

use cue_rs::error::Error;
use cue_rs::{Ctx, Value};
use portolan::cue::protocol::{Kind, MAX_ERROR, MAX_REQUEST, MAX_RESULT, Request, Response, VERSION, encode};
use portolan::runtime::worker_process::{Limits, serve_lines};
use portolan::text::truncate;
use serde_json::value::RawValue;

/// Memory without GOMEMLIMIT, in bytes.
const DEFAULT_MEMORY: u64 = 512 * 1024 * 1024;
/// Memory of Go's runtime and threads, and the granularity of its heap.
const RUNTIME: u64 = 128 * 1024 * 1024;
/// Stack of the requests themselves. CUE runs on growing stacks of Go.
const STACK: usize = 1024 * 1024;
/// Time for the last evaluation after standard input was closed.
const GRACE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
        std::process::exit(101);
    }));
    let soft_memory = std::env::var("GOMEMLIMIT").ok().and_then(|bytes| bytes.parse().ok());
    let limits = Limits {
        // The parent looks at the memory every 50 ms, in which a text may allocate gigabytes.
        memory: soft_memory
            .unwrap_or(DEFAULT_MEMORY)
            .saturating_mul(2)
            .saturating_add(RUNTIME),
        stack: STACK,
    };
    match serve_lines(limits, MAX_REQUEST, GRACE, |request| answer(&request)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("portolan-cue: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The reason why a request has no result.
struct Failure {
    kind: Kind,
    text: String,
}

impl Failure {
    fn new(kind: Kind, text: impl Display) -> Self {
        let text = truncate(&text.to_string(), MAX_ERROR);
        Self { kind, text }
    }
}

fn answer(line: &[u8]) -> Vec<u8> {
    let request: Request = match serde_json::from_slice(line) {
        Ok(request) => request,
        Err(error) => return failed(0, Failure::new(Kind::User, format_args!("invalid request: {error}"))),
    };
    let id = request.id;
    if request.version {
        return encode(&Response {
            id,
            version: Some(VERSION),
            ..Response::default()
        });
    }
    let result = match request.source {
        Some(source) => evaluate(&source),
        None => Err(Failure::new(Kind::User, "invalid request: no source")),
    };
    match result {
        Ok(result) => encode(&Response {
            id,
            result: Some(&result),
            ..Response::default()
        }),
        Err(failure) => failed(id, failure),
    }
}

fn failed(id: u64, failure: Failure) -> Vec<u8> {
    encode(&Response {
        id,
        error: Some(failure.text),
        kind: Some(failure.kind),
        ..Response::default()
    })
}

/// Evaluates a text in a context of its own: one context for all would grow, and could carry values from one text to another.
fn evaluate(source: &str) -> Result<Box<RawValue>, Failure> {
    let context = Ctx::new().map_err(|error| Failure::new(Kind::User, error))?;
    let value = Value::compile_bytes(&context, source.as_bytes()).map_err(|error| invalid(&error))?;
    value.is_valid().map_err(|error| invalid(&error))?;
    let json = value.to_json_bytes().map_err(|error| incomplete(&error))?;
    if json.len() > MAX_RESULT {
        let text = format_args!("the result has {} bytes, more than {MAX_RESULT}", json.len());
        return Err(Failure::new(Kind::User, text));
    }
    serde_json::from_slice(&json).map_err(|error| Failure::new(Kind::User, error))
}

/// Only values that are missing or not concrete are valid and can't be exported.
fn incomplete(error: &Error) -> Failure {
    let text = error.to_string();
    Failure::new(
        Kind::Incomplete,
        text.strip_prefix("cue: marshal error: ").unwrap_or(&text),
    )
}

fn invalid(error: &Error) -> Failure {
    let text = error.to_string();
    Failure::new(kind_of(&text), text)
}

/// Returns the kind of an error by its text, since the C interface of CUE gives nothing else. Errors of evaluation begin
/// with the path of a field, errors of syntax do not.
fn kind_of(text: &str) -> Kind {
    const SYNTAX: [&str; 2] = ["reference \"", "imported and not used"];
    const INCOMPLETE: [&str; 2] = ["incomplete ", "non-concrete value"];
    const USER: &str = "explicit error (_|_ literal)";
    const CONFLICT: [&str; 15] = [
        "conflicting values",
        "mismatched types",
        "incompatible list lengths",
        "field not allowed",
        "invalid value",
        "invalid operand",
        "invalid interpolation",
        "undefined field",
        "structural cycle",
        "empty disjunction",
        "out of range",
        "error in call to",
        "failed arithmetic",
        "division by zero",
        "cannot ",
    ];
    let (has_path, message) = match text.split_once(": ") {
        Some((path, message)) if !path.contains(' ') => (true, message),
        _ => (false, text),
    };
    if SYNTAX.iter().any(|words| message.starts_with(words)) {
        Kind::Syntax
    } else if text.contains(USER) {
        Kind::User
    } else if INCOMPLETE.iter().any(|words| message.contains(words)) {
        Kind::Incomplete
    } else if CONFLICT.iter().any(|words| message.contains(words)) {
        Kind::Conflict
    } else if has_path {
        // The argument of `error()`.
        Kind::User
    } else {
        Kind::Syntax
    }
}
