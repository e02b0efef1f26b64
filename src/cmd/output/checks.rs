//! Results of checks, a line each.

use crate::cmd::{Error, output};
use crate::text::sanitize;

/// A result of a check, or a problem with advice.
pub type Checked = Result<Finding, String>;

pub enum Finding {
    Fine(String),
    /// Possibly a problem, or so by choice, or because the controller works as KubeVela's.
    Warning(String),
}

pub fn fine(text: impl Into<String>) -> Checked {
    Ok(Finding::Fine(text.into()))
}

/// Prints a line for each check. Returns the number of problems.
pub fn print(checks: &[Checked]) -> Result<usize, Error> {
    for check in checks {
        let line = match check {
            Ok(Finding::Fine(text)) => format!("ok       {}", sanitize(text)),
            Ok(Finding::Warning(text)) => format!("warning  {}", sanitize(text)),
            Err(text) => format!("problem  {}", sanitize(text)),
        };
        output::print(&(line + "\n"))?;
    }
    Ok(checks.iter().filter(|check| check.is_err()).count())
}
