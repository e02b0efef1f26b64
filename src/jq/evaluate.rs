//! Evaluating a rule for one chart.

use std::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use jaq_core::data::HasLut;
use jaq_core::{Ctx, DataT, Error, Lut, Vars};

use super::budget::{self, Exhausted};
use super::compile::Compiled;
use super::value::Value;
use super::{FilterError, Limits};
use crate::text::{printable, truncate};

/// How much of an output, or of a rule's own message, an error quotes.
const QUOTED_BYTES: usize = 256;

/// The interpreter, over our values, with every step counted.
pub(super) struct Guarded;

impl DataT for Guarded {
    type V<'a> = Value;
    type Data<'a> = Steps<'a>;
}

/// What the interpreter asks for the program at each of its steps.
#[derive(Clone)]
pub(super) struct Steps<'a>(&'a Lut<Guarded>);

impl<'a> HasLut<'a, Guarded> for Steps<'a> {
    fn lut(&self) -> &'a Lut<Guarded> {
        budget::step();
        self.0
    }
}

/// Whether the first output is true.
pub(super) fn keeps(
    compiled: &Compiled,
    chart: &serde_json::Value,
    limits: &Limits,
    deadline: Option<Instant>,
) -> Result<bool, FilterError> {
    let name = || {
        quoted(
            chart
                .get("name")
                .and_then(|name| name.as_str())
                .unwrap_or("without a name"),
        )
    };
    let failed = |cause| FilterError::Failed { chart: name(), cause };
    let too_costly = |limit: Exhausted| FilterError::TooCostly {
        chart: name(),
        cause: limit.describe(limits),
    };
    // A deadline that is over would be seen only after some steps, and a simple rule has fewer.
    if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
        return Err(too_costly(Exhausted::Time));
    }
    // All values live and die inside, whatever unwinds.
    let evaluate = || {
        // The chart itself has its limits already.
        let input = Value::from_json(chart);
        budget::within(limits, deadline, || first_output(compiled, input))
    };
    match catch_unwind(AssertUnwindSafe(evaluate)) {
        Ok(answer) => answer.map_err(failed),
        Err(payload) => Err(match budget::exhausted(&*payload) {
            Some(limit) => too_costly(limit),
            None => {
                failed("the interpreter of rules has failed; this is an error of Portolan, please report it".to_owned())
            }
        }),
    }
}

fn first_output(compiled: &Compiled, input: Value) -> Result<bool, String> {
    let variables = compiled.variables.iter().map(|value| Value::text(value));
    let context = Ctx::<Guarded>::new(Steps(&compiled.filter.lut), Vars::new(variables));
    let mut outputs = compiled.filter.id.run((context, input));
    match outputs.next() {
        Some(Ok(Value::Bool(answer))) => Ok(answer),
        Some(Ok(other)) => Err(not_boolean(&shown(&other))),
        // gojq's code gives nil where there is no output.
        None => Err(not_boolean("nothing")),
        Some(Err(exception)) => Err(match exception.get_err() {
            Ok(error) => message(&error),
            Err(_) => "it breaks out of a label that is not there".to_owned(),
        }),
    }
}

fn not_boolean(output: &str) -> String {
    format!("unable to convert jq result to boolean. Got: {output}")
}

fn message(error: &Error<Value>) -> String {
    shown(error)
}

fn quoted(text: &str) -> String {
    truncate(&printable(text), QUOTED_BYTES)
}

/// The beginning of what `value` prints, which may be long.
fn shown(value: &impl fmt::Display) -> String {
    let mut beginning = Beginning(String::new());
    // It fails on purpose where there is enough.
    let _ = write!(beginning, "{value}");
    quoted(&beginning.0)
}

/// Takes text until there is enough, and says so by an error.
struct Beginning(String);

impl Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.push_str(&text[..text.floor_char_boundary(QUOTED_BYTES + 1)]);
        if self.0.len() > QUOTED_BYTES {
            Err(fmt::Error)
        } else {
            Ok(())
        }
    }
}
