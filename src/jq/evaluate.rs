use std::fmt::{self, Write};

use jaq_core::data::HasLut;
use jaq_core::{Ctx, DataT, Lut, Vars};

use super::FilterError;
use super::compile::Compiled;
use super::steps::{self, Exceeded};
use super::value::Value;
use crate::text::{printable, truncate};

const QUOTED_BYTES: usize = 256;

/// The interpreter's data types, with every step counted.
pub(super) struct Counted;

impl DataT for Counted {
    type V<'a> = Value;
    type Data<'a> = StepCounter<'a>;
}

/// Counts a step whenever the interpreter accesses the program.
#[derive(Clone)]
pub(super) struct StepCounter<'a>(&'a Lut<Counted>);

impl<'a> HasLut<'a, Counted> for StepCounter<'a> {
    fn lut(&self) -> &'a Lut<Counted> {
        steps::step();
        self.0
    }
}

pub(super) fn keeps(compiled: &Compiled, chart: Value, max_steps: u64) -> Result<bool, FilterError> {
    let name = match &chart {
        Value::Map(map) => map.get("name").and_then(|name| match name {
            Value::Text(name) => Some(quoted(name)),
            _ => None,
        }),
        _ => None,
    };
    let name = name.unwrap_or_else(|| "without a name".to_owned());
    // Values are created and dropped inside, so that an unwind leaves none behind.
    match steps::run_within(max_steps, || first_output(compiled, chart)) {
        Ok(answer) => answer.map_err(|cause| FilterError::Failed { chart: name, cause }),
        Err(Some(exceeded)) => Err(FilterError::LimitExceeded {
            place: format!(" at chart {name}"),
            cause: match exceeded {
                Exceeded::Steps => format!("it takes more than {max_steps} steps"),
                Exceeded::Size => "it creates a value that is too large".to_owned(),
            },
        }),
        Err(None) => Err(FilterError::Failed {
            chart: name,
            cause: "the jq interpreter panicked; please report this bug".to_owned(),
        }),
    }
}

fn first_output(compiled: &Compiled, input: Value) -> Result<bool, String> {
    let variables = compiled.variables.iter().map(|value| Value::text(value));
    let context = Ctx::<Counted>::new(StepCounter(&compiled.filter.lut), Vars::new(variables));
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
