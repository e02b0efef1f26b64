//! The identities that a credential may impersonate in its cluster.

/// Kinds of identities, as RBAC names the resources to impersonate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentityKinds {
    pub users: bool,
    pub groups: bool,
    pub service_accounts: bool,
}

impl IdentityKinds {
    pub const NONE: Self = Self {
        users: false,
        groups: false,
        service_accounts: false,
    };
    pub const ALL: Self = Self {
        users: true,
        groups: true,
        service_accounts: true,
    };
    pub const RESOURCES: [&str; 3] = ["users", "groups", "serviceaccounts"];

    /// Takes an answer for each of [`Self::RESOURCES`].
    #[must_use]
    pub const fn of([users, groups, service_accounts]: [bool; 3]) -> Self {
        Self {
            users,
            groups,
            service_accounts,
        }
    }

    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self {
            users: self.users || other.users,
            groups: self.groups || other.groups,
            service_accounts: self.service_accounts || other.service_accounts,
        }
    }

    /// Returns the resources that these kinds lack, joined for a message. Empty if they cover `needed`.
    #[must_use]
    pub fn missing(self, needed: Self) -> String {
        let has = [self.users, self.groups, self.service_accounts];
        let needs = [needed.users, needed.groups, needed.service_accounts];
        let resources = Self::RESOURCES.into_iter().zip(has.into_iter().zip(needs));
        let missing = resources.filter(|(_, (has, needs))| *needs && !has);
        missing.map(|(resource, _)| resource).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resources_that_are_missing_are_named() {
        let accounts = IdentityKinds::of([false, false, true]);
        assert_eq!(accounts.missing(IdentityKinds::ALL), "users, groups");
        assert_eq!(IdentityKinds::NONE.missing(accounts), "serviceaccounts");
        assert_eq!(accounts.missing(accounts), "");
        let all = accounts.union(IdentityKinds::of([true, true, false]));
        assert_eq!(all, IdentityKinds::ALL);
    }
}
