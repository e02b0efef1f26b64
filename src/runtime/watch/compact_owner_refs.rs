//! Compact owner references: every component of an adopting Application has one, and they are rarely read.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// A JSON array with a tuple for each owner. Clones share the text.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OwnerReferences(Option<Arc<str>>);

/// API version, kind, name, UID, `controller` and `blockOwnerDeletion`.
type Tuple = (String, String, String, String, Option<bool>, Option<bool>);

impl OwnerReferences {
    #[must_use]
    pub fn to_vec(&self) -> Vec<OwnerReference> {
        let Some(text) = &self.0 else { return Vec::new() };
        let owners: Vec<Tuple> = serde_json::from_str(text).unwrap_or_default();
        let owners = owners.into_iter();
        let owners = owners.map(
            |(api_version, kind, name, uid, controller, block_owner_deletion)| OwnerReference {
                api_version,
                kind,
                name,
                uid,
                controller,
                block_owner_deletion,
            },
        );
        owners.collect()
    }

    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        // Most objects have other owners, and a UID has nothing to escape.
        self.0.as_ref().is_some_and(|text| text.contains(uid)) && self.to_vec().iter().any(|owner| owner.uid == uid)
    }

    #[cfg(test)]
    pub(super) fn ptr_eq(&self, other: &Self) -> bool {
        let text = |owners: &Self| owners.0.as_ref().map(Arc::as_ptr);
        text(self) == text(other)
    }
}

impl From<Vec<OwnerReference>> for OwnerReferences {
    fn from(owners: Vec<OwnerReference>) -> Self {
        if owners.is_empty() {
            return Self::default();
        }
        let tuple = |owner: OwnerReference| -> Tuple {
            let flags = (owner.controller, owner.block_owner_deletion);
            (owner.api_version, owner.kind, owner.name, owner.uid, flags.0, flags.1)
        };
        let tuples: Vec<_> = owners.into_iter().map(tuple).collect();
        // Serializing texts cannot fail.
        Self(serde_json::to_string(&tuples).ok().map(Into::into))
    }
}

impl fmt::Debug for OwnerReferences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.to_vec()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_owner_references_survive_a_round_trip() {
        let flags = [None, Some(false), Some(true)];
        let mut owners = Vec::new();
        for controller in flags {
            for block_owner_deletion in flags {
                owners.push(OwnerReference {
                    api_version: "app.k8s.io/v1beta1".to_owned(),
                    kind: String::new(),
                    name: "a\0b\u{fffd}ü".to_owned(),
                    uid: format!("uid-{}", owners.len()),
                    controller,
                    block_owner_deletion,
                });
            }
        }
        let packed = OwnerReferences::from(owners.clone());
        assert_eq!(packed.to_vec(), owners);
        assert_eq!(packed, OwnerReferences::from(owners));
        assert!(packed.has("uid-0") && packed.has("uid-8"));
        assert!(!packed.has("uid-9") && !packed.has("uid-") && !packed.has(""));
    }

    #[test]
    fn no_owners_need_no_memory() {
        let none = OwnerReferences::from(Vec::new());
        assert_eq!(none, OwnerReferences::default());
        assert!(none.to_vec().is_empty() && !none.has(""));
    }
}
