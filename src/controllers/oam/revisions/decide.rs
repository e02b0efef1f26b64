//! Decision whether an application needs a new revision.

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The latest revision stays current.
    Unchanged,
    /// An older revision becomes current again.
    Restore {
        name: String,
        number: i64,
    },
    Create {
        name: String,
        number: i64,
    },
}

/// Decides which revision becomes current. `latest` is the status of the application; the revision that it names may be gone.
#[must_use]
pub fn decide(
    application: &str,
    latest: Option<&LatestRevision>,
    candidate: Candidate<'_>,
    revisions: &[Recorded<'_>],
) -> Decision {
    let latest_name = latest.map(|latest| latest.name.as_str());
    let current = revisions.iter().find(|revision| Some(revision.name) == latest_name);
    if current.is_some_and(|current| is_unchanged(current, &candidate)) {
        return Decision::Unchanged;
    }
    let matching = revisions.iter().filter(|revision| is_same(revision, &candidate));
    let numbered = matching.filter_map(|revision| Some((revision_number(revision.name)?, revision.name)));
    if let Some((number, name)) = numbered.max() {
        return Decision::Restore {
            name: name.to_owned(),
            number,
        };
    }
    let names = revisions.iter().map(|revision| revision.name);
    let number = next_number(latest.map(|latest| latest.revision), names);
    Decision::Create {
        name: revision_name(application, number),
        number,
    }
}

fn is_unchanged(current: &Recorded<'_>, candidate: &Candidate<'_>) -> bool {
    match candidate.auto_update {
        true => is_same(current, candidate),
        false => {
            current.publish_version == candidate.publish_version && has_same_application(current.spec, candidate.spec)
        }
    }
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
