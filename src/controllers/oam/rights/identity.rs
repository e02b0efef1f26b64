//! The user that annotations of an Application name.

use std::collections::BTreeMap;

use crate::runtime::manifests::is_object_name;

pub const USER_ANNOTATION: &str = "app.oam.dev/username";
pub const SERVICE_ACCOUNT_ANNOTATION: &str = "app.oam.dev/service-account-name";
/// Groups, separated by commas.
pub const GROUP_ANNOTATION: &str = "app.oam.dev/group";

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const MAX_NAME: usize = 1_024;
const MAX_GROUPS: usize = 64;

/// The settings for Applications whose annotations name no user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityOptions {
    /// The gate `AuthenticateApplication`.
    pub is_required: bool,
    /// Of `--authentication-default-user`; used if an identity is required.
    pub default_user: String,
}

impl Default for IdentityOptions {
    fn default() -> Self {
        Self {
            is_required: false,
            default_user: "kubevela:vela-core".to_owned(),
        }
    }
}

/// A user and groups that are valid as headers, with the namespace of the Application that names them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    user: String,
    groups: Vec<String>,
    namespace: String,
}

/// An identity that can't be impersonated. The Application must not be applied with the rights of the controller instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    #[error("the user in annotation {USER_ANNOTATION} is longer than {MAX_NAME} bytes or contains control characters")]
    User,
    #[error(
        "the user in annotation {USER_ANNOTATION} is a ServiceAccount of another namespace; only the webhook that belongs to the \
         feature gate AuthenticateApplication may set it"
    )]
    OtherAccount,
    #[error("annotation {SERVICE_ACCOUNT_ANNOTATION} is not the name of a ServiceAccount")]
    ServiceAccount,
    #[error(
        "annotation {GROUP_ANNOTATION} has more than {MAX_GROUPS} groups, or one that is longer than {MAX_NAME} bytes or \
         contains control characters"
    )]
    Groups,
}

/// Returns the identity with whose rights an Application is applied; `None` for those of the controller.
///
/// # Errors
/// The annotations name an identity that can't be impersonated.
pub fn identity(
    annotations: &BTreeMap<String, String>,
    namespace: &str,
    options: &IdentityOptions,
) -> Result<Option<Identity>, IdentityError> {
    let text = |name: &str| annotations.get(name).map_or("", |text| text.trim());
    let user = match (text(USER_ANNOTATION), text(SERVICE_ACCOUNT_ANNOTATION)) {
        ("", "") if options.is_required => options.default_user.clone(),
        ("", "") => String::new(),
        ("", account) if is_object_name(account) => format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{account}"),
        ("", _) => return Err(IdentityError::ServiceAccount),
        (user, _) if is_foreign_account(user, namespace) && !options.is_required => {
            return Err(IdentityError::OtherAccount);
        }
        (user, _) => user.to_owned(),
    };
    // Groups without a user can't be impersonated; KubeVela ignores them, too.
    if user.is_empty() {
        return Ok(None);
    }
    let groups = text(GROUP_ANNOTATION).split(',').map(str::trim);
    let groups = groups.filter(|group| !group.is_empty()).map(str::to_owned);
    Ok(Some(Identity::new(user, groups.collect())?.in_namespace(namespace)))
}

/// Returns true for a ServiceAccount of another namespace. The right to impersonate some ServiceAccounts allows it.
fn is_foreign_account(user: &str, namespace: &str) -> bool {
    let account = user.strip_prefix(SERVICE_ACCOUNT_PREFIX);
    account.is_some_and(|account| account.split(':').next() != Some(namespace))
}

impl Identity {
    /// # Errors
    /// The names are too long, too many, or no valid headers.
    pub fn new(user: String, groups: Vec<String>) -> Result<Self, IdentityError> {
        let is_valid = |name: &str| name.len() <= MAX_NAME && !name.is_empty() && !name.contains(char::is_control);
        if !is_valid(&user) {
            return Err(IdentityError::User);
        }
        if groups.len() > MAX_GROUPS || !groups.iter().all(|group| is_valid(group)) {
            return Err(IdentityError::Groups);
        }
        Ok(Self {
            user,
            groups,
            namespace: String::new(),
        })
    }

    #[must_use]
    pub fn in_namespace(self, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        Self { namespace, ..self }
    }

    /// Returns the namespace of the Application.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    #[must_use]
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Returns the groups that the API server sees: it adds those of a ServiceAccount without groups, and that of all
    /// authenticated users.
    #[must_use]
    pub fn effective_groups(&self) -> Vec<String> {
        const ANONYMOUS: &str = "system:anonymous";
        const AUTHENTICATED: &str = "system:authenticated";
        let mut groups = self.groups.clone();
        let account = self.user.strip_prefix(SERVICE_ACCOUNT_PREFIX);
        if groups.is_empty()
            && let Some((namespace, _)) = account.and_then(|account| account.split_once(':'))
        {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        if self.user != ANONYMOUS && !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn found(annotations: &[(&str, &str)], is_required: bool) -> Result<Option<(String, Vec<String>)>, IdentityError> {
        let annotations = annotations
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let options = IdentityOptions {
            is_required,
            ..IdentityOptions::default()
        };
        let identity = identity(&annotations.collect(), "ns", &options)?;
        Ok(identity.map(|identity| (identity.user, identity.groups)))
    }

    fn user(name: &str, groups: &[&str]) -> Result<Option<(String, Vec<String>)>, IdentityError> {
        let groups = groups.iter().map(|group| (*group).to_owned());
        Ok(Some((name.to_owned(), groups.collect())))
    }

    #[rstest]
    fn a_user_wins_over_a_service_account_with_and_without_the_gate(#[values(false, true)] is_required: bool) {
        let annotations = [
            (USER_ANNOTATION, "alice"),
            (SERVICE_ACCOUNT_ANNOTATION, "deployer"),
            (GROUP_ANNOTATION, "a, b,,"),
        ];
        assert_eq!(found(&annotations, is_required), user("alice", &["a", "b"]));
        let account = user("system:serviceaccount:ns:deployer", &["a", "b"]);
        assert_eq!(found(&annotations[1..], is_required), account);
    }

    #[test]
    fn only_the_gate_needs_a_user() {
        let groups = [(GROUP_ANNOTATION, "a")];
        assert_eq!(found(&[], false), Ok(None));
        assert_eq!(found(&groups, false), Ok(None));
        assert_eq!(found(&[], true), user("kubevela:vela-core", &[]));
        assert_eq!(found(&groups, true), user("kubevela:vela-core", &["a"]));
        assert_eq!(found(&[(USER_ANNOTATION, "  ")], true), user("kubevela:vela-core", &[]));
    }

    #[rstest]
    #[case(USER_ANNOTATION, "a\nImpersonate-Group: system:masters", IdentityError::User)]
    #[case(USER_ANNOTATION, &"a".repeat(MAX_NAME + 1), IdentityError::User)]
    #[case(SERVICE_ACCOUNT_ANNOTATION, "a:b", IdentityError::ServiceAccount)]
    #[case(SERVICE_ACCOUNT_ANNOTATION, "../a", IdentityError::ServiceAccount)]
    fn an_invalid_identity_is_never_replaced_by_that_of_the_controller(
        #[case] annotation: &str,
        #[case] text: &str,
        #[case] expected: IdentityError,
    ) {
        assert_eq!(found(&[(annotation, text)], false), Err(expected));
    }

    #[test]
    fn a_service_account_of_another_namespace_needs_the_gate() {
        let foreign = [(USER_ANNOTATION, "system:serviceaccount:kube-system:admin")];
        assert_eq!(found(&foreign, false), Err(IdentityError::OtherAccount));
        assert_eq!(found(&foreign, true), user(foreign[0].1, &[]));
        let own = [(USER_ANNOTATION, "system:serviceaccount:ns:deployer")];
        assert_eq!(found(&own, false), user(own[0].1, &[]));
    }

    #[test]
    fn invalid_groups_are_an_error() {
        for groups in ["a\u{7f}", &"a".repeat(MAX_NAME + 1), &"a,".repeat(MAX_GROUPS + 1)] {
            let annotations = [(USER_ANNOTATION, "alice"), (GROUP_ANNOTATION, groups)];
            assert_eq!(found(&annotations, false), Err(IdentityError::Groups));
        }
    }

    #[test]
    fn effective_groups_are_those_that_the_api_server_adds() {
        let groups = |user: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            Identity::new(user.to_owned(), groups).unwrap().effective_groups()
        };
        assert_eq!(groups("alice", &["a"]), ["a", "system:authenticated"]);
        let of_account = [
            "system:serviceaccounts",
            "system:serviceaccounts:ns",
            "system:authenticated",
        ];
        assert_eq!(groups("system:serviceaccount:ns:a", &[]), of_account);
        assert_eq!(
            groups("system:serviceaccount:ns:a", &["b"]),
            ["b", "system:authenticated"]
        );
        assert!(groups("system:anonymous", &[]).is_empty());
    }
}
