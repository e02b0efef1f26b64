//! Compact owner references: every component of an adopting Application has one, and they are rarely read.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// Encodes API version, kind, name and UID of each owner, each with a length prefix, and one byte for `controller` and
/// `blockOwnerDeletion`. Clones share the bytes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OwnerReferences(Option<Arc<[u8]>>);

const TEXT_FIELDS: usize = 4;
const UID: usize = 3;

impl OwnerReferences {
    #[must_use]
    pub fn to_vec(&self) -> Vec<OwnerReference> {
        self.iter().map(|owner| owner.unpack()).collect()
    }

    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        self.iter().any(|owner| owner.texts[UID] == uid.as_bytes())
    }

    #[cfg(test)]
    pub(super) fn ptr_eq(&self, other: &Self) -> bool {
        let text = |owners: &Self| owners.0.as_ref().map(Arc::as_ptr);
        text(self) == text(other)
    }

    fn iter(&self) -> impl Iterator<Item = Packed<'_>> {
        let mut rest = self.0.as_deref().unwrap_or_default();
        std::iter::from_fn(move || Packed::take(&mut rest))
    }
}

impl From<Vec<OwnerReference>> for OwnerReferences {
    fn from(owners: Vec<OwnerReference>) -> Self {
        let mut packed = Vec::new();
        for owner in &owners {
            for text in [&owner.api_version, &owner.kind, &owner.name, &owner.uid] {
                packed.extend((text.len() as u64).to_le_bytes());
                packed.extend(text.as_bytes());
            }
            packed.push(3 * digit(owner.controller) + digit(owner.block_owner_deletion));
        }
        Self((!packed.is_empty()).then(|| packed.into()))
    }
}

impl fmt::Debug for OwnerReferences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.to_vec()).finish()
    }
}

struct Packed<'a> {
    texts: [&'a [u8]; TEXT_FIELDS],
    flags: u8,
}

impl<'a> Packed<'a> {
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let mut texts = [&[][..]; TEXT_FIELDS];
        for text in &mut texts {
            let (length, tail) = rest.split_first_chunk()?;
            (*text, *rest) = tail.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        }
        let (flags, tail) = rest.split_first()?;
        *rest = tail;
        Some(Self { texts, flags: *flags })
    }

    fn unpack(&self) -> OwnerReference {
        let [api_version, kind, name, uid] = self.texts.map(|text| String::from_utf8_lossy(text).into_owned());
        OwnerReference {
            api_version,
            kind,
            name,
            uid,
            controller: flag(self.flags / 3),
            block_owner_deletion: flag(self.flags % 3),
        }
    }
}

const fn digit(flag: Option<bool>) -> u8 {
    match flag {
        None => 0,
        Some(false) => 1,
        Some(true) => 2,
    }
}

const fn flag(digit: u8) -> Option<bool> {
    match digit {
        0 => None,
        1 => Some(false),
        _ => Some(true),
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
