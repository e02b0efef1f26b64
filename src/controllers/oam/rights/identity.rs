//! The user that annotations of an Application name.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::oam::labels::{GROUP_ANNOTATION, SERVICE_ACCOUNT_ANNOTATION, USER_ANNOTATION};
use crate::controllers::oam::clusters::IdentityKinds;
use crate::runtime::manifests::is_object_name;

const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
const MAX_NAME: usize = 1_024;
const MAX_GROUPS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityOptions {
    /// The gate `AuthenticateApplication`: a webhook writes and protects the annotations.
    pub is_authenticated: bool,
    /// `--authentication-default-user`: the user of Applications that name none, with the gate.
    pub default_user: String,
    /// `--trust-identity-annotations`: the annotations count although no webhook protects them.
    pub trusts_annotations: bool,
    /// `--default-service-account`: the ServiceAccount in their namespace of Applications that name no identity.
    pub default_service_account: Option<String>,
    /// `--require-identity`: Applications without an identity are refused.
    pub is_required: bool,
    /// `--privileged-namespaces`: their Applications may use Secrets of all namespaces and create objects of this
    /// controller anywhere.
    pub privileged_namespaces: BTreeSet<String>,
}

impl Default for IdentityOptions {
    fn default() -> Self {
        Self {
            is_authenticated: false,
            default_user: "kubevela:vela-core".to_owned(),
            trusts_annotations: false,
            default_service_account: None,
            is_required: false,
            privileged_namespaces: BTreeSet::new(),
        }
    }
}

impl IdentityOptions {
    /// Returns true if a webhook must write and protect the annotations.
    #[must_use]
    pub fn needs_webhook(&self) -> bool {
        self.is_authenticated && !self.trusts_annotations
    }

    /// Returns true if Applications have rights of their own, while nothing keeps their authors from naming any user.
    fn is_annotation_open(&self) -> bool {
        let is_isolated = self.is_required || self.default_service_account.is_some();
        is_isolated && !self.is_authenticated && !self.trusts_annotations
    }
}

/// A user and groups that are valid as headers, with the namespace of the Application that names them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    user: String,
    groups: Vec<String>,
    namespace: String,
}

/// An identity that can't be impersonated. The Application must not get the rights of the controller instead.
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
        "annotations {USER_ANNOTATION} and {GROUP_ANNOTATION} do not count with --default-service-account or \
         --require-identity, because nothing protects them; name a ServiceAccount of the namespace in annotation \
         {SERVICE_ACCOUNT_ANNOTATION}"
    )]
    Unprotected,
    #[error(
        "the application names no identity, which --require-identity demands; set annotation \
         {SERVICE_ACCOUNT_ANNOTATION} to a ServiceAccount of its namespace"
    )]
    Missing,
    #[error(
        "annotation {GROUP_ANNOTATION} has more than {MAX_GROUPS} groups, or one that is longer than {MAX_NAME} bytes or \
         contains control characters"
    )]
    Groups,
}

/// Returns `None` for the rights of the controller. Fails if the named identity can't be impersonated.
pub fn identity(
    annotations: &BTreeMap<String, String>,
    namespace: &str,
    options: &IdentityOptions,
) -> Result<Option<Identity>, IdentityError> {
    let text = |name: &str| annotations.get(name).map_or("", |text| text.trim());
    if options.is_annotation_open()
        && [USER_ANNOTATION, GROUP_ANNOTATION]
            .iter()
            .any(|name| !text(name).is_empty())
    {
        return Err(IdentityError::Unprotected);
    }
    let account = match text(SERVICE_ACCOUNT_ANNOTATION) {
        "" => options.default_service_account.as_deref().unwrap_or_default(),
        account => account,
    };
    let user = match (text(USER_ANNOTATION), account) {
        ("", "") if options.is_authenticated => options.default_user.clone(),
        ("", "") if options.is_required => return Err(IdentityError::Missing),
        // Groups without a user can't be impersonated; KubeVela ignores them, too.
        ("", "") => return Ok(None),
        ("", account) if is_object_name(account) => format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{account}"),
        ("", _) => return Err(IdentityError::ServiceAccount),
        (user, _) if is_foreign_account(user, namespace) && !options.is_authenticated => {
            return Err(IdentityError::OtherAccount);
        }
        (user, _) => user.to_owned(),
    };
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

    /// Returns the kinds whose impersonation the API server checks. It adds the groups of a ServiceAccount itself.
    #[must_use]
    pub fn kinds(&self) -> IdentityKinds {
        let account = self.user.strip_prefix(SERVICE_ACCOUNT_PREFIX);
        let is_account = account.is_some_and(|account| account.split(':').count() == 2);
        IdentityKinds {
            users: !is_account,
            groups: !self.groups.is_empty(),
            service_accounts: is_account,
        }
    }

    /// The API server adds the groups of a ServiceAccount without groups, and the group of all authenticated users.
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

    type Found = Result<Option<(String, Vec<String>)>, IdentityError>;

    fn found(annotations: &[(&str, &str)], is_authenticated: bool) -> Found {
        found_with(
            annotations,
            &IdentityOptions {
                is_authenticated,
                ..IdentityOptions::default()
            },
        )
    }

    fn found_with(annotations: &[(&str, &str)], options: &IdentityOptions) -> Found {
        let annotations = annotations
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        let identity = identity(&annotations.collect(), "ns", options)?;
        Ok(identity.map(|identity| (identity.user, identity.groups)))
    }

    fn user(name: &str, groups: &[&str]) -> Found {
        let groups = groups.iter().map(|group| (*group).to_owned());
        Ok(Some((name.to_owned(), groups.collect())))
    }

    #[rstest]
    fn a_user_wins_over_a_service_account_with_and_without_the_gate(#[values(false, true)] is_authenticated: bool) {
        let annotations = [
            (USER_ANNOTATION, "alice"),
            (SERVICE_ACCOUNT_ANNOTATION, "deployer"),
            (GROUP_ANNOTATION, "a, b,,"),
        ];
        assert_eq!(found(&annotations, is_authenticated), user("alice", &["a", "b"]));
        let account = user("system:serviceaccount:ns:deployer", &["a", "b"]);
        assert_eq!(found(&annotations[1..], is_authenticated), account);
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

    #[rstest]
    fn an_application_without_an_identity_gets_the_default_service_account(
        #[values(false, true)] is_authenticated: bool,
        #[values(false, true)] is_required: bool,
    ) {
        let options = IdentityOptions {
            default_service_account: Some("tenant".to_owned()),
            is_authenticated,
            is_required,
            ..IdentityOptions::default()
        };
        assert_eq!(found_with(&[], &options), user("system:serviceaccount:ns:tenant", &[]));
        let named = [(SERVICE_ACCOUNT_ANNOTATION, "deployer")];
        assert_eq!(
            found_with(&named, &options),
            user("system:serviceaccount:ns:deployer", &[])
        );
    }

    #[test]
    fn a_required_identity_that_is_missing_is_an_error() {
        let options = IdentityOptions {
            is_required: true,
            ..IdentityOptions::default()
        };
        assert_eq!(found_with(&[], &options), Err(IdentityError::Missing));
        let named = [(SERVICE_ACCOUNT_ANNOTATION, "deployer")];
        assert_eq!(
            found_with(&named, &options),
            user("system:serviceaccount:ns:deployer", &[])
        );
    }

    #[rstest]
    #[case(&[(USER_ANNOTATION, "admin")])]
    #[case(&[(SERVICE_ACCOUNT_ANNOTATION, "deployer"), (GROUP_ANNOTATION, "system:masters")])]
    fn a_tenant_cannot_leave_the_default_service_account_by_an_unprotected_annotation(
        #[case] annotations: &[(&str, &str)],
        #[values(None, Some("tenant"))] default: Option<&str>,
    ) {
        let options = IdentityOptions {
            default_service_account: default.map(str::to_owned),
            is_required: true,
            ..IdentityOptions::default()
        };
        assert_eq!(found_with(annotations, &options), Err(IdentityError::Unprotected));
        for (is_authenticated, trusts_annotations) in [(true, false), (false, true)] {
            let options = IdentityOptions {
                is_authenticated,
                trusts_annotations,
                ..options.clone()
            };
            assert!(found_with(annotations, &options).is_ok());
        }
    }

    #[test]
    fn invalid_groups_are_an_error() {
        for groups in ["a\u{7f}", &"a".repeat(MAX_NAME + 1), &"a,".repeat(MAX_GROUPS + 1)] {
            let annotations = [(USER_ANNOTATION, "alice"), (GROUP_ANNOTATION, groups)];
            assert_eq!(found(&annotations, false), Err(IdentityError::Groups));
        }
    }

    #[rstest]
    #[case::user("alice", &[], [true, false, false])]
    #[case::member("alice", &["a"], [true, true, false])]
    #[case::account("system:serviceaccount:ns:a", &[], [false, false, true])]
    #[case::account_with_groups("system:serviceaccount:ns:a", &["a"], [false, true, true])]
    #[case::no_account("system:serviceaccount:ns", &[], [true, false, false])]
    fn the_kinds_are_those_whose_impersonation_is_checked(
        #[case] user: &str,
        #[case] groups: &[&str],
        #[case] expected: [bool; 3],
    ) {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        let identity = Identity::new(user.to_owned(), groups).unwrap();
        assert_eq!(identity.kinds(), IdentityKinds::of(expected));
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
