use sha2::{Digest as _, Sha256};

use super::entry::IndexEntry;
use super::{Chart, Version};
use crate::helm::semver::Rank;

/// Collects the versions of one chart. Keeps chart-level fields of the newest version only.
#[derive(Debug, Default)]
pub(super) struct ChartBuilder {
    versions: Vec<(Rank, Version)>,
    newest: Option<(Rank, Chart)>,
    deprecated: bool,
    bytes: u64,
}

#[derive(Debug)]
pub(super) struct BuiltChart {
    pub(super) chart: Chart,
    pub(super) deprecated: bool,
    pub(super) duplicates: u64,
    /// SHA-256 over the sorted versions and their digests.
    pub(super) digest: [u8; 32],
}

impl ChartBuilder {
    pub(super) fn push(&mut self, entry: IndexEntry) {
        self.bytes += size_of_version(&entry.version);
        // The first of equal versions in file order stays the newest.
        if self.newest.as_ref().is_none_or(|(rank, _)| entry.rank > *rank) {
            self.newest = Some((entry.rank.clone(), entry.chart));
            self.deprecated = entry.deprecated;
        }
        self.versions.push((entry.rank, entry.version));
    }

    pub(super) const fn is_deprecated(&self) -> bool {
        self.deprecated
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns `None` without versions.
    pub(super) fn complete(self) -> Option<BuiltChart> {
        let (_, mut chart) = self.newest?;
        let mut versions = self.versions;
        // The sort is stable, so equal versions keep the file order.
        versions.sort_by(|(a, _), (b, _)| b.cmp(a));
        chart.versions = versions.into_iter().map(|(_, version)| version).collect();
        let (duplicates, digest) = fingerprint(&chart.versions);
        Some(BuiltChart {
            chart,
            deprecated: self.deprecated,
            duplicates,
            digest,
        })
    }
}

/// Returns the allocated size, with the allocator's overhead of each text.
fn size_of_version(version: &Version) -> u64 {
    const TEXT: usize = size_of::<String>() + 24;
    let urls = version.urls.iter().flatten();
    let urls: usize = urls.map(|url| url.len() + TEXT).sum();
    // Use a fixed length, so that cached stats do not depend on timestamps.
    const CREATED: usize = "2020-01-01T00:00:00.000000000+00:00".len();
    let texts = version.version.len() + version.app_version.len() + CREATED + version.digest.len();
    (size_of::<(Rank, Version)>() + texts + urls) as u64
}

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

/// Hashes a text with its length, so that concatenations stay distinct.
pub(super) fn update(hash: &mut Sha256, text: &[u8]) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}
