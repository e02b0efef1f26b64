//! The summaries of charts in memory. A refresh reads the charts of changed repositories only.

use std::collections::BTreeMap;

use super::memory::CatalogMemory;
pub use super::repository::Repository;
use super::summary::ChartSummary;
use crate::api::NamespacedName;
use crate::catalog::query::RepositoryKeys;
use crate::catalog::{Catalog, Error, ONE_SHOT};

#[derive(Clone, Debug)]
pub struct Snapshot {
    /// `None`: all namespaces.
    namespace: Option<String>,
    /// `None`: all origins.
    origin: Option<String>,
    memory: CatalogMemory,
    repositories: BTreeMap<NamespacedName, Repository>,
    /// Number of repositories without an owner that are hidden, because another cluster uses the database.
    hidden: usize,
    attempts: u64,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            namespace: None,
            origin: None,
            memory: CatalogMemory::UNLIMITED,
            repositories: BTreeMap::new(),
            hidden: 0,
            attempts: 0,
        }
    }
}

/// The repositories that the database has.
pub(super) struct Found {
    pub(super) keys: Vec<RepositoryKeys>,
    hidden: usize,
}

impl Snapshot {
    #[must_use]
    pub fn new(namespace: Option<String>) -> Self {
        Self {
            namespace,
            ..Self::default()
        }
    }

    /// Limits the snapshot to the repositories of one origin, and to those without an owner while no other cluster uses the
    /// database: namespaces of the same name in two clusters are not the same tenants.
    #[must_use]
    pub fn of_origin(self, origin: String) -> Self {
        Self {
            origin: Some(origin),
            ..self
        }
    }

    #[must_use]
    pub fn with_memory(self, memory: CatalogMemory) -> Self {
        Self { memory, ..self }
    }

    /// Returns the number of repositories whose charts were read. After an error, each repository is as it was or current.
    pub async fn refresh(&mut self, catalog: &Catalog) -> Result<usize, Error> {
        let found = self.find(catalog).await?;
        self.apply(found);
        let due = self.due();
        let count = due.len();
        for keys in due {
            let limit = self.reading_limit(&keys.name);
            if let Some(repository) = Repository::read(catalog, keys, limit, None).await? {
                self.insert(repository);
            }
        }
        self.trim();
        Ok(count)
    }

    pub(super) async fn find(&self, catalog: &Catalog) -> Result<Found, Error> {
        let mut keys = catalog.repository_keys(self.namespace.as_deref()).await?;
        let mut hidden = 0;
        if let Some(origin) = &self.origin {
            let is_alone = !catalog.has_other_cluster(origin).await?;
            keys.retain(|keys| !has_other_origin(keys, origin));
            let count = keys.len();
            keys.retain(|keys| is_alone || has_owner(keys));
            hidden = count - keys.len();
        }
        Ok(Found { keys, hidden })
    }

    /// Takes over the keys. The charts of repositories that have changed are due.
    pub(super) fn apply(&mut self, found: Found) {
        let mut old = std::mem::take(&mut self.repositories);
        let repositories = found.keys.into_iter().map(|keys| {
            let repository = match old.remove(&keys.name) {
                Some(mut repository) => {
                    repository.keys = keys;
                    repository
                }
                None => Repository::unread(keys),
            };
            (repository.keys.name.clone(), repository)
        });
        self.repositories = repositories.collect();
        self.hidden = found.hidden;
    }

    /// Returns the keys of repositories whose charts have to be read. Namespaces take turns, and in each of them the repository
    /// comes first that was read longest ago.
    pub(super) fn due(&self) -> Vec<RepositoryKeys> {
        let limits = self.limits();
        let is_due = |repository: &&Repository| {
            let limit = limits.get(repository.keys.name.namespace.as_str());
            repository.is_due(limit.copied().unwrap_or_default())
        };
        let mut due: Vec<&Repository> = self.repositories.values().filter(is_due).collect();
        due.sort_by_key(|repository| repository.attempt);
        let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
        let mut due: Vec<((usize, u64), &Repository)> = due
            .into_iter()
            .map(|repository| {
                let turn = turns.entry(&repository.keys.name.namespace).or_default();
                *turn += 1;
                ((*turn, repository.attempt), repository)
            })
            .collect();
        due.sort_by_key(|(turn, _)| *turn);
        due.into_iter().map(|(_, repository)| repository.keys.clone()).collect()
    }

    /// Returns the memory that the charts of a repository may take while they are read. The size of changed ones is unknown.
    pub(super) fn reading_limit(&self, name: &NamespacedName) -> u64 {
        let mut sizes = self.sizes();
        let is_unknown = self.repositories.get(name).is_none_or(Repository::has_changed);
        if is_unknown {
            let of_name = sizes.iter_mut().filter(|(of, _)| *of == name);
            of_name.for_each(|(_, size)| *size = self.memory.most());
        }
        let limits = self.memory.divide(&sizes);
        limits.get(name.namespace.as_str()).copied().unwrap_or_default()
    }

    /// Replaces the charts of a repository that is still there. [`Self::trim`] is due afterwards.
    pub(super) fn insert(&mut self, mut read: Repository) {
        self.attempts += 1;
        if let Some(repository) = self.repositories.get_mut(&read.keys.name) {
            read.keys = repository.keys.clone();
            read.attempt = self.attempts;
            *repository = read;
        }
    }

    /// Lets other repositories go first after a failed attempt.
    pub(super) fn postpone(&mut self, name: &NamespacedName) {
        self.attempts += 1;
        if let Some(repository) = self.repositories.get_mut(name) {
            repository.attempt = self.attempts;
        }
    }

    /// Leaves out the charts that do not fit since other repositories have grown.
    pub(super) fn trim(&mut self) {
        let limits: BTreeMap<String, u64> = self
            .limits()
            .into_iter()
            .map(|(namespace, limit)| (namespace.to_owned(), limit))
            .collect();
        for (name, repository) in &mut self.repositories {
            if let Some(limit) = limits.get(&name.namespace) {
                repository.trim(*limit);
            }
        }
    }

    fn limits(&self) -> BTreeMap<&str, u64> {
        self.memory.divide(&self.sizes())
    }

    fn sizes(&self) -> Vec<(&NamespacedName, u64)> {
        let repositories = self.repositories.iter();
        repositories
            .map(|(name, repository)| (name, repository.total_size()))
            .collect()
    }

    pub(super) const fn memory(&self) -> CatalogMemory {
        self.memory
    }

    #[must_use]
    pub const fn repositories(&self) -> &BTreeMap<NamespacedName, Repository> {
        &self.repositories
    }

    pub fn charts(&self) -> impl Iterator<Item = (&NamespacedName, &ChartSummary)> + Clone {
        self.repositories
            .iter()
            .flat_map(|(name, repository)| repository.charts.iter().map(move |chart| (name, chart)))
    }

    /// Returns the number of repositories without an owner that are hidden, because another cluster uses the database.
    #[must_use]
    pub const fn hidden(&self) -> usize {
        self.hidden
    }

    /// Returns the number of rows that are not readable, in all repositories.
    #[must_use]
    pub fn unreadable(&self) -> usize {
        self.repositories.values().map(|repository| repository.unreadable).sum()
    }
}

/// Returns true for repositories with a controller or a directory of manifests.
fn has_owner(keys: &RepositoryKeys) -> bool {
    keys.record.as_ref().is_some_and(|record| record.origin != ONE_SHOT)
}

fn has_other_origin(keys: &RepositoryKeys, origin: &str) -> bool {
    has_owner(keys) && keys.record.as_ref().is_some_and(|record| record.origin != origin)
}

#[cfg(test)]
mod tests {
    use super::super::repository::tests::repository;
    use super::*;

    /// Inserts repositories of this number of charts, in this order.
    fn snapshot(memory: u64, of: &[(&str, usize)]) -> Snapshot {
        let mut snapshot = Snapshot::default().with_memory(CatalogMemory::new(memory));
        let empty = of.iter().map(|(namespace, _)| repository(&named(namespace), 0, 0));
        snapshot.apply(Found {
            keys: empty.map(|repository| repository.keys).collect(),
            hidden: 0,
        });
        for (namespace, charts) in of {
            put(&mut snapshot, namespace, *charts);
        }
        snapshot
    }

    fn named(namespace: &str) -> NamespacedName {
        NamespacedName::new(namespace, "stable")
    }

    fn put(snapshot: &mut Snapshot, namespace: &str, charts: usize) {
        let name = named(namespace);
        let limit = snapshot.reading_limit(&name);
        snapshot.insert(repository(&name, charts, limit));
        snapshot.trim();
    }

    fn left_out(snapshot: &Snapshot) -> Vec<usize> {
        snapshot
            .repositories()
            .values()
            .map(|repository| repository.left_out)
            .collect()
    }

    #[test]
    fn a_huge_repository_leaves_out_its_own_charts_only() {
        let snapshot = snapshot(1 << 20, &[("huge", 5000), ("small", 50), ("tiny", 1)]);
        let left_out = left_out(&snapshot);
        assert!(left_out[0] > 0 && left_out[1..] == [0, 0], "{left_out:?}");
        assert_eq!(
            snapshot.charts().filter(|(name, _)| name.namespace == "small").count(),
            50
        );
        assert!(snapshot.repositories().values().map(Repository::size).sum::<u64>() <= 1 << 19);
        assert!(snapshot.due().is_empty());
    }

    #[test]
    fn the_same_charts_are_left_out_in_whatever_order_repositories_are_read() {
        let mut of = [("a", 900), ("b", 90), ("c", 500), ("d", 300), ("e", 5)];
        let mut settled = Vec::new();
        for _ in 0..of.len() {
            of.rotate_left(1);
            let mut snapshot = snapshot(1 << 20, &of);
            // What fits now, because a later repository turned out to be small, is read again.
            let mut rounds = 0;
            while let [keys, ..] = &snapshot.due()[..] {
                let charts = of.iter().find(|(namespace, _)| *namespace == keys.name.namespace);
                put(&mut snapshot, &keys.name.namespace.clone(), charts.unwrap().1);
                rounds += 1;
                assert!(rounds < 20, "repositories are read again and again");
            }
            settled.push(left_out(&snapshot));
        }
        assert!(settled[0].iter().sum::<usize>() > 0);
        assert!(settled.iter().all(|left_out| *left_out == settled[0]), "{settled:?}");
    }

    #[test]
    fn charts_that_were_left_out_come_back_when_there_is_memory() {
        let mut snapshot = snapshot(1 << 20, &[("a", 400), ("b", 400)]);
        let before = left_out(&snapshot);
        assert!(before.iter().all(|count| *count > 0), "{before:?}");
        put(&mut snapshot, "b", 1);
        assert_eq!(
            snapshot
                .due()
                .iter()
                .map(|keys| &*keys.name.namespace)
                .collect::<Vec<_>>(),
            ["a"]
        );
        put(&mut snapshot, "a", 400);
        assert!(left_out(&snapshot)[0] < before[0] && snapshot.due().is_empty());
    }

    #[test]
    fn namespaces_take_turns_in_being_read() {
        let mut snapshot = Snapshot::default();
        let keys = [("a", "1"), ("a", "2"), ("a", "3"), ("b", "1")]
            .map(|(namespace, name)| repository(&NamespacedName::new(namespace, name), 0, 0).keys);
        snapshot.apply(Found {
            keys: keys.to_vec(),
            hidden: 0,
        });
        let due =
            |snapshot: &Snapshot| -> Vec<String> { snapshot.due().iter().map(|keys| keys.name.to_string()).collect() };
        assert_eq!(due(&snapshot), ["a/1", "b/1", "a/2", "a/3"]);
        snapshot.postpone(&keys[0].name);
        assert_eq!(due(&snapshot), ["a/2", "b/1", "a/3", "a/1"]);
    }
}
