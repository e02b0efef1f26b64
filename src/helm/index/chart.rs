//! One chart while its versions come in.

use sha2::{Digest as _, Sha256};

use super::entry::{Entry, Head};
use super::{Chart, Version};
use crate::helm::semver::Rank;

/// Bytes that a chart's name may have: it is part of a file's name and of an index in the database.
const NAME_BYTES: usize = 250;

/// Gathers the versions of one chart. Of what a version says about the chart only the newest so far is kept.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    versions: Vec<(Rank, Version)>,
    newest: Option<(Rank, Head)>,
    bytes: u64,
}

/// A chart that is complete.
#[derive(Debug)]
pub(super) struct Complete {
    pub(super) chart: Chart,
    pub(super) deprecated: bool,
    /// Versions whose text stands more than once, each further one counted.
    pub(super) duplicates: u64,
    /// Over the sorted versions and their digests.
    pub(super) digest: [u8; 32],
}

impl Gathered {
    /// Takes one version, in the order of the file.
    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes += size_of_version(&entry.version);
        // Among equals the first in the file stays in front.
        if self.newest.as_ref().is_none_or(|(rank, _)| entry.rank > *rank) {
            self.newest = Some((entry.rank.clone(), entry.head));
        }
        self.versions.push((entry.rank, entry.version));
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.versions.is_empty()
    }

    /// About what it holds in memory.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The chart, or nothing if it has no versions; an error says why the whole chart is skipped.
    pub(super) fn complete(self) -> Result<Option<Complete>, String> {
        let Some((_, head)) = self.newest else { return Ok(None) };
        check_name(&head.name)?;
        let mut versions = self.versions;
        // Stable, so that equal versions keep the order of the file.
        versions.sort_by(|(a, _), (b, _)| b.cmp(a));
        let versions: Vec<Version> = versions.into_iter().map(|(_, version)| version).collect();
        let (duplicates, digest) = fingerprint(&versions);
        Ok(Some(Complete {
            deprecated: head.deprecated,
            duplicates,
            digest,
            chart: Chart {
                name: head.name,
                description: head.description,
                home: head.home,
                icon: head.icon,
                category: head.category,
                keywords: head.keywords,
                maintainers: head.maintainers,
                sources: head.sources,
                versions,
            },
        }))
    }
}

fn size_of_version(version: &Version) -> u64 {
    let urls = version
        .urls
        .iter()
        .flatten()
        .map(|url| url.len() + size_of::<String>())
        .sum::<usize>();
    // A time is a time: what is known of a chart holds whatever they are.
    const CREATED: usize = "2020-01-01T00:00:00.000000000+00:00".len();
    let texts = version.version.len() + version.app_version.len() + CREATED + version.digest.len();
    (size_of::<(Rank, Version)>() + texts + urls) as u64
}

/// A name may hold anything that can be shown, quotes and spaces too: statements take it as a parameter.
fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("its newest version has no name".to_owned());
    }
    if matches!(name, "." | "..") {
        return Err(format!("{name} can't be the name of a chart"));
    }
    if name.len() > NAME_BYTES {
        return Err(format!("its name has {} bytes, more than {NAME_BYTES}", name.len()));
    }
    if name.chars().any(char::is_control) {
        return Err("its name holds control characters".to_owned());
    }
    Ok(())
}

/// The number of duplicates, and the digest over what the versions are regardless of their order.
fn fingerprint(versions: &[Version]) -> (u64, [u8; 32]) {
    let mut sorted: Vec<(&str, &str)> = versions
        .iter()
        .map(|version| (version.version.as_str(), version.digest.as_str()))
        .collect();
    sorted.sort_unstable();
    let duplicates = sorted.windows(2).filter(|pair| pair[0].0 == pair[1].0).count() as u64;
    let mut hash = Sha256::new();
    for (version, digest) in sorted {
        update(&mut hash, version.as_bytes());
        update(&mut hash, digest.as_bytes());
    }
    (duplicates, hash.finalize().into())
}

/// Adds a text with its length, so that no two lists of texts look alike.
pub(super) fn update(hash: &mut Sha256, text: &[u8]) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}
