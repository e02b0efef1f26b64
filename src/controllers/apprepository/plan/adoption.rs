//! Decides whose rows the catalog has under the name of a repository.

use crate::catalog::{Handled, Poll, Record};
use crate::controllers::apprepository::spec::{ChangeKey, RepositorySpec};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// The record, reduced to what still applies after a restore or takeover.
    pub record: Option<Record>,
    /// The stored UID, which each write expects.
    pub uid: Option<String>,
}

/// The stored rows belong to another repository that had this name, with this UID. They are removed first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    pub uid: String,
}

/// After a restore or takeover, rows of an object of the same name, URL and type stay; validators do not.
pub fn adopt(spec: &RepositorySpec, record: Option<Record>) -> Result<Rows, Replaced> {
    let Some(record) = record else {
        return Ok(Rows::default());
    };
    let uid = record.uid.clone();
    let record = if record.uid == spec.uid {
        record
    } else if record.url == spec.url && record.kind == spec.kind.as_str() {
        without_server_state(record)
    } else {
        return Err(Replaced { uid });
    };
    Ok(Rows {
        record: Some(record),
        uid: Some(uid),
    })
}

/// Drops what the record says about the server. The rows stay, and the baseline of the shrink guard with its source.
fn without_server_state(record: Record) -> Record {
    Record {
        etag: None,
        last_modified: None,
        index_digest: String::new(),
        refused: None,
        handled: Handled::default(),
        poll: Poll::default(),
        change_key: ChangeKey::source_of(&record.change_key).to_owned(),
        last_attempt: None,
        ..record
    }
}
