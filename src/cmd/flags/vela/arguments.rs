//! Separates KubeVela's flags from other arguments.

use clap::Arg;

use super::flags::VelaFlags;

/// The form of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// `--flag` or `--flag=true`; the next argument is never its value.
    Boolean,
    /// `--flag=value` or `--flag value`.
    Value,
}

impl Arity {
    pub fn of(flag: &Arg) -> Self {
        let takes_next = flag.get_action().takes_values() && !flag.is_require_equals_set();
        if takes_next { Self::Value } else { Self::Boolean }
    }
}

/// Returns the flag with a name or an older name.
pub fn find<'a>(flags: impl IntoIterator<Item = &'a Arg>, name: &str) -> Option<&'a Arg> {
    flags.into_iter().find(|flag| {
        let aliases = flag.get_all_aliases().unwrap_or_default();
        flag.get_long() == Some(name) || aliases.contains(&name)
    })
}

/// The result of [`extract`].
#[derive(Clone, Debug, PartialEq)]
pub struct Extracted {
    pub flags: VelaFlags,
    /// Arguments for `portolan run`.
    pub remaining: Vec<String>,
    /// Name each flag that is unknown, and each flag and gate that is not at its default and has no effect.
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
    let command = VelaFlags::command();
    let mut flags = Vec::new();
    let mut remaining = Vec::new();
    let mut warnings = Vec::new();
    let mut arguments = arguments.into_iter().peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--" {
            remaining.push(argument);
            remaining.extend(arguments);
            break;
        }
        let Some(flag) = Flag::parse(&argument) else {
            remaining.push(argument);
            continue;
        };
        let name = flag.name;
        let (own, vela) = (own(&name), find(command.get_arguments(), &name).map(Arity::of));
        let next = match own.or(vela) {
            _ if flag.value.is_some() => None,
            Some(Arity::Boolean) => None,
            Some(Arity::Value) => arguments.next(),
            // The value of an unknown flag is an argument that is no flag.
            None => arguments.next_if(|argument| !argument.starts_with('-')),
        };
        let value = flag.value.as_ref().or(next.as_ref());
        match (vela, value) {
            (Some(_), Some(value)) => flags.push(format!("--{name}={value}")),
            (Some(Arity::Boolean), None) => flags.push(format!("--{name}")),
            (Some(Arity::Value), None) => return Err(format!("--{name} needs a value")),
            (None, _) if own.is_none() => warnings.push(format!("unknown flag --{name} ignored")),
            (None, _) => {}
        }
        if own.is_some() {
            remaining.push(argument);
            remaining.extend(next);
        }
    }
    let flags = VelaFlags::parse(flags)?;
    warnings.extend(flags.warnings());
    Ok(Extracted {
        flags,
        remaining,
        warnings,
    })
}

/// An argument that is a flag.
struct Flag {
    name: String,
    /// The value in the same argument.
    value: Option<String>,
}

impl Flag {
    /// Parses `--flag`, `--flag=value` and `-v`, the only short flag.
    fn parse(argument: &str) -> Option<Self> {
        let text = match argument.strip_prefix("--") {
            Some(text) => text,
            None => argument.strip_prefix('-').filter(|text| text.starts_with('v'))?,
        };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        Some(Self {
            // Programs of Kubernetes treat underscores and dashes alike.
            name: name.replace('_', "-"),
            value,
        })
    }
}
