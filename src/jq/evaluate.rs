use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use jaq_core::data::HasLut;
use jaq_core::{Ctx, DataT, Lut, Vars};

use super::budget::{self, Exhausted};
use super::compile::Compiled;
use super::value::Value;
use super::{FilterError, Limits};
use crate::text::{printable, truncate};

const QUOTED_BYTES: usize = 256;

/// The interpreter's data types, with every step counted.
pub(super) struct Budgeted;

impl DataT for Budgeted {
    type V<'a> = Value;
    type Data<'a> = Steps<'a>;
}

/// Counts a step whenever the interpreter accesses the program.
#[derive(Clone)]
pub(super) struct Steps<'a>(&'a Lut<Budgeted>);

impl<'a> HasLut<'a, Budgeted> for Steps<'a> {
    fn lut(&self) -> &'a Lut<Budgeted> {
        budget::step();
        self.0
    }
}

pub(super) fn keeps(
    compiled: &Compiled,
    chart: &serde_json::Value,
    limits: &Limits,
    deadline: Option<Instant>,
) -> Result<bool, FilterError> {
    let name = || quoted(chart["name"].as_str().unwrap_or("without a name"));
    let failed = |cause| FilterError::Failed { chart: name(), cause };
    let too_costly = |limit: Exhausted| FilterError::TooCostly {
        chart: name(),
        cause: limit.describe(limits),
    };
    // A simple rule ends before the first periodic check of the deadline.
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return Err(too_costly(Exhausted::Time));
    }
    // Values are created and dropped inside, so that an unwind leaves none behind.
    let evaluate = || {
        // The chart is not charged, it has its own limits.
        let input = Value::from_json(chart);
        budget::run_within(limits, deadline, || first_output(compiled, input))
    };
    match catch_unwind(AssertUnwindSafe(evaluate)) {
        Ok(answer) => answer.map_err(failed),
        Err(payload) => Err(match budget::exhausted(&*payload) {
            Some(limit) => too_costly(limit),
            None => failed("the jq interpreter panicked; please report this bug".to_owned()),
        }),
    }
}

fn first_output(compiled: &Compiled, input: Value) -> Result<bool, String> {
    let variables = compiled.variables.iter().map(|value| Value::text(value));
    let context = Ctx::<Budgeted>::new(Steps(&compiled.filter.lut), Vars::new(variables));
    let mut outputs = compiled.filter.id.run((context, input));
    match outputs.next() {
        Some(Ok(Value::Bool(answer))) => Ok(answer),
        Some(Ok(other)) => Err(not_boolean(&shown(&other))),
        // gojq reports nil if there is no output.
        None => Err(not_boolean("nothing")),
        Some(Err(exception)) => Err(match exception.get_err() {
            Ok(error) => shown(&error),
            Err(_) => "it breaks to an undefined label".to_owned(),
        }),
    }
}

fn not_boolean(output: &str) -> String {
    format!("unable to convert jq result to boolean. Got: {output}")
}

fn quoted(text: &str) -> String {
    truncate(&printable(text), QUOTED_BYTES)
}

fn shown(value: &impl fmt::Display) -> String {
    let mut beginning = BoundedText(String::new());
    // The error only means that there is enough text.
    let _ = write!(beginning, "{value}");
    quoted(&beginning.0)
}

struct BoundedText(String);

impl Write for BoundedText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(&text[..text.floor_char_boundary(QUOTED_BYTES + 1)]);
        if self.0.len() > QUOTED_BYTES {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}
