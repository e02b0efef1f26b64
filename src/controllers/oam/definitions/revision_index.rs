//! DefinitionRevisions by the definition that they are labeled with.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use parking_lot::RwLock;

use super::cached::CachedDefinition;
use super::kinds::ChangedKind;
use crate::api::oam::{DefinitionKind, DefinitionRevision};
use crate::runtime::watch::{Cached, Change};

#[derive(Clone, Debug, Default)]
pub(super) struct RevisionIndex(Arc<RwLock<RevisionNames>>);

/// By namespace, kind and name of the definition.
type RevisionNames = HashMap<(String, DefinitionKind, String), BTreeSet<String>>;

impl RevisionIndex {
    pub(super) fn names(&self, namespace: &str, kind: DefinitionKind, definition: &str) -> Vec<String> {
        let key = (namespace.to_owned(), kind, definition.to_owned());
        let names = self.0.read();
        names.get(&key).into_iter().flatten().cloned().collect()
    }

    pub(super) fn on_change(&self, change: &Change<Cached<CachedDefinition<DefinitionRevision>>>) {
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

fn entry(cached: &Cached<CachedDefinition<DefinitionRevision>>) -> Option<((String, DefinitionKind, String), String)> {
    let revision = cached.object()?;
    let Some((ChangedKind::Definition(kind), definition)) = revision.used_as() else {
        return None;
    };
    let key = (ResourceExt::namespace(&**revision)?, *kind, definition.clone());
    Some((key, revision.name_any()))
}
