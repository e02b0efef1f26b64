//! Owner references in little room: each component of an adopting Application has one, and they are read rarely.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The owners of an object, as they are written: for each its version, kind, name and UID, a length in front of each, and a byte
/// that says what it says of controller and blockOwnerDeletion. Clones share them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OwnerReferences(Option<Arc<[u8]>>);

/// Texts of an owner.
const TEXTS: usize = 4;
const UID: usize = 3;

impl OwnerReferences {
    /// Them all, in their order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<OwnerReference> {
        self.iter().map(|owner| owner.unpack()).collect()
    }

    /// Whether one of this UID is among them.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        self.iter().any(|owner| owner.texts[UID] == uid.as_bytes())
    }

    /// Whether it is the very same text as the other's.
    #[cfg(test)]
    pub(super) fn is_one_with(&self, other: &Self) -> bool {
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

/// One of them.
struct Packed<'a> {
    texts: [&'a [u8]; TEXTS],
    flags: u8,
}

impl<'a> Packed<'a> {
    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let mut texts = [&[][..]; TEXTS];
        for text in &mut texts {
            let (length, behind) = rest.split_first_chunk()?;
            (*text, *rest) = behind.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        }
        let (flags, behind) = rest.split_first()?;
        *rest = behind;
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
    fn owners_come_out_as_they_went_in_whatever_is_in_their_texts() {
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
    fn who_has_no_owner_has_none_and_takes_no_room() {
        let none = OwnerReferences::from(Vec::new());
        assert_eq!(none, OwnerReferences::default());
        assert!(none.to_vec().is_empty() && !none.has(""));
    }
}
