//! Names of DefinitionRevisions, and which revisions are needed. Pure.

use semver::Version;

use crate::api::oam::LatestRevision;
use crate::controllers::oam::revisions::names::revision_name;

/// Maximum length of a name in Kubernetes.
const MAX_NAME: usize = 253;

/// The way in which the revisions of a definition are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Naming {
    /// `<definition>-v<number>`, with a new number for each change.
    Numbered,
    /// By version or annotation. Its contents never change.
    Named(String),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamingError {
    #[error("spec.version {version:?} is no semantic version: {cause}")]
    Version { version: String, cause: String },
    #[error("{0:?} is no name of a DefinitionRevision")]
    Name(String),
}

/// Returns the naming of a definition. A version wins over the annotation with the name of a revision.
///
/// # Errors
/// The version is none, or the name is not valid in Kubernetes.
pub fn naming(definition: &str, version: &str, annotation: Option<&str>) -> Result<Naming, NamingError> {
    let suffix = match annotation.filter(|name| !name.is_empty()) {
        _ if !version.is_empty() => parse_version(version)?.to_string(),
        Some(name) => name.to_owned(),
        None => return Ok(Naming::Numbered),
    };
    let name = format!("{definition}-v{suffix}");
    if is_object_name(&name) {
        Ok(Naming::Named(name))
    } else {
        Err(NamingError::Name(name.chars().take(MAX_NAME).collect()))
    }
}

/// Parses a version such as `v1.2`, which may lack numbers.
fn parse_version(text: &str) -> Result<Version, NamingError> {
    let plain = text.strip_prefix('v').unwrap_or(text);
    let (numbers, suffix) = plain.split_at(plain.find(['-', '+']).unwrap_or(plain.len()));
    let missing = 2_usize.saturating_sub(numbers.matches('.').count());
    Version::parse(&format!("{numbers}{}{suffix}", ".0".repeat(missing))).map_err(|error| NamingError::Version {
        version: text.chars().take(MAX_NAME).collect(),
        cause: error.to_string(),
    })
}

/// Returns true for a DNS subdomain, the form of most names in Kubernetes.
pub(super) fn is_object_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedDefinition<'a> {
    pub(super) name: &'a str,
    pub(super) number: i64,
    pub(super) is_current: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RevisionDecision {
    /// A revision records the definition.
    Keep(String),
    Create {
        name: String,
        number: i64,
    },
    Conflict(String),
}

/// Decides which revision records a definition. `is_taken` returns true for names of DefinitionRevisions that exist, also
/// of other definitions.
pub(super) fn decide(
    definition: &str,
    naming: Naming,
    latest: Option<&LatestRevision>,
    recorded: &[RecordedDefinition<'_>],
    is_taken: impl Fn(&str) -> bool,
) -> RevisionDecision {
    let numbers = recorded.iter().map(|revision| revision.number);
    let newest = numbers.chain(latest.map(|latest| latest.revision)).max();
    let next = newest.unwrap_or(0).max(0).saturating_add(1);
    if let Naming::Named(name) = naming {
        return match recorded.iter().find(|revision| revision.name == name) {
            Some(revision) if revision.is_current => RevisionDecision::Keep(name),
            Some(_) => RevisionDecision::Conflict(name),
            None if is_taken(&name) => RevisionDecision::Conflict(name),
            None => RevisionDecision::Create { name, number: next },
        };
    }
    let latest = latest.and_then(|latest| recorded.iter().find(|revision| revision.name == latest.name));
    let newest = recorded.iter().max_by_key(|revision| revision.number);
    if let Some(revision) = [latest, newest]
        .into_iter()
        .flatten()
        .find(|revision| revision.is_current)
    {
        return RevisionDecision::Keep(revision.name.to_owned());
    }
    let mut names = (next..=i64::MAX).map(|number| (number, revision_name(definition, number)));
    match names.find(|(_, name)| !is_taken(name)) {
        Some((number, name)) => RevisionDecision::Create { name, number },
        None => RevisionDecision::Conflict(revision_name(definition, i64::MAX)),
    }
}

/// Returns the oldest revisions that exceed `limit`. Revisions in use are kept and not counted.
pub(super) fn expendable<'a>(
    revisions: &[RecordedDefinition<'a>],
    is_in_use: impl Fn(&str) -> bool,
    limit: usize,
) -> Vec<&'a str> {
    let mut unused: Vec<_> = revisions.iter().filter(|revision| !is_in_use(revision.name)).collect();
    unused.sort_by_key(|revision| (revision.number, revision.name));
    unused.truncate(unused.len().saturating_sub(limit));
    unused.into_iter().map(|revision| revision.name).collect()
}
