//! Separates KubeVela's flags from other arguments.

use super::options::OamFlags;

/// The form of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// `--flag` or `--flag=true`; the next argument is never its value.
    Boolean,
    /// `--flag=value` or `--flag value`.
    Value,
}

/// The result of [`extract`].
#[derive(Clone, Debug, PartialEq)]
pub struct Extracted {
    pub flags: OamFlags,
    /// Arguments for `portolan run`.
    pub remaining: Vec<String>,
    /// One for each flag that is ignored or unknown.
    pub warnings: Vec<String>,
}

/// Separates the flags of KubeVela's controller from those that `own` knows. Flags of both are set in both.
///
/// # Errors
/// The message for the first flag with an invalid value.
pub fn extract(
    arguments: impl IntoIterator<Item = String>,
    own: impl Fn(&str) -> Option<Arity>,
) -> Result<Extracted, String> {
    let mut flags = OamFlags::default();
    let mut remaining = Vec::new();
    let mut warnings = Vec::new();
    let mut arguments = arguments.into_iter().peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            remaining.push(argument);
            remaining.extend(arguments);
            break;
        }
        let Some((name, attached)) = parse_flag(&argument) else {
            remaining.push(argument);
            continue;
        };
        let (ours, theirs) = (own(&name), OamFlags::arity(&name));
        // The value of an unknown flag is an argument that is no flag.
        let takes_next = match ours.or(theirs) {
            _ if attached.is_some() => false,
            Some(arity) => arity == Arity::Value,
            None => true,
        };
        let next = match (takes_next, ours.or(theirs)) {
            (false, _) => None,
            (true, Some(_)) => arguments.next(),
            (true, None) => arguments.next_if(|argument| !argument.starts_with('-')),
        };
        if theirs.is_some() {
            let value = attached
                .or_else(|| next.clone())
                .ok_or_else(|| format!("--{name} needs a value"));
            let value = if theirs == Some(Arity::Boolean) {
                value.unwrap_or_else(|_| "true".to_owned())
            } else {
                value?
            };
            let set = flags.set(&name, &value);
            warnings.extend(set.map_err(|error| format!("invalid value {value:?} for --{name}: {error}"))?);
        }
        if ours.is_some() {
            remaining.push(argument);
            remaining.extend(next);
        } else if theirs.is_none() {
            warnings.push(format!("unknown flag --{name} ignored"));
        }
    }
    Ok(Extracted {
        flags,
        remaining,
        warnings,
    })
}

/// Returns the name of a flag and the value in the same argument. `-v` is the only short flag.
fn parse_flag(argument: &str) -> Option<(String, Option<String>)> {
    let text = match argument.strip_prefix("--") {
        Some(text) => text,
        None => argument.strip_prefix('-').filter(|text| text.starts_with('v'))?,
    };
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (text, None),
    };
    // Programs of Kubernetes treat underscores and dashes alike.
    Some((name.replace('_', "-"), value))
}
