//! DefinitionRevisions by the definition that they are labeled with.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::RwLock;

use super::kinds::{Shrunk, definition_of};
use crate::api::oam::{DefinitionKind, DefinitionRevision};
use crate::runtime::watch::{Cached, Change};

/// Names of revisions. Clones share the index.
#[derive(Clone, Debug, Default)]
pub(super) struct RevisionIndex(Arc<RwLock<Names>>);

/// By namespace, kind and name of the definition.
type Names = HashMap<(String, DefinitionKind, String), BTreeSet<String>>;

impl RevisionIndex {
    pub(super) fn names(&self, namespace: &str, kind: DefinitionKind, definition: &str) -> Vec<String> {
        let key = (namespace.to_owned(), kind, definition.to_owned());
        let names = self.0.read();
        names.get(&key).into_iter().flatten().cloned().collect()
    }

    pub(super) fn on_change(&self, change: &Change<Cached<Shrunk<DefinitionRevision>>>) {
        let (old, new) = match change {
            Change::Applied { old, new, .. } => (old.as_ref(), Some(new)),
            Change::Deleted(old) | Change::MissingFromList(old) => (Some(old), None),
            Change::Synced { .. } => return,
        };
        let mut names = self.0.write();
        if let Some((key, name)) = old.and_then(entry)
            && let Some(of_definition) = names.get_mut(&key)
        {
            of_definition.remove(&name);
            if of_definition.is_empty() {
                names.remove(&key);
            }
        }
        if let Some((key, name)) = new.and_then(entry) {
            names.entry(key).or_default().insert(name);
        }
    }
}

fn entry(cached: &Cached<Shrunk<DefinitionRevision>>) -> Option<((String, DefinitionKind, String), String)> {
    let Shrunk(revision) = &**cached.object()?;
    let (kind, definition) = definition_of(revision)?;
    let key = (revision.namespace()?, kind, definition.to_owned());
    Some((key, revision.name_any()))
}
