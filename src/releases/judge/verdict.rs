//! The newest versions of a chart, seen from the installed one.

use super::is_same_version;
use crate::helm::semver::{Prerelease, Rank};
use crate::releases::{Candidate, Status, Verdict};

#[derive(Default)]
struct Newest<'a>(Option<(Rank, &'a str)>);

impl<'a> Newest<'a> {
    fn add(&mut self, rank: Rank, version: &'a str) {
        if self.0.as_ref().is_none_or(|(newest, _)| *newest < rank) {
            self.0 = Some((rank, version));
        }
    }

    fn version(&self) -> Option<String> {
        self.0.as_ref().map(|(_, version)| (*version).to_owned())
    }
}

/// Returns none if the installed version is none to Helm: it can't be compared.
pub(super) fn verdict(installed: &str, candidate: &Candidate, devel: bool) -> Option<Verdict> {
    let rank = Rank::of(installed);
    let Rank::Version([major, minor, _], prerelease) = &rank else {
        return None;
    };
    let accepts_prereleases = devel || *prerelease != Prerelease::Release;
    let (mut is_listed, mut has_older, mut has_newer) = (false, false, false);
    let (mut patches, mut minors, mut majors) = (Newest::default(), Newest::default(), Newest::default());
    for listed in &candidate.versions {
        is_listed = is_listed || is_same_version(&listed.version, installed);
        let listed_rank = Rank::of(&listed.version);
        let Rank::Version([listed_major, listed_minor, _], listed_prerelease) = &listed_rank else {
            continue;
        };
        has_older |= listed_rank < rank;
        has_newer |= listed_rank > rank;
        if listed_rank <= rank || (*listed_prerelease != Prerelease::Release && !accepts_prereleases) {
            continue;
        }
        let newest = match (listed_major > major, listed_minor > minor) {
            (true, _) => &mut majors,
            (false, true) => &mut minors,
            (false, false) => &mut patches,
        };
        newest.add(listed_rank, &listed.version);
    }
    let status = match (is_listed, !candidate.filtered && has_older && has_newer) {
        (false, true) => Status::Withdrawn,
        (false, false) => Status::NotListed,
        (true, _) if majors.0.is_some() => Status::Major,
        (true, _) if minors.0.is_some() => Status::Minor,
        (true, _) if patches.0.is_some() => Status::Patch,
        (true, _) => Status::Current,
    };
    Some(Verdict {
        status,
        newest_patch: patches.version(),
        newest_minor: minors.version(),
        newest_major: majors.version(),
        deprecated: candidate.deprecated,
    })
}
