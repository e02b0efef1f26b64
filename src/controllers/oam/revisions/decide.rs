use kube::ResourceExt;

use super::compare::{has_same_application, has_same_contents};
use super::hash::is_own_hash;
use super::names::{next_number, revision_name, revision_number};
use crate::api::oam::{ApplicationRevision, ApplicationRevisionSpec, LatestRevision, labels};

/// The contents that a revision of the application would have now.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub spec: &'a ApplicationRevisionSpec,
    pub hash: &'a str,
    pub publish_version: Option<&'a str>,
    /// Changed definitions also make a new revision.
    pub auto_update: bool,
}

/// A recorded revision, with expanded contents.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    pub name: &'a str,
    pub hash: &'a str,
    pub publish_version: Option<&'a str>,
    pub spec: &'a ApplicationRevisionSpec,
}

impl<'a> Recorded<'a> {
    #[must_use]
    pub fn of(revision: &'a ApplicationRevision, contents: &'a ApplicationRevisionSpec) -> Self {
        let hash = revision.labels().get(labels::APP_REVISION_HASH);
        let version = revision.annotations().get(labels::PUBLISH_VERSION);
        Self {
            name: revision.metadata.name.as_deref().unwrap_or_default(),
            hash: hash.map_or("", String::as_str),
            publish_version: version.map(String::as_str),
            spec: contents,
        }
    }
}

/// Returns true if the latest revision stays current.
#[must_use]
pub fn is_unchanged(latest: &Recorded<'_>, candidate: &Candidate<'_>) -> bool {
    if candidate.auto_update {
        is_same(latest, candidate)
    } else {
        latest.publish_version == candidate.publish_version && has_same_application(latest.spec, candidate.spec)
    }
}

/// Returns name and number of an older revision with the same contents, or else of a new one. `latest` may be gone.
#[must_use]
pub fn next(
    application: &str,
    latest: Option<&LatestRevision>,
    candidate: &Candidate<'_>,
    revisions: &[Recorded<'_>],
) -> (String, i64) {
    let matching = revisions.iter().filter(|revision| is_same(revision, candidate));
    let numbered = matching.filter_map(|revision| Some((revision_number(revision.name)?, revision.name)));
    if let Some((number, name)) = numbered.max() {
        return (name.to_owned(), number);
    }
    let names = revisions.iter().map(|revision| revision.name);
    let number = next_number(latest.map(|latest| latest.revision), names);
    (revision_name(application, number), number)
}

/// Returns true if a revision has the contents of the candidate. Hashes of KubeVela can't be compared with ours.
#[must_use]
pub fn is_same(revision: &Recorded<'_>, candidate: &Candidate<'_>) -> bool {
    can_match(revision.publish_version, revision.hash, candidate) && has_same_contents(revision.spec, candidate.spec)
}

/// Returns true unless a revision with this version and hash differs from the candidate, whatever its contents are.
#[must_use]
pub fn can_match(publish_version: Option<&str>, hash: &str, candidate: &Candidate<'_>) -> bool {
    publish_version == candidate.publish_version && (!is_own_hash(hash) || hash == candidate.hash)
}
