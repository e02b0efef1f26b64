//! Types as applications write them: `webservice`, or a revision such as `webservice@v1.2`.

use std::fmt::{self, Display};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeName<'a> {
    pub name: &'a str,
    /// Version without `v`.
    pub version: Option<&'a str>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid type {0:?}; expected a name such as webservice, or a revision such as webservice@v2")]
pub struct InvalidType(String);

impl<'a> TypeName<'a> {
    pub fn parse(text: &'a str) -> Result<Self, InvalidType> {
        let (name, version) = match text.split_once('@') {
            None => (text, None),
            Some((name, version)) => (name, Some(version)),
        };
        let number = version.map(|version| version.strip_prefix('v').unwrap_or_default());
        if is_name(name) && number.is_none_or(is_name) {
            Ok(Self { name, version: number })
        } else {
            Err(InvalidType(text.chars().take(100).collect()))
        }
    }

    #[must_use]
    pub fn revision_name(&self) -> Option<String> {
        self.version.map(|version| format!("{}-v{version}", self.name))
    }
}

impl Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.version {
            Some(version) => write!(f, "@v{version}"),
            None => Ok(()),
        }
    }
}

/// Returns true for a name as Kubernetes allows it in labels.
fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = text.bytes().next().zip(text.bytes().last());
    (1..=63).contains(&text.len())
        && text.bytes().all(is_inner)
        && ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
}

/// Returns the value of the labels that name a type. Labels of a revision name the DefinitionRevision.
#[must_use]
pub fn type_label(type_: &str) -> String {
    let parsed = TypeName::parse(type_).ok();
    parsed
        .and_then(|parsed| parsed.revision_name())
        .unwrap_or_else(|| type_.to_owned())
}
