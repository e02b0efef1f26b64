//! Matching of an installed chart with the charts of the catalog.

mod links;
#[cfg(test)]
mod tests;
mod verdict;

use super::{
    Candidate, InstalledChart, JudgeOptions, Judgement, ListedVersion, MAX_REPOSITORIES, Match, RepositoryName, Verdict,
};
use links::{RepositoryUrl, has_equal_home, has_equal_link};
use verdict::verdict;

/// Versions of all candidates of a chart. More are never compared: the match is ambiguous.
pub const MAX_VERSIONS: usize = 100_000;

/// Compares an installed chart with the candidates of its name. Takes time linear in their versions.
#[must_use]
pub fn judge(installed: &InstalledChart, candidates: &[Candidate], options: &JudgeOptions) -> Judgement {
    let mut named: Vec<&Candidate> = candidates
        .iter()
        .filter(|found| found.chart == installed.name)
        .collect();
    named.sort_by(|a, b| (&a.namespace, &a.repository).cmp(&(&b.namespace, &b.repository)));
    let versions: usize = named.iter().map(|candidate| candidate.versions.len()).sum();
    if versions > MAX_VERSIONS {
        return judgement(Match::Ambiguous, &named, None);
    }
    let (matched, tied) = best_matches(installed, &named);
    let preferred = options.prefer.iter().find_map(|name| find(&tied, name));
    let tied = preferred.map_or(tied, |candidate| vec![candidate]);
    let Some((first, others)) = tied.split_first() else {
        return Judgement::unknown();
    };
    let found = verdict(&installed.version, first, options.devel);
    let is_one = others.iter().all(|other| {
        (matched == Match::Exact || have_equal_digests(&installed.version, first, other))
            && verdict(&installed.version, other, options.devel) == found
    });
    if is_one {
        judgement(matched, &tied, found)
    } else {
        judgement(Match::Ambiguous, &tied, None)
    }
}

/// Returns the candidates with the strongest evidence.
fn best_matches<'a>(installed: &InstalledChart, named: &[&'a Candidate]) -> (Match, Vec<&'a Candidate>) {
    if let Some(url) = installed.url.as_deref().and_then(RepositoryUrl::parse) {
        let exact: Vec<&Candidate> = named.iter().copied().filter(|found| url.has_chart(found)).collect();
        if !exact.is_empty() {
            return (Match::Exact, exact);
        }
    }
    let (mut likely, mut possible) = (Vec::new(), Vec::new());
    for candidate in named.iter().copied() {
        let listed = listed_version(candidate, &installed.version);
        let has_digest =
            listed.is_some_and(|version| is_equal_digest(version.digest.as_deref(), installed.digest.as_deref()));
        if listed.is_some() && (has_digest || has_equal_link(installed, candidate)) {
            likely.push(candidate);
        } else if listed.is_some() || has_equal_home(installed, candidate) {
            possible.push(candidate);
        }
    }
    if likely.is_empty() {
        (Match::Possible, possible)
    } else {
        (Match::Likely, likely)
    }
}

fn find<'a>(candidates: &[&'a Candidate], name: &RepositoryName) -> Option<&'a Candidate> {
    let is_named = |found: &&Candidate| found.namespace == name.namespace && found.repository == name.name;
    candidates.iter().copied().find(is_named)
}

fn judgement(matched: Match, candidates: &[&Candidate], verdict: Option<Verdict>) -> Judgement {
    let name = |candidate: &&Candidate| RepositoryName {
        namespace: candidate.namespace.clone(),
        name: candidate.repository.clone(),
    };
    Judgement {
        matched,
        repositories: candidates.iter().take(MAX_REPOSITORIES).map(name).collect(),
        verdict,
    }
}

fn have_equal_digests(version: &str, one: &Candidate, other: &Candidate) -> bool {
    match (listed_version(one, version), listed_version(other, version)) {
        (Some(one), Some(other)) => is_equal_digest(one.digest.as_deref(), other.digest.as_deref()),
        _ => false,
    }
}

fn listed_version<'a>(candidate: &'a Candidate, version: &str) -> Option<&'a ListedVersion> {
    let mut versions = candidate.versions.iter();
    versions.find(|listed| is_same_version(&listed.version, version))
}

/// Repositories and charts may disagree about a leading `v`. Tags have `_` in place of `+`.
fn is_same_version(one: &str, other: &str) -> bool {
    normalized(one).eq(normalized(other))
}

fn normalized(version: &str) -> impl Iterator<Item = u8> {
    let version = version.strip_prefix('v').unwrap_or(version);
    version.bytes().map(|byte| if byte == b'_' { b'+' } else { byte })
}

/// Digests in indexes have no algorithm.
fn is_equal_digest(one: Option<&str>, other: Option<&str>) -> bool {
    let hex =
        |digest: Option<&str>| digest.map(|digest| digest.trim().trim_start_matches("sha256:").to_ascii_lowercase());
    hex(one).is_some_and(|one| !one.is_empty() && hex(other) == Some(one))
}
