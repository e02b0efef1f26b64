//! Reads the candidates from the database, for commands and for the watch of releases.

use std::collections::HashMap;

use super::{ChartKey, Group, Groups, decode, is_filtered};
use crate::api::NamespacedName;
use crate::budget::interleave;
use crate::catalog::{Catalog, Error, StoredText};
use crate::releases::{Candidate, ListedVersion};
use crate::serve::snapshot::Snapshot;

/// Memory of the charts of one name, and the largest row. Those beyond it are left out: more than are compared, unless their
/// versions have long texts.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Reads charts name by name, so that those of one name are in memory.
pub struct CandidateReader<'a> {
    catalog: &'a Catalog,
    groups: std::vec::IntoIter<(String, Group)>,
    filtered: HashMap<NamespacedName, bool>,
}

impl<'a> CandidateReader<'a> {
    /// Finds the charts with these names. With an origin, only repositories of it, and those without an owner while no other
    /// cluster uses the database.
    pub async fn new(catalog: &'a Catalog, names: &[String], origin: Option<&str>) -> Result<Self, Error> {
        let mut snapshot = Snapshot::new(None);
        if let Some(origin) = origin {
            snapshot = snapshot.of_origin(origin.to_owned());
        }
        let found = snapshot.find(catalog).await?;
        snapshot.apply(found);
        let is_shown = |name: &NamespacedName| snapshot.repositories().contains_key(name);
        let mut groups = Groups::new(names.iter().map(String::as_str));
        let listed = |name: NamespacedName, chart_id: &str| {
            if is_shown(&name) {
                groups.add(&name, chart_id, false);
            }
        };
        catalog.visit_chart_ids(listed).await?;
        let deprecated = |name: NamespacedName, chart_id: &str| {
            if is_shown(&name) {
                groups.add(&name, chart_id, true);
            }
        };
        catalog.visit_deprecated_ids(deprecated).await?;
        let records = catalog.records().await?.into_iter();
        let groups = groups.0.into_iter().map(|(name, group)| (name.to_owned(), group));
        Ok(Self {
            catalog,
            groups: groups.collect::<Vec<_>>().into_iter(),
            filtered: records
                .map(|record| (record.name.clone(), is_filtered(&record)))
                .collect(),
        })
    }

    /// Returns the next name with its charts, `None` after the last one. They take at most [`MAX_BYTES`]; those of each
    /// namespace are read in turn, so that none can displace all of another's.
    pub async fn next(&mut self) -> Result<Option<(String, Vec<Candidate>)>, Error> {
        let Some((name, group)) = self.groups.next() else {
            return Ok(None);
        };
        let keys = group.keys.iter();
        let keys = interleave(keys.map(|(key, deprecated)| (key.repository.namespace.as_str(), (key, *deprecated))));
        let (mut candidates, mut left) = (Vec::new(), MAX_BYTES);
        for (key, is_deprecated) in keys {
            let ChartKey { repository, chart_id } = key;
            let row = if is_deprecated {
                self.catalog.deprecated_row(repository, chart_id, left).await?
            } else {
                self.catalog.chart_row(repository, chart_id, left).await?
            };
            if let Some(StoredText::Complete(info)) = row {
                let is_filtered = self.filtered.get(repository).copied().unwrap_or_default();
                let candidate = decode(key, is_deprecated, is_filtered, &info);
                left = left.saturating_sub(candidate.as_ref().map_or(0, bytes));
                candidates.extend(candidate);
            }
        }
        Ok(Some((name, candidates)))
    }
}

fn bytes(candidate: &Candidate) -> u64 {
    let version = |listed: &ListedVersion| {
        size_of::<ListedVersion>() + listed.version.len() + listed.digest.as_ref().map_or(0, String::len)
    };
    candidate.versions.iter().map(version).sum::<usize>() as u64
}
