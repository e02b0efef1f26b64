//! Decides whose rows the catalog has under the name of a repository.

use crate::catalog::{Handled, Record};
use crate::controllers::apprepository::spec::{ChangeKey, RepositorySpec};

/// The rows of a repository.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The record, reduced to what still applies after a restore or takeover.
    pub record: Option<Record>,
    /// The stored UID, which each write expects.
    pub uid: Option<String>,
}

/// The owner of the stored rows, by UID.
#[derive(Clone, Debug, PartialEq)]
pub enum Adoption {
    /// The rows of the object, or none. After a restored backup or a takeover, rows of an object of the same name, URL and
    /// type stay; validators do not.
    Own(Rows),
    /// The rows of another repository that had this name and this UID. They are removed first.
    Replaced { uid: String },
}

/// Returns the owner of the rows with this record.
#[must_use]
pub fn adopt(spec: &RepositorySpec, record: Option<Record>) -> Adoption {
    let Some(record) = record else {
        return Adoption::Own(Rows::default());
    };
    let uid = record.uid.clone();
    let rows = |record| Rows {
        record: Some(record),
        uid: Some(uid.clone()),
    };
    if record.uid == spec.uid {
        Adoption::Own(rows(record))
    } else if record.url == spec.url && record.kind == spec.kind.as_str() {
        Adoption::Own(rows(without_server_state(record)))
    } else {
        Adoption::Replaced { uid }
    }
}

/// Drops what the record says about the server, for an object that was recreated. The rows stay, and the baseline of the
/// shrink guard with its source.
fn without_server_state(record: Record) -> Record {
    Record {
        etag: None,
        last_modified: None,
        index_digest: String::new(),
        refused: None,
        handled: Handled::default(),
        change_key: ChangeKey::source_of(&record.change_key).to_owned(),
        last_attempt: None,
        ..record
    }
}
